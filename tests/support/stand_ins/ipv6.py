"""IPv6 set up manually through a node and an enclave, so that only the packet filter blocks it.

A single-stack cluster gives Pods no IPv6. Here both an ordinary Pod and an enclave get an address
and a route, and so does the container inside: what a dual-stack node, or
somebody with privileges over the Pod's network, could cause.
"""

import contextlib
import json
import subprocess
from pathlib import Path
from typing import Any

from tests.support.stand_ins.internet import Internet

__all__ = ["connect_pod", "lay_through", "process_of", "run_in", "without_filter"]

_NODE = "2001:4860:4860::"
"""The prefix of Pods; its first address is the node's."""
_INNER = "2001:4860:4861::"
"""The prefix of an enclave's networks."""
_GATEWAY = "fe80::1"


def process_of(pod: dict[str, Any], *command: bytes) -> int:
    """Return a process of a Pod on this machine.

    Parameters
    ----------
    pod
        The Pod, as the API server has it.

    Raises
    ------
    AssertionError
        When there is none.
    """
    uid = pod["metadata"]["uid"]
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            groups = (folder / "cgroup").read_text().replace("_", "-")
            if words[: len(command)] == list(command) and uid in groups:
                return int(folder.name)
    raise AssertionError(f"no {command} in {pod['metadata']['name']}")


def run_in(process: int, *command: str) -> str:
    """Run a command of this machine in the network namespace of a process."""
    enter = ("nsenter", f"--target={process}", "--net", "--")
    done = subprocess.run([*enter, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def connect_pod(internet: Internet, process: int, number: int) -> None:
    """Return a Pod an IPv6 route to the emulated internet, as a dual-stack node would.

    Parameters
    ----------
    number
        The last part of its address, at least 2 and unique per Pod.
    """
    internet.ip("address", "replace", f"{_NODE}1/64", "dev", "cni0", "nodad")
    ip = ("ip", "-6")
    run_in(process, *ip, "address", "replace", f"{_NODE}{number:x}/64", "dev", "eth0", "nodad")
    run_in(process, *ip, "route", "replace", "default", "via", f"{_NODE}1")
    internet.ip("route", "replace", f"{_INNER}/64", "via", f"{_NODE}{number:x}")


def lay_through(net: int, container: int) -> None:
    """Set up a route from a container through the Pod, with everything that forwarding needs.

    Parameters
    ----------
    container
        A process in the container's, which has a default route over IPv4.
    """
    (route,) = json.loads(run_in(container, "ip", "-json", "route", "show", "default"))
    device = route["dev"]
    links = json.loads(run_in(net, "ip", "-json", "-4", "address", "show"))
    (bridge,) = [
        each
        for each in links
        if any(found["local"] == route["gateway"] for found in each["addr_info"])
    ]
    ip, name = ("ip", "-6"), bridge["ifname"]
    run_in(net, *ip, "address", "replace", f"{_GATEWAY}/64", "dev", name, "nodad")
    run_in(net, *ip, "route", "replace", f"{_INNER}/64", "dev", name)
    run_in(net, "sysctl", "-qw", "net.ipv6.conf.all.forwarding=1")
    run_in(container, *ip, "address", "replace", "fe80::2/64", "dev", device, "nodad")
    run_in(container, *ip, "address", "replace", f"{_INNER}2/64", "dev", device, "nodad")
    run_in(container, *ip, "route", "replace", "default", "via", _GATEWAY, "dev", device)


def without_filter(net: int) -> None:
    """Remove the packet filter of an enclave, which nothing in the enclave can do."""
    run_in(net, "nft", "flush", "ruleset")
