"""An emulated public internet on a cluster's node: responding addresses, and a name server.

The addresses are on the loopback device of the node's own network namespace, so that Pods reach
them as they reach the internet, while this machine does not.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from dev.cluster import Cluster
from dev.cluster.guest import guest_binary
from dev.cluster.network import namespace_of
from tests.support.builders.network_matrix import ALLOWED_NAME

__all__ = ["ALLOWED", "IPV6", "METADATA", "NAMES", "OTHERS", "Internet", "emulated_internet"]

ALLOWED = "93.184.216.34"
"""Address of the host in allowlists."""
OTHERS = ("93.184.216.35", "8.8.4.4")
"""Public addresses that are not in allowlists."""
IPV6 = "2620:fe::fe"
"""A public IPv6 address with the same server."""
METADATA = "169.254.169.254"
"""Address of clouds' instance metadata services."""
RESOLVER = "93.184.216.53"
"""The name server."""
NAMES = {
    ALLOWED_NAME: (ALLOWED,),
    "other.example": (OTHERS[0],),
    "rebind.example": ("10.0.0.1", METADATA, "127.0.0.1"),
}
"""Its response."""


@dataclass
class Internet:
    """A running emulation."""

    namespace: str
    """Network namespace of the node."""
    resolver: str = RESOLVER
    """Name server for enclaves."""
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    """Started processes."""

    def ip(self, *arguments: str) -> None:
        """Run ip(8) in the node's network namespace."""
        subprocess.run(["ip", "-n", self.namespace, *arguments], check=True, capture_output=True)

    def start(self, *command: str) -> None:
        """Start a program in the node's network namespace."""
        enter = ("nsenter", f"--net=/run/netns/{self.namespace}", "--")
        self.processes.append(
            subprocess.Popen(
                [*enter, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        )


@contextmanager
def emulated_internet(cluster: Cluster, folder: Path) -> Iterator[Internet]:
    """Add the addresses and start their servers; remove everything at the end."""
    made = Internet(namespace_of(cluster.name))
    addresses = (ALLOWED, *OTHERS, METADATA, RESOLVER)
    try:
        for address in addresses:
            made.ip("address", "replace", f"{address}/32", "dev", "lo")
        answering = (*addresses, cluster.record.node_address)
        made.ip("address", "replace", f"{IPV6}/128", "dev", "lo", "nodad")
        places = [f"{each}:{port}" for each in (*answering, f"[{IPV6}]") for port in (80, 443)]
        made.start(str(guest_binary("testprogram", "./testprogram")), "serve", "", *places)
        hosts = "".join(
            f"        {address} {name}\n" for name, found in NAMES.items() for address in found
        )
        corefile = folder / "Corefile"
        corefile.write_text(
            f".:53 {{\n    bind {RESOLVER}\n    hosts {{\n{hosts}        ttl 1\n    }}\n}}\n"
        )
        made.start(str(cluster.bin("coredns")), "-conf", str(corefile))
        yield made
    finally:
        for process in made.processes:
            process.kill()
            process.wait()
        for address in (*(f"{each}/32" for each in addresses), f"{IPV6}/128"):
            subprocess.run(
                ["ip", "-n", made.namespace, "address", "delete", address, "dev", "lo"],
                check=False,
                capture_output=True,
            )
