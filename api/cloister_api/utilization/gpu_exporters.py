"""Requests to the DCGM exporters that Hosts name: one for each address of the name, bounded."""

import asyncio
import logging
import ssl
from collections.abc import Iterable, Mapping

import httpx

from cloister_api.utilization.gpu_exposition import ExpositionError, GpuReport, merged, read_gpus
from cloister_clients.address_guard import (
    Guard,
    HostUnknown,
    Resolver,
    host_port,
    system_resolver,
)
from cloister_clients.outbound import ResponseTooLarge, fetch

__all__ = ["EXPORTERS", "GpuExporters"]

logger = logging.getLogger(__name__)

EXPORTERS = 256
"""Most addresses of one name; more nodes need a name for each pool."""
AT_ONCE = 32
"""Exporters that are queried at the same time."""
SECONDS = 5.0
"""Longest time for one exporter."""
BYTES = 2 * 1024 * 1024
"""Longest response of one exporter; eight GPUs with all metrics are a tenth of it."""


class GpuExporters:
    """Reads exporters. Only an administrator names them (Host.spec.gpu.metrics)."""

    def __init__(self, resolver: Resolver = system_resolver) -> None:
        self._resolver = resolver
        # No proxy and no netrc of the environment, and no redirect: it could lead anywhere. Nothing
        # is trusted by TLS, as URLs are of plain HTTP, and reading the authorities takes 60 ms.
        self._client = httpx.AsyncClient(
            timeout=SECONDS,
            follow_redirects=False,
            trust_env=False,
            verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            headers={"User-Agent": "cloister-api", "Accept-Encoding": "identity"},
            limits=httpx.Limits(max_connections=AT_ONCE, max_keepalive_connections=AT_ONCE),
        )
        self._silent: set[str] = set()

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def read(self, urls: Iterable[str]) -> Mapping[str, GpuReport]:
        """Query what is behind each URL.

        Returns
        -------
        Mapping
            By URL. A URL whose name has no address is left out, and so is what an exporter that
            does not respond would have reported; both are logged once until it responds again.
        """
        wanted = sorted(set(urls))
        limit = asyncio.Semaphore(AT_ONCE)
        places = await asyncio.gather(*(self._addresses(url) for url in wanted))
        pairs = [(url, place) for url, found in zip(wanted, places, strict=True) for place in found]
        reports = await asyncio.gather(*(self._read(url, place, limit) for url, place in pairs))
        known: dict[str, list[GpuReport]] = {}
        for (url, _), report in zip(pairs, reports, strict=True):
            if report is not None:
                known.setdefault(url, []).append(report)
        self._silent &= {*wanted, *(place for _, place in pairs)}
        return {url: merged(found) for url, found in known.items()}

    async def _addresses(self, url: str) -> list[str]:
        """Return the URL with each address that its name has."""
        parsed = httpx.URL(url)
        host, port = host_port(parsed)
        guard = Guard(allow_private=frozenset({host}), resolver=self._resolver)
        try:
            found = await guard.addresses(host, port)
        except HostUnknown as error:
            self._log(url, str(error))
            return []
        if len(found) > EXPORTERS:
            self._log(url, f"the name has {len(found)} addresses; the first {EXPORTERS} are read")
        else:
            self._silent.discard(url)
        return [str(parsed.copy_with(host=address)) for address in found[:EXPORTERS]]

    async def _read(self, url: str, place: str, limit: asyncio.Semaphore) -> GpuReport | None:
        """Query one exporter; None = it did not respond as one."""
        try:
            async with limit, asyncio.timeout(SECONDS):
                report = read_gpus(await self._text(url, place))
        except TimeoutError:
            self._log(place, f"no response within {SECONDS:.0f} s")
        except (httpx.HTTPError, ResponseTooLarge, ExpositionError) as error:
            self._log(place, str(error) or type(error).__name__)
        else:
            self._silent.discard(place)
            return report
        return None

    async def _text(self, url: str, place: str) -> str:
        """Return what one exporter responds.

        Raises
        ------
        ExpositionError
            When it responds with another status than 200.
        ResponseTooLarge, httpx.HTTPError
            When nothing responds, or with too much.
        """
        headers = {"Host": httpx.URL(url).netloc.decode(), "Accept": "text/plain"}
        response = await fetch(self._client, "GET", place, headers=headers, limit=BYTES)
        if response.status != httpx.codes.OK:
            raise ExpositionError(f"it responds with status {response.status}")
        return response.body.decode("utf-8", "replace")

    def _log(self, place: str, problem: str) -> None:
        """Log a problem once."""
        if place not in self._silent:
            self._silent.add(place)
            logger.warning(
                "no or not all metrics of GPUs from %s: %s; see spec.gpu.metrics of the Hosts",
                place,
                problem,
            )
