"""Collateral of processors: what AMD and Intel publish, cached in memory for enclaves.

Clients verify signatures and dates themselves (docs/verify.md), so the way to a vendor needs no
trust, and the cache looks at no signature. It orders the answers for one address by the vendor's
own times: an older one does not replace a newer one that is valid, as when a mirror is stale. Each
replica has its own cache.

Sources: AMD, "Versioned Chip Endorsement Key (VCEK) Certificate and KDS Interface Specification";
Intel, "API Documentation for Intel SGX and TDX Provisioning Certification Service", version 4.
"""

import asyncio
import logging
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Self
from weakref import WeakValueDictionary

import httpx
from cachetools import LRUCache
from cryptography import x509
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector
from pydantic import Field
from typing_extensions import override

from cloister_api.errors import bad_request, unavailable
from cloister_clients.clock import Clock
from cloister_clients.foreign_json import parse_json
from cloister_clients.outbound import HttpResponse, ResponseTooLarge, fetch, trust
from cloister_clients.settings import SettingsSection

logger = logging.getLogger(__name__)

MOST = 2048
"""Addresses whose answers are cached. A processor has one of its own, all others are of a product
line."""
MOST_BYTES = 256 * 1024
FRESH = timedelta(days=1)
"""Longest time for which an answer is returned without another request to the vendor."""
PAUSE = timedelta(minutes=1)
"""Time without requests for an address after a failure."""
SKEW = timedelta(minutes=10)
"""How far in the future an answer may have been issued: the vendor's clock may be ahead."""
CONCURRENT = 4
"""Concurrent requests to one service: AMD refuses callers that ask too often."""
WHOLE = 3
"""Longest time for a whole answer, as a multiple of `CollateralSettings.timeout_seconds`, which
bounds each part only: a server that sends a byte at a time would occupy a connection for days."""
OK = 200
Address = Annotated[str, Field(pattern=r"^https?://[^/?#@\s]+(/[^?#\s]*[^/?#\s])?$")]
"""Address of a service, without a slash at its end; a mirror may have a path."""


class CollateralSettings(SettingsSection):
    """Where the API fetches certificates, revocation lists and levels of processors with a TEE.

    The vendors sign all of it, so that a mirror needs no trust.
    """

    amd: Address = "https://kdsintf.amd.com"
    """AMD's Key Distribution Service, or a mirror of it. Default AMD's."""
    intel: Address = "https://api.trustedservices.intel.com"
    """Intel's Provisioning Certification Service, or a mirror of it. Default Intel's."""
    intel_certificates: Address = "https://certificates.trustedservices.intel.com"
    """Where the revocation list of Intel's root is, or a mirror of it. Default Intel's."""
    proxy: Annotated[str, Field(pattern=r"^https?://[^/?#@\s]+$")] | None = None
    """HTTP proxy for these requests, such as http://proxy.example:3128; unset if there is none."""
    ca_file: Path | None = None
    """PEM file with the only certificate authorities to trust. None: the public ones."""
    timeout_seconds: Annotated[float, Field(gt=0, le=300)] = 10.0
    """Longest wait for a connection and between two pieces of a response, in seconds.
    Default 10."""
    requests_per_hour: Annotated[int, Field(ge=1, le=100_000)] = 240
    """Requests of one enclave in an hour, by replica, and as many in one burst after a pause;
    further ones are 429. Default 240: an enclave needs four at its start and every hour, and tries
    again while something is missing."""


MOST_VALUES = 20_000
"""Values of an answer in JSON; Intel's have some hundreds."""
_LEVELS = r"(fmcSPL=\d{1,3}&)?blSPL=\d{1,3}&teeSPL=\d{1,3}&snpSPL=\d{1,3}&ucodeSPL=\d{1,3}"
_AMD = "https://kdsintf.amd.com"
_INTEL = "https://api.trustedservices.intel.com"
_INTEL_CERTIFICATES = "https://certificates.trustedservices.intel.com"


_JSON_TIMES = ("issueDate", "nextUpdate")
_UNORDERED = datetime(1970, 1, 1, tzinfo=UTC)


class UnusableAnswer(Exception):  # noqa: N818 - says what is wrong
    """An answer is not what the vendor publishes at that address."""


class OlderAnswer(UnusableAnswer):
    """An answer is older than one that is valid."""


@dataclass(frozen=True, slots=True)
class CollateralPiece:
    """One piece of collateral."""

    address: str
    """Address of the vendor."""
    url: str
    """Where it is fetched."""
    form: str
    """crl, certificate, chain, or the name of the field of its JSON that has nextUpdate."""
    header: str | None = None
    """Header of the answer with the certificates of its issuer; None if there is none."""

    @property
    def vendor(self) -> str:
        """Host of the vendor's service."""
        return self.address.split("/")[2]


