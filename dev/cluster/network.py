"""The node's network: a namespace of its own, linked to this machine by a veth pair.

Each cluster with a node has its own namespace, address ranges and rules, so that several clusters
can coexist; everything is deleted with the namespace. Needs root.
"""

import ipaddress
import json
import subprocess
from pathlib import Path

from dev.cluster.layout import LocalClusterError, Record

INDEXES = range(1, 250)
"""Ranges 10.201.N.0/24 (link), 10.202.N.0/24 (Pods), 10.203.N.0/24 (Services)."""


def _run(*command: str, check: bool = True, stdin: str | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, input=stdin, check=False)
    if check and done.returncode != 0:
        raise LocalClusterError(f"{' '.join(command)} failed: {done.stderr.strip()}")
    return done.stdout


def namespace_of(name: str) -> str:
    """Return the network namespace of a cluster's node."""
    return f"cloister-{name}"


def _device(index: int) -> str:
    return f"cloister{index}"


def table_of(name: str) -> str:
    """Return the nftables table of a cluster on this machine; nftables allows no hyphens."""
    return f"cloister_{name.replace('-', '_')}"


def taken_indexes() -> set[int]:
    """List the numbers whose address ranges this machine already has a route to."""
    routes = json.loads(_run("ip", "-json", "route", "show", "table", "all") or "[]")
    ours = [ipaddress.ip_network(f"10.{second}.0.0/16") for second in (201, 202, 203)]
    taken: set[int] = set()
    for route in routes:
        try:
            network = ipaddress.ip_network(route.get("dst", "default"), strict=False)
        except ValueError:
            continue
        for range_ in ours:
            if network.version == range_.version and network.prefixlen and network.overlaps(range_):
                whole = network.prefixlen < 24  # noqa: PLR2004 - ours are of 24 bits
                number = int(network.network_address) >> 8 & 0xFF
                taken.update(INDEXES if whole else [number])
    return taken


def choose_index(remembered: set[int]) -> int:
    """Choose the number of a new cluster's address ranges, none of which is in use.

    Raises
    ------
    LocalClusterError
        When all are used, as where a route of the machine covers them.
    """
    taken = taken_indexes() | remembered
    for index in INDEXES:
        if index not in taken:
            return index
    raise LocalClusterError(
        "no free address range: the cluster takes one of 10.201.N.0/24, 10.202.N.0/24 and "
        "10.203.N.0/24, and this machine's routes cover all of them"
    )


def set_up(record: Record, *, resolver: bool) -> None:
    """Create the namespace, the link and the rules, as far as they are missing.

    Parameters
    ----------
    resolver
        Whether programs in the node query the cluster's DNS instead of a resolver on
        this machine's loopback, which they cannot reach.

    Raises
    ------
    LocalClusterError
        When a step fails.
    """
    namespace = namespace_of(record.name)
    if not Path(f"/run/netns/{namespace}").exists():
        _run("ip", "netns", "add", namespace)
    if not _linked(record):
        _link(record, namespace)
    _rules(record, namespace, resolver=resolver)


def _linked(record: Record) -> bool:
    inside = _run(
        "ip", "-n", namespace_of(record.name), "-json", "addr", "show", "dev", "eth0", check=False
    )
    outside = _run("ip", "-json", "addr", "show", "dev", _device(record.index), check=False)
    return record.node_address in inside and record.host_address in outside


def _link(record: Record, namespace: str) -> None:
    device = _device(record.index)
    _run("ip", "link", "delete", device, check=False)
    _run("ip", "link", "add", device, "type", "veth", "peer", "name", "eth0", "netns", namespace)
    _run("ip", "addr", "add", f"{record.host_address}/24", "dev", device)
    _run("ip", "link", "set", device, "up")
    for command in (
        ("link", "set", "lo", "up"),
        ("addr", "add", f"{record.node_address}/24", "dev", "eth0"),
        ("link", "set", "eth0", "up"),
        ("route", "replace", "default", "via", record.host_address),
    ):
        _run("ip", "-n", namespace, *command)
    for destination in (record.pod_range, record.service_range):
        _run("ip", "route", "replace", destination, "via", record.node_address, "dev", device)


def _rules(record: Record, namespace: str, *, resolver: bool) -> None:
    """Masquerade Pods as this machine, and redirect the node's DNS queries to the cluster's DNS."""
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    table = table_of(record.name)
    elsewhere = f'oifname != "{_device(record.index)}"'
    outside = f"""
table ip {table} {{}}
delete table ip {table}
table ip {table} {{
  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr {{ {record.link_range}, {record.pod_range} }} {elsewhere} masquerade
  }}
}}
"""
    _run("nft", "-f", "-", stdin=outside)
    inside = f"""
table ip cloister {{}}
delete table ip cloister
table ip cloister {{
  chain output {{
    type nat hook output priority -110; policy accept;
    {_dns_rules(record) if resolver else ""}
  }}
  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    oifname "eth0" ip saddr 127.0.0.0/8 masquerade
  }}
}}
"""
    enter = ("nsenter", f"--net=/run/netns/{namespace}", "--")
    _run(*enter, "nft", "-f", "-", stdin=inside)
    _run(
        *enter, "sysctl", "-q", "-w", "net.ipv4.ip_forward=1", "net.ipv4.conf.all.route_localnet=1"
    )


def _dns_rules(record: Record) -> str:
    return "\n    ".join(
        f"ip daddr 127.0.0.0/8 {protocol} dport 53 dnat to {record.host_address}"
        for protocol in ("udp", "tcp")
    )


def tear_down(name: str) -> None:
    """Remove the link, the rules and the namespace; idempotent.

    Parameters
    ----------
    name
        Name of the cluster; its record may be lost.
    """
    _run("nft", "delete", "table", "ip", table_of(name), check=False)
    file = Path(f"/run/netns/{namespace_of(name)}")
    if file.exists():
        # One end of the link is inside, so both are deleted with the namespace.
        _run("ip", "-n", file.name, "link", "delete", "eth0", check=False)
        _run("ip", "netns", "delete", file.name, check=False)
        # A reboot deletes the namespace, but not its file.
        file.unlink(missing_ok=True)
