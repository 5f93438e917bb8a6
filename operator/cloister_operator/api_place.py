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

from cloister_operator.enclave.surroundings import ApiPlace

__all__ = ["ApiPlaceReader"]

logger = logging.getLogger(__name__)

_KEPT = timedelta(minutes=1)


class ApiPlaceReader:
    """Answers where the API is; asks the name servers of the operator at most once a minute."""

    def __init__(self, url: str, authorities: str) -> None:
        self._url = url
        self._authorities = authorities
        self._addresses: tuple[str, ...] = ()
        self._until = 0.0

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

    async def read(self) -> ApiPlace:
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
        return ApiPlace(self._url, self._addresses, self._authorities)
