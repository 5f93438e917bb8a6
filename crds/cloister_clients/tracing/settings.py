"""Settings of tracing, which both programs have."""

import re
from pathlib import Path
from typing import Annotated

from pydantic import Field

from cloister_clients.settings import SettingsError, SettingsSection, require_file

__all__ = ["TracingSettings"]

_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?)")
"""A header line (RFC 9110, 5.1 and 5.5), without characters beyond ASCII."""


class TracingSettings(SettingsSection):
    """Where traces are sent, and which."""

    endpoint: Annotated[str, Field(pattern=r"^https?://[^/?#@\s]+/[^?#\s]*$")]
    """Address at which a collector takes spans by OTLP over HTTP, with its path, such as
    http://collector.monitoring.svc:4318/v1/traces."""
    sample_ratio: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Share of traces that are recorded, from 0 to 1. A trace is recorded as a whole or not at all:
    who begins it decides. Default 1."""
    headers_file: Path | None = None
    """File with headers of every request to the collector, such as its token, one `Name: value` a
    line. Unset if there is none."""
    ca_file: Path | None = None
    """PEM file with the only authorities that are trusted at the collector; unset means the public
    ones."""

    def check_prerequisites(self) -> None:
        """Check that the files are there which the settings name.

        Raises
        ------
        SettingsError
            When one is missing or unusable; names it and its setting.
        """
        require_file("tracing.caFile", self.ca_file)
        self.headers()

    def headers(self) -> dict[str, str]:
        """Read the headers.

        Raises
        ------
        SettingsError
            When the file cannot be read or a line is not a header; the line is not quoted.
        """
        require_file("tracing.headersFile", self.headers_file)
        if self.headers_file is None:
            return {}
        lines = self.headers_file.read_text(encoding="utf-8", errors="replace").splitlines()
        found: dict[str, str] = {}
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            header = _HEADER.fullmatch(line.strip())
            if header is None:
                raise SettingsError(
                    f"tracing.headersFile: {self.headers_file}: line {number} is not a header; "
                    "write one `Name: value` a line, in ASCII"
                )
            found[header[1]] = header[2]
        return found
