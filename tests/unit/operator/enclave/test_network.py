"""Addresses of an enclave's networks, the document of ``guest net``, and that of a container."""

import re
from ipaddress import IPv4Network

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister_crds.config import ContainerConfig, Egress, EnvEntry, Network, ServiceConfig, Shim
from cloister_operator.enclave.container import container_document
from cloister_operator.enclave.guest_config.measurement import unmeasured_document
from cloister_operator.enclave.guest_config.network import network_document
from cloister_operator.enclave.network.addresses import (
    BLOCKS,
    SHIM_NETWORK,
    ClusterNetwork,
    DnsResolver,
    free_block,
    plan_namespaces,
    plan_networks,
)
from dev.cluster.guest import MODULE
from tests.support.builders.enclave_plans import (
    SETTINGS,
    WEB,
    WORKER,
    config_of,
    host_of,
    plan_of,
)


def networked(*containers: tuple[str, tuple[str, ...]], target: str = "a") -> ServiceConfig:
    named = dict.fromkeys(name for _, networks in containers for name in networks)
    return config_of(
        *(
            ContainerConfig(name=name, image=WEB.image, networks=networks)
            for name, networks in containers
        ),
        networks={name: Network() for name in named},
        shim=Shim(upstream_port=80, paths=("/",), upstream_container=target),
    )


@pytest.mark.spec("44.8", "46.10")
def test_the_target_alone_is_on_the_network_of_the_shim() -> None:
    config = networked(("a", ("n",)), ("b", ("n", "m")), ("c", ()), target="b")
    rooms = plan_namespaces(config, plan_networks(config))
    attached = {each.name: [one.network for one in each.attachments] for each in rooms}
    assert attached == {"a": ["n"], "b": [SHIM_NETWORK, "n", "m"], "c": []}
    addresses = [str(one.address) for one in rooms[1].attachments]
    assert addresses == ["172.31.255.2", "172.30.0.3", "172.30.1.2"]


def test_containers_of_an_older_file_share_one_namespace_that_lets_out() -> None:
    config = config_of(WEB, WORKER, cvm_version="0.9.4")
    networks = plan_networks(config)
    (room,) = plan_namespaces(config, networks)
    assert room.containers == ("web", "Worker_1")
    assert [each.egress for each in networks] == [Egress.CLOSED, Egress.OPEN]
    assert [each.network for each in room.attachments] == [each.name for each in networks]


@settings(max_examples=50)
@given(
    st.lists(
        st.lists(st.sampled_from([f"n{number}" for number in range(32)]), unique=True, max_size=8),
        min_size=1,
        max_size=64,
    ),
    st.lists(st.sampled_from(["172.16.0.0/12", "10.0.0.0/8", "192.168.1.0/24"]), unique=True),
)
def test_addresses_are_of_one_container_and_outside_of_the_cluster(
    wanted: list[list[str]], avoid: list[str]
) -> None:
    config = networked(*((f"c{at}", tuple(each)) for at, each in enumerate(wanted)), target="c0")
    networks = {each.name: each for each in plan_networks(config)}
    rooms = plan_namespaces(config, networks.values())
    attachments = [one for room in rooms for one in room.attachments]
    assert len({each.address for each in attachments}) == len(attachments)
    for each in attachments:
        subnet = networks[each.network].subnet
        assert each.address in list(subnet.hosts())[1:]
    subnets = [each.subnet for each in networks.values() if each.name != SHIM_NETWORK]
    assert sum(subnet.num_addresses for subnet in subnets) == 256 * len(set(subnets))
    blocked = set(avoid) == {"172.16.0.0/12", "10.0.0.0/8", "192.168.1.0/24"}
    ranges = [IPv4Network(each) for each in avoid]
    block = free_block(ranges)
    assert blocked or not any(block.overlaps(each) for each in ranges)
    assert all(subnet.subnet_of(BLOCKS[0]) for subnet in subnets)


def test_only_the_shim_reaches_its_target_and_only_its_port_is_open() -> None:
    document = network_document(plan_of(WEB), SETTINGS)
    assert document["sideCars"] == [
        {
            "name": "shim",
            "uid": 65532,
            "destinations": [{"address": "172.31.255.2", "port": 8080}],
        }
    ]
    assert document["inbound"] == [8443]
    assert document["resolver"] == {"uid": 0}


def test_a_name_server_lies_in_no_network_of_an_enclave() -> None:
    around = ClusterNetwork(resolvers=(DnsResolver("172.30.9.9", 5353),))
    config = config_of(
        WEB.model_copy(update={"networks": ("n",)}), networks={"n": Network(egress=Egress.OPEN)}
    )
    plan = plan_of(config=config)
    assert network_document(plan, SETTINGS)["networks"][1]["subnet"] == "172.30.0.0/24"
    told = unmeasured_document(plan, around)["cluster"]
    assert (told["block"], told["resolvers"]) == ("172.29.0.0/16", ["172.30.9.9:5353"])


def test_the_blocks_are_those_of_the_guest() -> None:
    source = (MODULE / "internal" / "network" / "netplan" / "complete.go").read_text()
    named = re.findall(r'netip\.MustParsePrefix\("([0-9./]+)"\)', source)
    assert named == [str(each) for each in BLOCKS]


def test_home_is_that_of_the_user_unless_something_sets_it() -> None:
    assert container_document(plan_of(WEB), WEB)["keepHome"] is False
    unset = WEB.model_copy(update={"env": (EnvEntry(name="HOME"),)})
    assert container_document(plan_of(unset), unset)["keepHome"] is True
    given_one = WEB.model_copy(update={"env": (EnvEntry(name="HOME", value="/h"),)})
    assert container_document(plan_of(given_one), given_one)["keepHome"] is True
    secret = WEB.model_copy(update={"secrets": ("HOME",)})
    assert container_document(plan_of(secret), secret)["keepHome"] is True


def test_a_host_without_isolation_leaves_the_network_of_the_pod() -> None:
    plan = plan_of(WEB, host=host_of(networkIsolation="Pod"))
    document = container_document(plan, WEB)
    assert not {"network", "hostname", "lowPorts"} & document.keys()
