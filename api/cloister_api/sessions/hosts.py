"""Host names of the settings: of the dashboard, and of the provider that signs people in."""

import re
from ipaddress import ip_address

__all__ = ["is_host", "is_local"]

HOST = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
"""A host name in lower case (RFC 1123)."""


def is_host(text: str) -> bool:
    """Return whether a text is a host name without a final dot, or an address."""
    try:
        ip_address(text)
    except ValueError:
        return re.fullmatch(HOST, text) is not None
    return True


def is_local(hostname: str) -> bool:
    """Return whether a host name is this machine for every browser."""
    if hostname == "localhost":
        return True
    try:
        return ip_address(hostname).is_loopback
    except ValueError:
        return False
