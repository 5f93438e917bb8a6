"""What Prometheus scrapes of a real operator and a real facade."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from cloister_clients.kube.kinds import POLICIES
from dev.cluster import Cluster
from dev.plain_http import NO_TRUST
from tests.support.programs.operator import Installation, operator_lock
from tests.support.programs.operator_facade import facade_of
from tests.support.promql import alert_queries, dashboard_queries, metrics_of, series_names
from tests.support.waiting import until_sync

FACADE = {
    "development": True,
    "metrics": {"port": 0},
    "certificates": {"issuer": "own", "own": {"certificate": "ca.pem", "key": "ca.key"}},
}
"""Settings of a facade that has every metric."""


@dataclass(frozen=True, slots=True)
class Scrapes:
    """The two programs as Prometheus sees them."""

    installation: Installation
    """The operator's side."""
    address: str
    """Where the facade serves its metrics."""

    def operator(self) -> dict[str, Metric]:
        """Scrape the operator; families by name."""
        status, text = self.installation.processes[-1].request("/metrics")
        assert status == 200
        return families(text)

    def api(self) -> dict[str, Metric]:
        """Scrape the facade; families by name."""
        return families(httpx.get(self.address, trust_env=False, verify=NO_TRUST).text)


def families(text: str) -> dict[str, Metric]:
    """Parse a scrape."""
    return {family.name: family for family in text_string_to_metric_families(text)}


def value(family: Metric, **labels: str) -> float | None:
    """Return the value of the sample with these labels; None = there is none."""
    for sample in family.samples:
        if labels.items() <= sample.labels.items():
            return sample.value
    return None


@pytest.fixture(scope="module")
def scrapes(api_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scrapes]:
    """Provide an operator and a facade that run, with a Container whose tag does not exist."""
    with operator_lock(api_cluster.name):
        folder = tmp_path_factory.mktemp("monitoring")
        installed = Installation(api_cluster, folder, {"metering": True})
        try:
            installed.prepare()
            installed.create_organization()
            installed.repository("acme/web")
            installed.operator().wait_until_it_leads()
            installed.create_container("web", repo="acme/web", tag="v9")
            installed.wait_for("web", "Stalled")
            with facade_of(installed, FACADE) as client:
                assert client.get("/api/containers").status_code == 200
                (log,) = folder.glob("api-*.log")
                found = re.search(r"metrics are at (\S+)", log.read_text())
                assert found is not None
                yield Scrapes(installed, found[1])
        finally:
            installed.end()


def test_a_scrape_of_the_operator_says_what_its_alerts_need(scrapes: Scrapes) -> None:
    found = scrapes.operator()
    assert value(found["cloister_build_info"], component="operator") == 1
    assert value(found["leader_election_master_status"], name="cloister-operator") == 1
    stalled = {
        "organization_namespace": scrapes.installation.namespace,
        "stalled": "true",
        "reason": "TagNotFound",
    }
    assert value(found["cloister_containers"], **stalled) == 1
    assert found["cloister_operator_oldest_due_key_seconds"].samples
    assert found["process_resident_memory_bytes"].samples

    def lapsed() -> bool:
        return value(scrapes.operator()["cloister_operator_policies_lapsed"]) == len(POLICIES)

    until_sync(lapsed, what="the policies, which this cluster lacks")
    assert "cloister-no-entry (it does not exist)" in scrapes.installation.processes[-1].text


def test_a_scrape_of_the_facade_says_what_its_alerts_need(scrapes: Scrapes) -> None:
    found = scrapes.api()
    assert value(found["cloister_build_info"], component="api") == 1
    assert value(found["cloister_api_ready"]) == 1
    assert value(found["cloister_api_replicas"]) == 1
    for lag in ("cloister_api_ledger_lag_seconds", "cloister_api_metering_lag_seconds"):
        assert 0 <= (value(found[lag]) or 0) < 60, lag
    assert value(found["cloister_api_certificate_orders_failing"]) == 0
    expiry = value(found["cloister_api_authority_expiry_timestamp_seconds"])
    assert expiry is not None
    assert expiry > 1.7e9
    assert not found["cloister_api_certificate_expiry_timestamp_seconds"].samples


def test_each_metric_that_an_alert_or_a_dashboard_reads_is_scraped(scrapes: Scrapes) -> None:
    present = series_names(scrapes.operator()) | series_names(scrapes.api())
    missing = {
        f"{place}: {name}"
        for place, query in (*alert_queries(), *dashboard_queries())
        for name in metrics_of(query) - present
    }
    assert not missing
