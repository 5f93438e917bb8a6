"""Address ranges that are not the public internet: nothing reaches them on a tenant's behalf.

The one list for the guest's packet filter and name server, the NetworkPolicy of enclaves, and the
guard of outgoing connections. The guest's copy is generated (``python -m dev.house generate``);
what only one of them needs, such as the ranges of a cluster, is added there.

Sources: IANA's special-purpose address registries (RFC 6890), and the addresses at which clouds
serve metadata, credentials and configuration to their machines.
"""

from ipaddress import IPv4Network, IPv6Network
from typing import Final

__all__ = ["BLOCKED_IPV4", "BLOCKED_IPV6", "GLOBAL_UNICAST", "IPV4_PURPOSES"]

IPV4_PURPOSES: Final = {
    "0.0.0.0/8": "this network (RFC 791)",
    "10.0.0.0/8": "private (RFC 1918)",
    "100.64.0.0/10": "shared (RFC 6598); Alibaba Cloud's metadata at 100.100.100.200",
    "127.0.0.0/8": "loopback (RFC 1122)",
    "168.63.129.16/32": "Azure's WireServer: a public address that serves the node's own secrets",
    "169.254.0.0/16": "link-local (RFC 3927); nearly every cloud's metadata and credentials",
    "172.16.0.0/12": "private (RFC 1918)",
    "192.0.0.0/24": "protocol assignments (RFC 6890); Oracle Cloud's older metadata at 192.0.0.192",
    "192.0.2.0/24": "documentation (RFC 5737)",
    "192.88.99.0/24": "relays of 6to4, withdrawn (RFC 7526)",
    "192.168.0.0/16": "private (RFC 1918)",
    "198.18.0.0/15": "benchmarking (RFC 2544)",
    "198.51.100.0/24": "documentation (RFC 5737)",
    "203.0.113.0/24": "documentation (RFC 5737)",
    "224.0.0.0/4": "multicast (RFC 5771)",
    "240.0.0.0/4": "reserved (RFC 1112) and broadcast",
}
"""What each blocked IPv4 range is, in order, disjoint."""

BLOCKED_IPV4: Final = tuple(map(IPv4Network, IPV4_PURPOSES))
"""All blocked ranges of IPv4."""

GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
"""All of IPv6 that is assigned to the public internet (RFC 4291, section 2.4). What lies outside is
blocked: private and link-local addresses, where clouds have their metadata (``fd00:ec2::254``,
``fd20:ce::254``), and NAT64 (``64:ff9b::/96``), which carries an IPv4 address."""

BLOCKED_IPV6: Final = tuple(
    IPv6Network(text)
    for text in (
        "2001::/23",  # protocol assignments (RFC 2928); Teredo carries an IPv4 address
        "2001:db8::/32",  # documentation (RFC 3849)
        "2002::/16",  # 6to4 carries an IPv4 address (RFC 3056)
        "3fff::/20",  # documentation (RFC 9637)
    )
)
"""Blocked ranges within `GLOBAL_UNICAST`, in order, disjoint."""
