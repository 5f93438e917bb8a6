"""Resolves the API endpoint of enclaves: the addresses of the setting `apiAddress`.

Sidecars of an enclave do not look its name up; the addresses that are resolved here are among what
it is told unmeasured.
"""

import asyncio
import logging
import socket
from datetime import timedelta
from typing import Self
from urllib.parse import urlsplit

from cloister_operator.enclave.network.cluster_network import ApiEndpoint

__all__ = ["ApiEndpointResolver", "unresolved"]

logger = logging.getLogger(__name__)

_RESOLVE_INTERVAL = timedelta(minutes=1)
_CONNECT_INTERVAL = timedelta(seconds=30)
_CONNECT_TIMEOUT = timedelta(seconds=3)


class ApiEndpointResolver:
    """Resolves the endpoint by the operator's own name servers, at most once a minute."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._addresses: tuple[str, ...] = ()
        self._resolve_after = 0.0
        self._unreachable = ""
        self._connect_after = 0.0

    @classmethod
    def of(cls, url: str | None) -> Self | None:
        """Make a resolver from the setting; None = enclaves cannot reach the API."""
        return None if url is None else cls(url)

    async def read(self) -> ApiEndpoint:
        """Return the endpoint; without addresses when its name has never resolved."""
        loop = asyncio.get_running_loop()
        if loop.time() >= self._resolve_after:
            parts = urlsplit(self._url)
            try:
                found = await loop.getaddrinfo(
                    parts.hostname or "", None, family=socket.AF_INET, type=socket.SOCK_STREAM
                )
            except OSError as error:
                # The last addresses stay: a name server that fails does not move the API.
                logger.warning("apiAddress %s does not resolve: %s", self._url, error)
            else:
                self._addresses = tuple(sorted({str(each[4][0]) for each in found}))
                self._resolve_after = loop.time() + _RESOLVE_INTERVAL.total_seconds()
        return ApiEndpoint(self._url, self._addresses)

    @property
    def url(self) -> str:
        """The setting `apiAddress`."""
        return self._url

    async def unreachable_reason(self) -> str:
        """Return why the API cannot be reached; a connection is tried at most twice a minute.

        Returns
        -------
        str
            A sentence with the remedy; empty = one of its addresses accepts connections. The
            operator's network path is not an enclave's, so nothing is refused because of it.
        """
        loop = asyncio.get_running_loop()
        if loop.time() >= self._connect_after:
            self._unreachable = await self._connect()
            self._connect_after = loop.time() + _CONNECT_INTERVAL.total_seconds()
        return self._unreachable

    async def _connect(self) -> str:
        endpoint = await self.read()
        if not endpoint.addresses:
            return unresolved(self._url)
        failure = ""
        for address in endpoint.addresses:
            try:
                async with asyncio.timeout(_CONNECT_TIMEOUT.total_seconds()):
                    _, writer = await asyncio.open_connection(address, endpoint.port)
            except OSError as error:
                failure = f"{address}: {error.strerror or 'no response in time'}"
                continue
            writer.close()
            return ""
        return (
            f"Nobody answers at apiAddress {self._url} ({failure}). Bring the API back, or correct "
            "apiAddress in the operator's settings."
        )


def unresolved(url: str | None) -> str:
    """Return a sentence: the host of ``apiAddress`` has no address, with the remedy.

    Parameters
    ----------
    url
        The setting; None = it was removed since the Enclave was created.
    """
    if url is None:
        return "The operator no longer has an apiAddress; set it again in the operator's settings."
    return (
        f"The host of apiAddress {url} has no IPv4 address at present. Correct apiAddress in the "
        "operator's settings, or the name servers that the operator uses."
    )
