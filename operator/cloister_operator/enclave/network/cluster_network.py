"""The cluster network, as far as an enclave's own network has to know it."""

from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Any
from urllib.parse import urlsplit

__all__ = ["ApiEndpoint", "ClusterNetwork", "DnsResolver"]


@dataclass(frozen=True, slots=True)
class DnsResolver:
    """A name server that resolves public names."""

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
    """IPv4 addresses of its host; empty = its name does not resolve at present."""

    @property
    def port(self) -> int:
        """TCP port."""
        parts = urlsplit(self.url)
        return parts.port or (443 if parts.scheme == "https" else 80)


@dataclass(frozen=True, slots=True)
class ClusterNetwork:
    """Ranges, name servers and the API endpoint of the cluster."""

    denied: tuple[str, ...] = ()
    """Ranges that no container reaches, besides the special-purpose ones: those of the nodes, the
    API server, Pods and Services."""
    probe_sources: tuple[str, ...] = ()
    """Addresses from which kubelets probe, beside the node's own and the Pod's gateway."""
    resolvers: tuple[DnsResolver, ...] = ()
    """Name servers for public names, queried in this order."""
    refused_domains: tuple[str, ...] = ("cluster.local",)
    """Domains that are never resolved for a container: the cluster's own."""
    api: ApiEndpoint | None = None
    """The API; None = enclaves cannot reach it."""

    def ranges(self) -> tuple[IPv4Network, ...]:
        """Return all ranges that the networks of an enclave must not overlap."""
        resolvers = tuple(IPv4Network(each.address) for each in self.resolvers)
        api = () if self.api is None else tuple(map(IPv4Network, self.api.addresses))
        return (*map(IPv4Network, self.denied), *resolvers, *api)

    def upstream(self) -> list[str]:
        """Return the name servers as ``address:port``."""
        return [f"{each.address}:{each.port}" for each in self.resolvers]

    def refused(self) -> list[Any]:
        """Return the refused domains as the guest reads them: lower case, without a final dot."""
        return [each.lower().strip(".") for each in self.refused_domains]
