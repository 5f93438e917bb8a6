"""The bridge of a local cluster, and the sweeping of what an interrupted run left behind."""

import contextlib
import subprocess
from pathlib import Path

from dev.cluster.layout import Layout

__all__ = ["remove_bridge", "remove_mounts", "remove_proxy_rules", "set_up_bridge"]


def set_up_bridge(layout: Layout) -> None:
    """Make the cluster's bridge with the node's address; harmless when it is there."""
    if not Path("/sys/class/net", layout.bridge).exists():
        _ip("link", "add", layout.bridge, "type", "bridge")
    _ip("address", "replace", f"{layout.node_address}/24", "dev", layout.bridge)
    _ip("link", "set", layout.bridge, "up")
    for setting in ("net/ipv4/ip_forward", f"net/ipv4/conf/{layout.bridge}/forwarding"):
        with contextlib.suppress(OSError):
            Path("/proc/sys", setting).write_text("1")


def remove_bridge(layout: Layout) -> None:
    """Remove the bridge and what is plugged into it."""
    ports = Path("/sys/class/net", layout.bridge, "brif")
    for port in ports.iterdir() if ports.exists() else ():
        _ip("link", "delete", port.name, check=False)
    _ip("link", "delete", layout.bridge, check=False)


def remove_proxy_rules() -> None:
    """Remove the nftables tables of kube-proxy and the port mappings of the CNI plugin."""
    for family in ("ip", "ip6"):
        subprocess.run(
            ["nft", "delete", "table", family, "kube-proxy"], check=False, capture_output=True
        )


def remove_mounts(folder: Path) -> None:
    """Unmount all that is mounted below a folder, the deepest first, also namespaces of Pods."""
    for _ in range(3):
        mounts = _mounts_below(folder)
        if not mounts:
            return
        for mount in mounts:
            subprocess.run(["umount", "-l", mount], check=False, capture_output=True)


def _mounts_below(folder: Path) -> list[str]:
    prefix = f"{folder}/"
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    points = [line.split()[4].encode().decode("unicode_escape") for line in lines]
    return sorted((point for point in points if point.startswith(prefix)), key=len, reverse=True)


def _ip(*arguments: str, check: bool = True) -> None:
    subprocess.run(["ip", *arguments], check=check, capture_output=True)
