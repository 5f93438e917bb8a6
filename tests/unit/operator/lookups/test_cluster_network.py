"""What the networks of enclaves need to know about the cluster."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cloister_clients.kube import KindRef, NotFound
from cloister_clients.kube.kinds import ENDPOINT_SLICE, NODE, SERVICE_CIDR
from cloister_operator.cache.store import Store
from cloister_operator.enclave.network.addresses import DnsResolver
from cloister_operator.lookups.cluster import ClusterNetworkReader
from cloister_operator.settings import EnclaveNetworkSettings

NOW = datetime(2026, 11, 22, tzinfo=UTC)


class Server:
    """An API server with the lists that are read, which counts how often."""

    def __init__(self, *, dns: dict[str, Any] | None) -> None:
        self.dns = dns
        self.asked = 0

    async def list(self, ref: KindRef, *_: str, **__: str) -> Any:
        """Return a list."""
        self.asked += 1
        items = {
            SERVICE_CIDR: [{"spec": {"cidrs": ["10.96.0.0/12", "fd00::/112"]}}],
            ENDPOINT_SLICE: [{"endpoints": [{"addresses": ["192.0.2.7"]}]}],
        }[ref]
        return type("Page", (), {"items": items})

    async def get(self, *_: object) -> dict[str, Any]:
        """Return the Service of the DNS."""
        if self.dns is None:
            raise NotFound(404, "NotFound", "no such Service")
        return self.dns


def reader(server: Server, times: list[datetime], **settings: Any) -> ClusterNetworkReader:
    store = Store()
    node = {
        "metadata": {"name": "n", "uid": "u", "resourceVersion": "1"},
        "spec": {"podCIDRs": ["10.244.0.0/24", "fd01::/64"]},
        "status": {"addresses": [{"type": "Hostname", "address": "n"}, {"address": "192.0.2.8"}]},
    }
    store.put(NODE, node)
    given = EnclaveNetworkSettings.model_validate(settings)
    return ClusterNetworkReader(server, store, given, lambda: times[-1])  # type: ignore[arg-type]  # the lists and the GET that it needs


async def test_every_address_of_the_cluster_is_denied() -> None:
    server = Server(
        dns={"spec": {"clusterIP": "10.96.0.10", "clusterIPs": ["10.96.0.10", "fd::1"]}}
    )
    found = await reader(server, [NOW], denied=["198.51.100.0/24"]).read()
    assert set(found.denied) == {
        *("10.96.0.0/12", "192.0.2.7/32", "10.244.0.0/24", "192.0.2.8/32", "198.51.100.0/24"),
    }
    assert found.resolvers == (DnsResolver("10.96.0.10"),)


async def test_name_servers_of_the_settings_replace_those_of_the_cluster() -> None:
    found = await reader(Server(dns=None), [NOW], resolvers=["9.9.9.9"]).read()
    assert found.upstream() == ["9.9.9.9:53"]


@pytest.mark.parametrize("dns", [None, {"spec": {"clusterIP": "None"}}])
async def test_without_a_dns_service_there_are_no_name_servers(dns: dict[str, Any] | None) -> None:
    assert (await reader(Server(dns=dns), [NOW]).read()).resolvers == ()


async def test_the_cluster_network_is_read_once_a_minute() -> None:
    server, times = Server(dns=None), [NOW]
    around = reader(server, times)
    for seconds, asked in ((0, 2), (60, 2), (61, 4)):
        times.append(NOW + timedelta(seconds=seconds))
        await around.read()
        assert server.asked == asked
