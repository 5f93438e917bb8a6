"""Where enclaves reach the API: the addresses behind the setting `apiAddress`.

Side-cars of an enclave ask no name server for it; what is resolved here stands in their documents
and in the plan of the enclave's network.
"""

import asyncio
import logging
import socket
from datetime import timedelta
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from cloister_operator.enclave.network.cluster_network import ApiEndpoint

__all__ = ["ApiEndpointResolver", "unresolved"]

logger = logging.getLogger(__name__)

_KEPT = timedelta(minutes=1)
_TRIED = timedelta(seconds=30)
_PATIENCE = timedelta(seconds=3)


class ApiEndpointResolver:
    """Answers where the API is; asks the name servers of the operator at most once a minute."""

    def __init__(self, url: str, authorities: str) -> None:
        self._url = url
        self._authorities = authorities
        self._addresses: tuple[str, ...] = ()
        self._until = 0.0
        self._unreachable = ""
        self._tried_until = 0.0

    @classmethod
    def of(cls, url: str | None, authorities: Path | None) -> Self | None:
        """Make one of the settings; None = enclaves have no way to the API.

        Raises
        ------
        OSError
            When the file of authorities cannot be read.
        """
        if url is None:
            return None
        return cls(url, authorities.read_text(encoding="ascii") if authorities else "")

    async def read(self) -> ApiEndpoint:
        """Answer where it is; without an address when its name does not resolve."""
        loop = asyncio.get_running_loop()
        if loop.time() >= self._until:
            parts = urlsplit(self._url)
            try:
                found = await loop.getaddrinfo(
                    parts.hostname or "", None, family=socket.AF_INET, type=socket.SOCK_STREAM
                )
            except OSError as error:
                logger.warning("apiAddress %s does not resolve: %s", self._url, error)
            else:
                self._addresses = tuple(sorted({str(each[4][0]) for each in found}))
                self._until = loop.time() + _KEPT.total_seconds()
        return ApiEndpoint(self._url, self._addresses, self._authorities)

    @property
    def url(self) -> str:
        """The setting."""
        return self._url

    async def unreachable_reason(self) -> str:
        """Tell why the API is not reached; it is tried at most once in half a minute.

        Returns
        -------
        str
            A sentence with the remedy; empty = one of its addresses takes connections. The
            operator's way there is not an enclave's, so nothing is refused because of it.
        """
        loop = asyncio.get_running_loop()
        if loop.time() >= self._tried_until:
            self._unreachable = await self._try()
            self._tried_until = loop.time() + _TRIED.total_seconds()
        return self._unreachable

    async def _try(self) -> str:
        place = await self.read()
        if not place.addresses:
            return unresolved(self._url)
        said = ""
        for address in place.addresses:
            try:
                async with asyncio.timeout(_PATIENCE.total_seconds()):
                    _, writer = await asyncio.open_connection(address, place.port)
            except OSError as error:
                said = f"{address}: {error.strerror or 'no answer in time'}"
                continue
            writer.close()
            return ""
        return (
            f"Nobody answers at apiAddress {self._url} ({said}). Bring the API back, or correct "
            "apiAddress in the operator's settings."
        )


def unresolved(url: str | None) -> str:
    """Say that the host of ``apiAddress`` has no address.

    Parameters
    ----------
    url
        The setting; None = it was taken away since the Enclave was made.
    """
    if url is None:
        return "The operator has no apiAddress any more; set it again in the operator's settings."
    return (
        f"The host of apiAddress {url} has no IPv4 address at present. Correct apiAddress in the "
        "operator's settings, or the name servers that the operator asks."
    )
