"""How names are looked up at the servers that own them."""

from ipaddress import ip_address
from typing import Annotated

from pydantic import AfterValidator, Field

from cloister_clients.settings import SettingsSection

__all__ = ["DnsSettings"]


def _is_address(text: str) -> str:
    """Check an address.

    Raises
    ------
    ValueError
        When it is not an address.
    """
    return str(ip_address(text))


AddressText = Annotated[str, AfterValidator(_is_address)]


class DnsSettings(SettingsSection):
    """How the servers of a zone are found and queried."""

    resolvers: tuple[AddressText, ...] = ()
    """Addresses of recursive resolvers that find the servers of a zone, queried on port 53.
    Default: those of the system."""
    allow_private: tuple[AddressText, ...] = ()
    """Addresses of zones' servers that may be private; others must be public, since tenants
    name the zones. Default none."""
    timeout_seconds: float = Field(default=5.0, gt=0, le=60)
    """Longest wait for one response, in seconds. Default 5."""
