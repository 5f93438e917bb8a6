"""Addresses and ports.

Of each container on its networks, and of the cluster's own network. Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from itertools import count
from typing import Any, Final
from urllib.parse import urlsplit

from cloister_crds.config import Egress, ServiceConfig, shared_namespace

PROBE_PORT = 8441
"""Port of the enclave's agent for the kubelet's probes; the packet filter opens it to the node."""
SHIM_PORT = 8443
"""Port that the shim listens on in the Pod; the Service maps 443 to it."""
SSH_PORT = 8422
"""Port of ``guest ssh`` in the Pod of a debug enclave with SSH."""


SHIM_NETWORK: Final = "shim-net"
"""The network between the shim and the container that it routes to."""
SHIM_RANGE: Final = IPv4Network("172.31.255.0/30")
"""Its range."""
TARGET_ADDRESS: Final = SHIM_RANGE[2]
"""Address of the shim's target on it; the first one is the Pod's."""
SHARED_NAMESPACE: Final = "tenant"
"""Name of the one namespace of a file that is older than networks."""
SHARED_NETWORK: Final = "shared"
"""Name of its network, whose egress is open."""
BLOCKS: Final = tuple(
    IPv4Network(text)
    for text in (
        *("172.30.0.0/16", "172.29.0.0/16", "172.28.0.0/16", "192.168.0.0/16"),
        *("10.254.0.0/16", "10.143.0.0/16", "10.89.0.0/16"),
    )
)
"""Ranges for the networks of an enclave, in order of preference, as in the guest's `netplan`."""
_SUBNET_BITS: Final = 24
_FIRST_MEMBER: Final = 2


@dataclass(frozen=True, slots=True)
class PlannedNetwork:
    """A network of the enclave."""

    name: str
    """Name in the file, `SHIM_NETWORK` or `SHARED_NETWORK`."""
    egress: Egress
    """Its egress rule."""
    allow: tuple[str, ...]
    """Hosts of an allowlist."""
    subnet: IPv4Network
    """Its range; the first address is the Pod's."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """An address on a network."""

    network: str
    """Name of the network."""
    address: IPv4Address
    """The address."""


@dataclass(frozen=True, slots=True)
class NetworkNamespace:
    """A network namespace and the containers in it."""

    name: str
    """The container's name, or `SHARED_NAMESPACE`."""
    containers: tuple[str, ...]
    """Names in the file."""
    attachments: tuple[Attachment, ...]
    """Its networks; none = no connectivity."""


def free_block(avoid: Iterable[IPv4Network]) -> IPv4Network:
    """Return the block of `BLOCKS` that the networks of an enclave are moved to.

    Parameters
    ----------
    avoid
        Ranges of the cluster: the first block that overlaps none of them is taken, and the first
        block where each overlaps one.
    """
    known = tuple(avoid)
    free = (block for block in BLOCKS if not any(block.overlaps(each) for each in known))
    return next(free, BLOCKS[0])


def plan_networks(config: ServiceConfig) -> tuple[PlannedNetwork, ...]:
    """Assign each network of a file its range in the first block.

    Parameters
    ----------
    config
        The parsed file.

    Returns
    -------
    tuple[PlannedNetwork, ...]
        `shim-net` first, then those of the file in its order. In a cluster that uses that block
        itself the guest moves them to `free_block`, so that the plan is the same in each cluster.
    """
    subnets = BLOCKS[0].subnets(new_prefix=_SUBNET_BITS)
    shim = PlannedNetwork(SHIM_NETWORK, Egress.CLOSED, (), SHIM_RANGE)
    if shared_namespace(config):
        return shim, PlannedNetwork(SHARED_NETWORK, Egress.OPEN, (), next(subnets))
    return shim, *(
        PlannedNetwork(name, network.egress, network.allow, next(subnets))
        for name, network in config.networks.items()
    )


def plan_namespaces(
    config: ServiceConfig, networks: Iterable[PlannedNetwork]
) -> tuple[NetworkNamespace, ...]:
    """Return each container of a file its namespace and addresses.

    Parameters
    ----------
    config
        The parsed file.
    networks
        The networks from `plan_networks`.

    Returns
    -------
    tuple[NetworkNamespace, ...]
        One for each container in the order of the file; one for all of a file that is older than
        networks.
    """
    members = {each.name: map(each.subnet.__getitem__, count(_FIRST_MEMBER)) for each in networks}

    def attached(names: Iterable[str]) -> tuple[Attachment, ...]:
        return tuple(Attachment(name, next(members[name])) for name in names)

    if shared_namespace(config):
        everyone = tuple(each.name for each in config.containers)
        return (
            NetworkNamespace(SHARED_NAMESPACE, everyone, attached((SHIM_NETWORK, SHARED_NETWORK))),
        )
    namespaces = []
    for container in config.containers:
        target = container.name == config.shim.upstream_container
        names = (*((SHIM_NETWORK,) if target else ()), *(container.networks or ()))
        namespaces.append(NetworkNamespace(container.name, (container.name,), attached(names)))
    return tuple(namespaces)


@dataclass(frozen=True, slots=True)
class DnsResolver:
    """A name server that resolves public names."""

    address: str
    """IPv4 address."""
    port: int = 53
    """Port. Default 53."""


@dataclass(frozen=True, slots=True)
class ServicePods:
    """Pods behind a Service, by which some network plugins judge it."""

    namespace: str
    """Their namespace."""
    labels: Mapping[str, str]
    """Labels that they have."""
    port: int
    """Port that they listen on."""


@dataclass(frozen=True, slots=True)
class ApiEndpoint:
    """Where enclaves reach the API."""

    url: str
    """Base address, http or https."""
    addresses: tuple[str, ...]
    """IPv4 addresses of its host; empty if its name does not resolve at present."""

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
    """Addresses from which kubelets probe, in addition to the node's own and the Pod's gateway."""
    resolvers: tuple[DnsResolver, ...] = ()
    """Name servers for public names, queried in this order."""
    refused_domains: tuple[str, ...] = ("cluster.local",)
    """Domains that are never resolved for a container: the cluster's own."""
    api: ApiEndpoint | None = None
    """The API; None if enclaves cannot reach it."""

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
