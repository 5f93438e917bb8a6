"""What the operator looks up in the cluster once.

The API's addresses, its network, Gateway API versions.
"""

import asyncio
import logging
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import AddressValueError, IPv4Address, IPv4Network, NetmaskValueError
from typing import Self
from urllib.parse import urlsplit

from cloister_clients.clock import Clock, monotonic
from cloister_clients.kube import KindRef, KubeClient, NotFound, Unavailable
from cloister_clients.kube.kinds import (
    CUSTOM_RESOURCE_DEFINITION,
    ENDPOINT_SLICE,
    NODE,
    REFERENCE_GRANTS,
    SERVICE,
    SERVICE_CIDR,
    TLS_ROUTES,
)
from cloister_operator.cache.store import Store
from cloister_operator.enclave.network.addresses import ApiEndpoint, ClusterNetwork, DnsResolver
from cloister_operator.settings import EnclaveNetworkSettings

logger = logging.getLogger(__name__)

_RESOLVE_INTERVAL = timedelta(minutes=1)
_CONNECT_INTERVAL = timedelta(seconds=30)
_CONNECT_TIMEOUT = timedelta(seconds=3)


class ApiEndpointResolver:
    """Resolves the endpoint by the operator's own name servers, at most once a minute."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._addresses: tuple[str, ...] = ()
        self._resolve_after = 0.0
        self._unreachable = ""
        self._connect_after = 0.0

    @classmethod
    def of(cls, url: str | None) -> Self | None:
        """Make a resolver from the setting; None means enclaves cannot reach the API."""
        return None if url is None else cls(url)

    async def read(self) -> ApiEndpoint:
        """Return the endpoint; without addresses when its name has never resolved."""
        loop = asyncio.get_running_loop()
        if monotonic() >= self._resolve_after:
            parts = urlsplit(self._url)
            try:
                found = await loop.getaddrinfo(
                    parts.hostname or "", None, family=socket.AF_INET, type=socket.SOCK_STREAM
                )
            except OSError as error:
                # The last addresses stay: a name server that fails does not move the API.
                logger.warning("apiAddress %s does not resolve: %s", self._url, error)
            else:
                self._addresses = tuple(sorted({str(each[4][0]) for each in found}))
                self._resolve_after = monotonic() + _RESOLVE_INTERVAL.total_seconds()
        return ApiEndpoint(self._url, self._addresses)

    @property
    def url(self) -> str:
        """The setting `apiAddress`."""
        return self._url

    async def unreachable_reason(self) -> str:
        """Return why the API cannot be reached; a connection is tried at most twice a minute.

        Returns
        -------
        str
            A sentence with the remedy; empty if one of its addresses accepts connections. The
            operator's network path is not an enclave's, so nothing is refused because of it.
        """
        if monotonic() >= self._connect_after:
            self._unreachable = await self._connect()
            self._connect_after = monotonic() + _CONNECT_INTERVAL.total_seconds()
        return self._unreachable

    async def _connect(self) -> str:
        endpoint = await self.read()
        if not endpoint.addresses:
            return unresolved(self._url)
        failure = ""
        for address in endpoint.addresses:
            try:
                async with asyncio.timeout(_CONNECT_TIMEOUT.total_seconds()):
                    _, writer = await asyncio.open_connection(address, endpoint.port)
            except OSError as error:
                failure = f"{address}: {error.strerror or 'no response in time'}"
                continue
            writer.close()
            return ""
        return (
            f"Nobody answers at apiAddress {self._url} ({failure}). Bring the API back, or correct "
            "apiAddress in the operator's settings."
        )


def unresolved(url: str | None) -> str:
    """Return a sentence: the host of ``apiAddress`` has no address, with the remedy.

    Parameters
    ----------
    url
        The setting; None if it was removed since the Enclave was created.
    """
    if url is None:
        return "The operator no longer has an apiAddress; set it again in the operator's settings."
    return (
        f"The host of apiAddress {url} has no IPv4 address at present. Correct apiAddress in the "
        "operator's settings, or the name servers that the operator uses."
    )


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
        """Return the setting ``apiAddress`` (None if not set) and why the API cannot be reached."""
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


OUTDATED_REMEDY = (
    "install the CRDs of the Gateway API 1.5 or newer, in which both kinds are v1, and restart the "
    "operator"
)
"""What to do about kinds that are outdated."""
_RETRY = 2.0
"""Seconds until a server that did not respond is tried again."""


class GatewayKindsMissing(Exception):  # noqa: N818 - it names the state
    """The settings name a Gateway, and the cluster lacks a kind that routes requests to it."""


@dataclass(frozen=True, slots=True)
class GatewayKinds:
    """The kinds of the Gateway API as this cluster serves them."""

    route: KindRef
    """TLSRoute."""
    grant: KindRef
    """ReferenceGrant."""

    @property
    def outdated(self) -> str:
        """What the cluster serves only in an older version; "" if there is nothing.

        A gateway may know only the newest version: it then sees none of our routes, and nothing
        says so but the condition `Routed` that stays pending.
        """
        pairs = ((self.route, TLS_ROUTES[0]), (self.grant, REFERENCE_GRANTS[0]))
        older = [
            f"{kind.kind} as {kind.version} and not as {best.version}"
            for kind, best in pairs
            if kind.version != best.version
        ]
        if not older:
            return ""
        return (
            f"the cluster serves {', '.join(older)}: a gateway that knows only the newer version "
            "does not see these objects, and a later release of Cloister will not write them"
        )


async def find_gateway_kinds(client: KubeClient) -> GatewayKinds:
    """Find the kinds; a server that does not respond is tried again.

    Raises
    ------
    GatewayKindsMissing
        When the cluster lacks a kind, or serves only versions that are not supported.
    KubeError
        When the server refuses.
    """
    return GatewayKinds(
        route=await _served(client, TLS_ROUTES), grant=await _served(client, REFERENCE_GRANTS)
    )


async def _served(client: KubeClient, versions: tuple[KindRef, ...]) -> KindRef:
    """Return the best version that is served."""
    crd = f"{versions[0].plural}.{versions[0].group}"
    known = ", ".join(each.version for each in versions)
    try:
        served = await _versions(client, crd)
    except NotFound:
        raise GatewayKindsMissing(
            f"gateway: the cluster has no {versions[0].kind} ({crd}); install the CRDs of the "
            f"Gateway API, with {versions[0].kind} in one of the versions {known}, or leave out "
            "the setting gateway"
        ) from None
    for each in versions:
        if each.version in served:
            return each
    found = ", ".join(sorted(served)) or "nothing"
    raise GatewayKindsMissing(
        f"gateway: the cluster serves {versions[0].kind} as {found}, and one of {known} is needed; "
        "install other CRDs of the Gateway API, or leave out the setting gateway"
    )


async def _versions(client: KubeClient, crd: str) -> set[str]:
    """Read which versions of a kind are served."""
    while True:
        try:
            body = await client.get(CUSTOM_RESOURCE_DEFINITION, crd)
        except Unavailable as error:
            logger.warning("cannot read %s: %s", crd, error)
            await asyncio.sleep(_RETRY)
        else:
            return {each["name"] for each in body["spec"]["versions"] if each["served"]}
