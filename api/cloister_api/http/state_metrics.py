"""Metrics of a running facade's state, read at each scrape: what lags, what expires."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from cloister_api.auth.admin_key_cache import AdminKeyCache
from cloister_api.auth.api_keys.cache import ApiKeyCache
from cloister_api.certificates.expiry import CertificateExpiry
from cloister_api.metering.loop import Metering

__all__ = ["StateMetrics"]


@dataclass(frozen=True, slots=True)
class StateMetrics(Collector):
    """Collects the state of one facade."""

    admin_keys: AdminKeyCache
    """Admin keys in memory."""
    api_keys: ApiKeyCache
    """Regular keys in memory."""
    metering: Metering | None
    """Metering of run time; None = it is off."""
    certificates: CertificateExpiry | None
    """Certificates of enclaves; None = nobody signs them."""

    @override
    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        now = time.monotonic()
        read_at = min(self.admin_keys.read_at, self.api_keys.read_at)
        yield gauge(
            "cloister_api_ledger_lag_seconds",
            "Time since keys and totals in memory were last compared with the ledger.",
            now - read_at,
        )
        yield gauge(
            "cloister_api_replicas", "Replicas that the ledger knows.", self.api_keys.facades
        )
        if self.metering is not None:
            yield gauge(
                "cloister_api_metering_lag_seconds",
                "Time since the run time that was due was in the ledger.",
                now - self.metering.completed_at,
            )
        if self.certificates is not None:
            yield from of_certificates(self.certificates)


def of_certificates(found: CertificateExpiry) -> Iterator[Metric]:
    """Yield the metrics of certificates; what does not exist has no sample."""
    yield gauge(
        "cloister_api_certificate_orders_failing",
        "Orders of certificates that wait after a failed attempt.",
        found.failing,
    )
    yield gauge(
        "cloister_api_certificate_expiry_timestamp_seconds",
        "When the first certificate of a present enclave expires.",
        unix(found.earliest),
    )
    yield gauge(
        "cloister_api_authority_expiry_timestamp_seconds",
        "When the certificate of the own authority expires.",
        unix(found.authority),
    )


def gauge(name: str, meaning: str, value: float | None) -> GaugeMetricFamily:
    """Build a gauge; None = it has no sample now."""
    family = GaugeMetricFamily(name, meaning)
    if value is not None:
        family.add_metric((), value)
    return family


def unix(at: datetime | None) -> float | None:
    """Return a time in Unix seconds."""
    return at.timestamp() if at is not None else None
