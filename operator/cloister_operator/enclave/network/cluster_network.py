"""The cluster around an enclave, as far as its network has to know it."""

from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Any
from urllib.parse import urlsplit

__all__ = ["ApiEndpoint", "ClusterNetwork", "DnsResolver"]


@dataclass(frozen=True, slots=True)
class DnsResolver:
    """A name server that answers public names."""

    address: str
    """IPv4 address."""
    port: int = 53
    """Port. Default 53."""


@dataclass(frozen=True, slots=True)
class ApiEndpoint:
    """Where enclaves reach the API."""

    url: str
    """Base address, http or https."""
    addresses: tuple[str, ...]
    """IPv4 addresses of its host; none = its name does not resolve at present."""
    authorities: str = ""
    """Certificates that the API's own must lead to, PEM; empty = the public ones."""

    @property
    def port(self) -> int:
        """TCP port."""
        parts = urlsplit(self.url)
        return parts.port or (443 if parts.scheme == "https" else 80)


@dataclass(frozen=True, slots=True)
class ClusterNetwork:
    """What is around."""

    denied: tuple[str, ...] = ()
    """Ranges that no container reaches, beside the special ones that never are: the nodes', the
    API server's, those of Pods and Services."""
    resolvers: tuple[DnsResolver, ...] = ()
    """Name servers for public names, asked in this order."""
    refused_domains: tuple[str, ...] = ("cluster.local",)
    """Domains that are never asked for a container: the cluster's own."""
    api: ApiEndpoint | None = None
    """Where the API is; None = enclaves have no way to it."""

    def ranges(self) -> tuple[IPv4Network, ...]:
        """Return all that the networks of an enclave must not lie in."""
        asked = tuple(IPv4Network(each.address) for each in self.resolvers)
        api = () if self.api is None else tuple(map(IPv4Network, self.api.addresses))
        return (*map(IPv4Network, self.denied), *asked, *api)

    def upstream(self) -> list[str]:
        """Return the name servers as ``address:port``."""
        return [f"{each.address}:{each.port}" for each in self.resolvers]

    def refused(self) -> list[Any]:
        """Return the refused domains as the guest reads them: lower case, without a final dot."""
        return [each.lower().strip(".") for each in self.refused_domains]
