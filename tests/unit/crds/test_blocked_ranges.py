"""The one list of blocked ranges: all that enforce it refuse the same addresses."""

import ipaddress
import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cloister_clients.address_guard import is_public
from cloister_crds.blocked_ranges import BLOCKED_IPV4, BLOCKED_IPV6, GLOBAL_UNICAST
from cloister_operator.enclave.network.network_policy import build_network_policy

GUEST_LIST = Path("operator/guest/internal/network/netplan/zblockedranges.go")
METADATA_IPV4 = {
    "AWS, Azure, Google, Oracle, DigitalOcean, Hetzner, OpenStack, IBM": "169.254.169.254",
    "AWS time and name service": "169.254.169.253",
    "AWS credentials of ECS tasks": "169.254.170.2",
    "AWS credentials of EKS Pods": "169.254.170.23",
    "Azure WireServer": "168.63.129.16",
    "Alibaba": "100.100.100.200",
    "Oracle, older": "192.0.0.192",
    "Tencent": "169.254.0.23",
    "Scaleway": "169.254.42.42",
    "6to4 relays": "192.88.99.1",
}
METADATA_IPV6 = {
    "AWS": "fd00:ec2::254",
    "AWS credentials of EKS Pods": "fd00:ec2::23",
    "Google": "fd20:ce::254",
    "Scaleway": "fd00:42::42",
    "OpenStack": "fe80::a9fe:a9fe",
    "NAT64": "64:ff9b::a9fe:a9fe",
    "6to4": "2002:a9fe:a9fe::1",
}


def policy_admits(text: str) -> bool:
    """Return whether the NetworkPolicy of enclaves lets packets to an address out on any port."""
    address = ipaddress.ip_address(text)
    (open_rule,) = (
        rule
        for rule in build_network_policy("acme", "org-acme")["spec"]["egress"]
        if "ports" not in rule
    )
    blocks = [each["ipBlock"] for each in open_rule["to"]]
    return any(
        address in ipaddress.ip_network(block["cidr"])
        and all(address not in ipaddress.ip_network(each) for each in block["except"])
        for block in blocks
    )


def guest_admits(text: str) -> bool:
    """Return whether the guest's generated list leaves an IPv4 address open."""
    listed = re.findall(r'MustParsePrefix\("(.+)"\)', GUEST_LIST.read_text(encoding="utf-8"))
    assert len(listed) == len(BLOCKED_IPV4)
    address = ipaddress.ip_address(text)
    return all(address not in ipaddress.ip_network(each) for each in listed)


@pytest.mark.parametrize("text", METADATA_IPV4.values(), ids=METADATA_IPV4.keys())
def test_all_three_refuse_metadata_addresses(text: str) -> None:
    admitted = (guest_admits(text), policy_admits(text), is_public(ipaddress.ip_address(text)))
    assert admitted == (False, False, False)


@pytest.mark.parametrize("text", METADATA_IPV6.values(), ids=METADATA_IPV6.keys())
def test_metadata_addresses_of_ipv6_are_refused(text: str) -> None:
    """The guest lets no IPv6 pass at all."""
    assert (policy_admits(text), is_public(ipaddress.ip_address(text))) == (False, False)


@given(st.one_of(st.ip_addresses(v=4), *(st.ip_addresses(network=n) for n in BLOCKED_IPV4)))
@example(ipaddress.ip_address("8.8.8.8"))
@example(ipaddress.ip_address("168.63.129.17"))
def test_all_three_agree_on_every_address(address: ipaddress.IPv4Address) -> None:
    public, text = is_public(address), str(address)
    assert guest_admits(text) == policy_admits(text) == public
    assert address.is_global or not public


@given(st.ip_addresses(v=6))
def test_what_is_not_global_in_ipv6_is_refused(address: ipaddress.IPv6Address) -> None:
    assert address.is_global or not policy_admits(str(address))


def test_the_ranges_are_in_order_and_disjoint() -> None:
    assert all(one[-1] < other[0] for one, other in pairwise(BLOCKED_IPV4))
    assert all(one[-1] < other[0] for one, other in pairwise(BLOCKED_IPV6))
    assert all(each.subnet_of(GLOBAL_UNICAST) for each in BLOCKED_IPV6)