_FORMS: tuple[tuple[str, re.Pattern[str], str, str | None], ...] = (
    (_AMD, re.compile(r"/v[cl]ek/v1/[A-Z][a-z]{2,15}/crl"), "crl", None),
    (_AMD, re.compile(r"/v[cl]ek/v1/[A-Z][a-z]{2,15}/cert_chain"), "chain", None),
    (
        _AMD,
        re.compile(rf"/vcek/v1/[A-Z][a-z]{{2,15}}/([0-9a-f]{{16}}|[0-9a-f]{{128}})\?{_LEVELS}"),
        "certificate",
        None,
    ),
    (
        _INTEL,
        re.compile(r"/tdx/certification/v4/tcb\?fmspc=[0-9a-f]{12}"),
        "tcbInfo",
        "tcb-info-issuer-chain",
    ),
    (
        _INTEL,
        re.compile(r"/tdx/certification/v4/qe/identity"),
        "enclaveIdentity",
        "sgx-enclave-identity-issuer-chain",
    ),
    (
        _INTEL,
        re.compile(r"/sgx/certification/v4/pckcrl\?ca=(platform|processor)&encoding=der"),
        "crl",
        "sgx-pck-crl-issuer-chain",
    ),
    (_INTEL_CERTIFICATES, re.compile(r"/IntelSGXRootCA\.der"), "crl", None),
)


def piece_of(address: str, settings: CollateralSettings) -> CollateralPiece | None:
    """Return what is at an address of a vendor, and where it is fetched.

    Returns
    -------
    CollateralPiece or None
        None if there is no collateral at that address.
    """
    bases = {
        _AMD: settings.amd,
        _INTEL: settings.intel,
        _INTEL_CERTIFICATES: settings.intel_certificates,
    }
    for vendor, pattern, form, header in _FORMS:
        path = address.removeprefix(vendor)
        found = pattern.fullmatch(path) if address.startswith(f"{vendor}/") else None
        if found is not None:
            return CollateralPiece(address, bases[vendor] + path, form, header)
    return None


def times_of(form: str, body: bytes) -> tuple[datetime, datetime]:
    """Return when an answer was issued, and until when it is valid, both in UTC.

    Parameters
    ----------
    form
        As `CollateralPiece.form`.

    Raises
    ------
    UnusableAnswer
        When it is something else, such as the page of a proxy.
    """
    try:
        if form == "crl":
            found = x509.load_der_x509_crl(body)
            issued, end = found.last_update_utc, found.next_update_utc
        elif form in {"certificate", "chain"}:
            # Certificates are not ordered: an older one revokes nothing, a wrong one is refused.
            chain = (
                x509.load_pem_x509_certificates(body)
                if form == "chain"
                else [x509.load_der_x509_certificate(body)]
            )
            issued, end = _UNORDERED, min(each.not_valid_after_utc for each in chain)
        else:
            fields = parse_json(body, most=MOST_VALUES)[form]
            issued, end = (datetime.fromisoformat(fields[name]) for name in _JSON_TIMES)
    except (KeyError, TypeError, ValueError) as error:
        raise UnusableAnswer(f"it is not a {form}") from error
    if end is None or end.tzinfo is None or issued.tzinfo is None:
        raise UnusableAnswer("it does not state when it was issued and when it must be replaced")
    return issued, end


@dataclass(frozen=True, slots=True)
class CollateralAnswer:
    """What a vendor publishes at an address."""

    body: bytes
    """Its bytes."""
    headers: dict[str, str]
    """The header with the issuer's certificates, where there is one."""
    issued_at: datetime
    """When the vendor issued it, in UTC."""
    valid_until: datetime
    """Until when the vendor's signature counts, in UTC."""
    fetched_at: datetime
    """When it was fetched, in UTC."""

    def is_fresh(self, now: datetime) -> bool:
        """Return whether no new request is needed: at most half of its life has passed."""
        longest = min(FRESH, (self.valid_until - self.fetched_at) / 2)
        return now - self.fetched_at < longest


@dataclass(slots=True)
class CachedAddress:
    """What is known of one address."""

    answer: CollateralAnswer | None = None
    """The newest answer; None if there was none."""
    failed_at: datetime | None = None
    """When the last request failed; None if it did not."""
    problem: str = ""
    """Why it failed."""


