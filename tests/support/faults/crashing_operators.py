"""Operators that die after a certain write, one after the other, behind the faulty proxy.

The next operator is started before the last one dies, so that its start costs no time; it leads as
soon as the dead one's Lease is taken away.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cloister_clients.kube.kinds import LEASE
from dev.cluster import Cluster
from tests.support.cluster.direct_client import DirectClient
from tests.support.cluster.gateway_crds import install_gateway_crds
from tests.support.faults.fault_kinds import Fault
from tests.support.faults.faulty_proxy import Door, FaultyProxy, faulty_proxy
from tests.support.programs.operator import Installation, OperatorProcess, operator_lock
from tests.support.stand_ins.gateway_controller import SimulatedGateway
from tests.support.stand_ins.nodes import SimulatedNodes
from tests.support.waiting import until_sync

__all__ = ["QUICK_LEASE", "LeaderSuccession", "ProxiedInstallation", "proxied_installation"]

QUICK_LEASE = {"durationSeconds": 10, "renewSeconds": 8, "retrySeconds": 0.2}
"""Times of the Lease: a standby looks often; a busy machine costs no leader its Lease."""


@dataclass(frozen=True)
class ProxiedInstallation:
    """An installation whose operators come through the proxy."""

    installation: Installation
    """The installation; no operator runs yet."""
    proxy: FaultyProxy
    """The proxy."""
    direct: DirectClient
    """The server itself."""
    nodes: SimulatedNodes
    """The nodes, which play."""

    def operator(self, name: str) -> OperatorProcess:
        """Start an operator with a door of that name."""
        return self.installation.operator(kubeconfig=self.proxy.door(name).kubeconfig)


@contextlib.contextmanager
def proxied_installation(
    cluster: Cluster, folder: Path, settings: dict[str, Any] | None = None, **nodes: Any
) -> Iterator[ProxiedInstallation]:
    """Make an installation behind a faulty proxy, with played nodes, until the block ends.

    Parameters
    ----------
    cluster
        Where to.
    folder
        Files of the installation.
    settings
        Settings of the operator beside the usual ones; None = no others. With a gateway the kinds
        of the Gateway API are installed, and one is played.
    nodes
        What `SimulatedNodes` takes.
    """
    usual = {"claimAgeSeconds": 0, "lease": QUICK_LEASE, "workers": 64}
    with operator_lock(cluster.name), faulty_proxy(cluster.kubeconfig, folder) as proxy:
        installed = Installation(cluster, folder, usual | (settings or {}))
        direct = DirectClient(cluster.kubeconfig)
        played = SimulatedNodes(direct, **nodes)
        gateway = SimulatedGateway(direct, installed.system)
        try:
            installed.prepare()
            installed.create_organization()
            played.start()
            if "gateway" in installed.settings:
                install_gateway_crds(cluster)
                gateway.start()
            yield ProxiedInstallation(installed, proxy, direct, played)
        finally:
            proxy.faults = []
            installed.end()
            gateway.stop()
            played.stop()
            direct.close()


@dataclass
class LeaderSuccession:
    """Operators of one installation, of which one leads and one stands by."""

    installation: Installation
    """The installation."""
    proxy: FaultyProxy
    """The proxy."""
    direct: DirectClient
    """The server itself."""
    _standby: tuple[Door, OperatorProcess] | None = None
    _leader: tuple[Door, OperatorProcess] | None = None
    _count: int = field(default=0)

    @property
    def door(self) -> str:
        """The door of the one that leads."""
        assert self._leader is not None
        return self._leader[0].name

    @property
    def leader(self) -> OperatorProcess:
        """The one that leads."""
        assert self._leader is not None
        return self._leader[1]

    def begin(self) -> None:
        """Let the first one lead and a second one stand by."""
        self._leader = self._start()
        self.leader.wait_until_it_leads()
        self._standby = self._start()

    def kill(self, *faults: Fault) -> None:
        """Kill the leader; the standby leads then, and meets these faults."""
        self.leader.kill()
        self._hand_over(*faults)

    def renew(self, *faults: Fault) -> None:
        """Kill both; one that knows nothing of the cluster yet leads then, with these faults."""
        assert self._standby is not None
        self._standby[1].kill()
        self.leader.kill()
        self.proxy.faults = faults
        self.direct.delete(LEASE, "cloister-operator", self.installation.system)
        self._leader = self._start()
        until_sync(self._leads, what="one that leads")
        self._standby = self._start()

    def _leads(self) -> bool:
        """Return whether the leader leads, whatever it knows."""
        return self.leader.request("/readyz")[1] in {"syncing\n", "working\n"}

    def _hand_over(self, *faults: Fault) -> None:
        """Take the dead one's Lease away; the standby leads, and another one stands by."""
        self.proxy.faults = faults
        self.direct.delete(LEASE, "cloister-operator", self.installation.system)
        assert self._standby is not None
        self._leader, self._standby = self._standby, self._start()

    def _start(self) -> tuple[Door, OperatorProcess]:
        self._count += 1
        door = self.proxy.door(f"operator-{self._count}")
        return door, self.installation.operator(kubeconfig=door.kubeconfig)
