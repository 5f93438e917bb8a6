"""Reads the cluster's network for the networks of enclaves: its address ranges and name servers.

Nodes are in the informer cache. The rest is read from the API server and cached for a minute: it
changes only with the cluster's configuration.
"""

import logging
from collections.abc import Iterator
from datetime import datetime, timedelta
from ipaddress import AddressValueError, IPv4Address, IPv4Network, NetmaskValueError

from cloister_clients.clock import Clock
from cloister_clients.kube import KubeClient, NotFound
from cloister_clients.kube.kinds import ENDPOINT_SLICE, NODE, SERVICE, SERVICE_CIDR
from cloister_operator.cache.store import Store
from cloister_operator.enclave.network.cluster_network import ClusterNetwork, DnsResolver
from cloister_operator.lookups.api_endpoint import ApiEndpointResolver
from cloister_operator.settings import EnclaveNetworkSettings

__all__ = ["ClusterNetworkReader"]

logger = logging.getLogger(__name__)

_CACHED_FOR = timedelta(minutes=1)
_DNS = ("kube-dns", "kube-system")
"""Service of the cluster's DNS: its name is fixed for compatibility (Kubernetes, "DNS for Services
and Pods")."""
_API_SERVER = "kubernetes.io/service-name=kubernetes"
_DEFAULT_NAMESPACE = "default"


class ClusterNetworkReader:
    """Reads the cluster's network, most of it at most once a minute."""

    def __init__(
        self,
        client: KubeClient,
        store: Store,
        settings: EnclaveNetworkSettings,
        clock: Clock,
        api: ApiEndpointResolver | None = None,
    ) -> None:
        self._api = api
        self._client = client
        self._store = store
        self._settings = settings
        self._clock = clock
        self._read_at: datetime | None = None
        self._cached: tuple[frozenset[str], tuple[DnsResolver, ...]] = (frozenset(), ())

    async def read(self) -> ClusterNetwork:
        """Return the cluster's network.

        Raises
        ------
        KubeError
            When the server refuses or cannot be reached.
        """
        now = self._clock()
        if self._read_at is None or now - self._read_at > _CACHED_FOR:
            self._cached = (frozenset(await self._ranges()), await self._resolvers())
            self._read_at = now
        ranges, resolvers = self._cached
        denied = {*ranges, *self._node_ranges(), *map(str, self._settings.denied)}
        return ClusterNetwork(
            denied=tuple(sorted(denied)),
            probe_sources=tuple(map(str, self._settings.probe_sources)),
            resolvers=resolvers,
            refused_domains=self._settings.cluster_domains,
            api=await self._api.read() if self._api else None,
        )

    async def api(self) -> tuple[str | None, str]:
        """Return the setting ``apiAddress`` (None = not set) and why the API cannot be reached."""
        return (
            (None, "")
            if self._api is None
            else (self._api.url, await self._api.unreachable_reason())
        )

    def _node_ranges(self) -> Iterator[str]:
        """Return the addresses of nodes and their Pods as ranges."""
        for entry in self._store.entries(NODE):
            node = entry.decode()
            for text in (*node["status"]["addresses"], *node["spec"]["podCIDRs"]):
                yield from _range(text)

    async def _ranges(self) -> list[str]:
        """Read the address ranges of Services and the API server."""
        found: list[str] = []
        for each in (await self._client.list(SERVICE_CIDR)).items:
            for text in each["spec"]["cidrs"]:
                found += _range(text)
        slices = await self._client.list(
            ENDPOINT_SLICE, _DEFAULT_NAMESPACE, label_selector=_API_SERVER
        )
        for each in slices.items:
            for endpoint in each.get("endpoints") or ():
                for text in endpoint["addresses"]:
                    found += _range(text)
        return found

    async def _resolvers(self) -> tuple[DnsResolver, ...]:
        """Return the name servers: those of the settings, else the cluster's own."""
        named = self._settings.named_resolvers()
        if named:
            return named
        try:
            service = await self._client.get(SERVICE, *_DNS)
        except NotFound:
            return ()
        addresses = (service["spec"].get("clusterIP", ""), *service["spec"].get("clusterIPs", ()))
        return tuple(dict.fromkeys(DnsResolver(each) for each in addresses if _is_address(each)))


def _range(text: str) -> Iterator[str]:
    """Yield the IPv4 range of a text, nothing for another one: enclaves have no IPv6."""
    try:
        yield str(IPv4Network(text, strict=False))
    except (AddressValueError, NetmaskValueError):
        logger.debug("%s is not an IPv4 range", text)


def _is_address(text: str) -> bool:
    """Return whether a text is an IPv4 address; that of a headless Service is ``None``."""
    try:
        IPv4Address(text)
    except AddressValueError:
        return False
    return True