class CollateralCache:
    """The vendors' answers, at most one request at a time for one address.

    Raises
    ------
    OSError
        When the file with the authorities cannot be read.
    """

    def __init__(self, settings: CollateralSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._client = httpx.AsyncClient(
            verify=trust(settings.ca_file),
            proxy=settings.proxy,
            timeout=settings.timeout_seconds,
            follow_redirects=False,
            headers={"User-Agent": "cloister", "Accept-Encoding": "identity"},
            trust_env=False,
        )
        self._addresses: LRUCache[str, CachedAddress] = LRUCache(MOST)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.counts: Counter[tuple[str, str]] = Counter()
        """Answers by the vendor's host and outcome: taken, older (than a valid one), unusable."""
        # One for each service, so that a slow one delays no other.
        self._connections: defaultdict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(CONCURRENT)
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connections to the vendors."""
        await self._client.aclose()

    async def get(self, address: str) -> CollateralAnswer:
        """Return what a vendor publishes at an address.

        While the vendor does not respond, or responds with an older answer, that is the last
        answer, until its validity ends.

        Raises
        ------
        ApiError
            400 when there is no collateral at that address, 503 when it is not available.
        """
        piece = piece_of(address, self._settings)
        if piece is None:
            raise bad_request("address", "no collateral of AMD or Intel; see docs/measurement.md")
        async with self._locks.setdefault(piece.address, asyncio.Lock()):
            return await self._answer(piece)

    async def _answer(self, piece: CollateralPiece) -> CollateralAnswer:
        """Return a fresh answer, else a new one, else the last one while it is valid."""
        now = self._clock()
        known = self._addresses.get(piece.address) or CachedAddress()
        if known.answer is not None and known.answer.is_fresh(now):
            return known.answer
        if known.failed_at is None or now - known.failed_at >= PAUSE:
            try:
                known = CachedAddress(await self._newer(piece, known.answer, now))
                self.counts[piece.vendor, "taken"] += 1
            except UnusableAnswer as error:
                if str(error) != known.problem:
                    logger.warning("collateral: %s: %s", piece.url, error)
                known = CachedAddress(known.answer, now, str(error))
                outcome = "older" if isinstance(error, OlderAnswer) else "unusable"
                self.counts[piece.vendor, outcome] += 1
            self._addresses[piece.address] = known
        if known.answer is not None and now < known.answer.valid_until:
            return known.answer
        raise unavailable(
            f"{httpx.URL(piece.url).host}: {known.problem}; check the settings collateral",
            retry_after=PAUSE.total_seconds(),
        )

    async def _newer(
        self, piece: CollateralPiece, last: CollateralAnswer | None, now: datetime
    ) -> CollateralAnswer:
        """Fetch an answer.

        Raises
        ------
        OlderAnswer
            When the last answer is newer and valid.
        UnusableAnswer
            When there is none, or not what the vendor publishes.
        """
        response = await self._fetched(piece)
        issued, end = times_of(piece.form, response.body)
        headers = {}
        if piece.header is not None:
            if not response.headers.get(piece.header):
                raise UnusableAnswer(f"its header {piece.header} is missing")
            headers[piece.header] = response.headers[piece.header]
        if end <= now:
            raise UnusableAnswer(f"it was to be replaced at {end:%Y-%m-%dT%H:%M:%SZ}")
        if issued > now + SKEW:
            raise UnusableAnswer(f"it is from the future ({issued:%Y-%m-%dT%H:%M:%SZ})")
        if last is not None and now < last.valid_until and issued < last.issued_at:
            raise OlderAnswer(
                f"it was issued at {issued:%Y-%m-%dT%H:%M:%SZ}, before the answer that is cached; "
                "the mirror or proxy at that address is stale"
            )
        return CollateralAnswer(response.body, headers, issued, end, now)

    async def _fetched(self, piece: CollateralPiece) -> HttpResponse:
        """Request an address.

        Raises
        ------
        UnusableAnswer
            When there is no answer.
        """
        try:
            async with (
                self._connections[httpx.URL(piece.url).netloc.decode()],
                asyncio.timeout(WHOLE * self._settings.timeout_seconds),
            ):
                response = await fetch(self._client, "GET", piece.url, headers={}, limit=MOST_BYTES)
        except TimeoutError as error:
            raise UnusableAnswer("its answer took too long") from error
        except (httpx.HTTPError, httpx.InvalidURL, ResponseTooLarge) as error:
            raise UnusableAnswer(f"{type(error).__name__}: {error}") from error
        if response.status != OK:
            raise UnusableAnswer(f"it answered {response.status}")
        return response


class CollateralMetrics(Collector):
    """Collects the counts of one facade."""

    def __init__(self, cache: CollateralCache) -> None:
        self._cache = cache

    @override
    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        family = CounterMetricFamily(
            "cloister_api_collateral_answers",
            "Answers of vendors of processors: taken, older (than one that is valid), unusable.",
            labels=("maker", "outcome"),
        )
        for (maker, outcome), count in sorted(self._cache.counts.items()):
            family.add_metric((maker, outcome), count)
        yield family
