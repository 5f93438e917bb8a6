"""Where the services of AMD and Intel are."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from cloister_clients.settings import SettingsSection

__all__ = ["CollateralSettings"]

Address = Annotated[str, Field(pattern=r"^https?://[^/?#@\s]+(/[^?#\s]*[^/?#\s])?$")]
"""Address of a service, without a slash at its end; a mirror may have a path."""


class CollateralSettings(SettingsSection):
    """Where the API fetches certificates, revocation lists and levels of processors with a TEE.

    The makers sign all of it, so that a mirror needs no trust.
    """

    amd: Address = "https://kdsintf.amd.com"
    """AMD's Key Distribution Service, or a mirror of it. Default AMD's."""
    intel: Address = "https://api.trustedservices.intel.com"
    """Intel's Provisioning Certification Service, or a mirror of it. Default Intel's."""
    intel_certificates: Address = "https://certificates.trustedservices.intel.com"
    """Where the revocation list of Intel's root is, or a mirror of it. Default Intel's."""
    proxy: Annotated[str, Field(pattern=r"^https?://[^/?#@\s]+$")] | None = None
    """HTTP proxy for these requests, such as http://proxy.example:3128; unset = none."""
    ca_file: Path | None = None
    """PEM file with the only certificate authorities to trust. None: the public ones."""
    timeout_seconds: Annotated[float, Field(gt=0, le=300)] = 10.0
    """Longest wait for a connection and between two pieces of a response, in seconds.
    Default 10."""
    requests_per_hour: Annotated[int, Field(ge=1, le=100_000)] = 240
    """Requests of one enclave in an hour, by replica, and as many at once after a pause; further
    ones are 429. Default 240: an enclave needs four at its start and every hour, and tries again
    while something is missing."""
