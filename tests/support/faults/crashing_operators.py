"""Operators behind the faulty proxy that crash after a chosen write, one after the other.

The next operator is started before the last one crashes, so that its start costs no time; it leads
as soon as the Lease is deleted.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cloister_clients.kube.kinds import LEASE
from dev.cluster import Cluster
from tests.support.cluster.accounts import account_user
from tests.support.cluster.direct_client import DirectClient
from tests.support.cluster.gateway_crds import install_gateway_crds
from tests.support.faults.fault_kinds import Fault
from tests.support.faults.faulty_proxy import FaultyProxy, ProxyPort, faulty_proxy
from tests.support.programs.operator import Installation, OperatorProcess, operator_lock
from tests.support.stand_ins.gateway_controller import SimulatedGateway
from tests.support.stand_ins.nodes import SimulatedNodes
from tests.support.waiting import until_sync

__all__ = ["QUICK_LEASE", "LeaderSuccession", "ProxiedInstallation", "proxied_installation"]

QUICK_LEASE = {"durationSeconds": 10, "renewSeconds": 8, "retrySeconds": 0.2}
"""Lease times: a standby retries often, and a busy machine costs no leader its Lease."""


@dataclass(frozen=True)
class ProxiedInstallation:
    """An installation whose operators use the proxy."""

    installation: Installation
    """The installation; no operator runs yet."""
    proxy: FaultyProxy
    """The proxy."""
    direct: DirectClient
    """Client of the API server without proxy."""
    nodes: SimulatedNodes
    """The simulated nodes."""

    def operator(self, name: str) -> OperatorProcess:
        """Start an operator with a proxy port of that name."""
        return self.installation.operator(kubeconfig=self.proxy.open_port(name).kubeconfig)


@contextlib.contextmanager
def proxied_installation(
    cluster: Cluster, folder: Path, settings: dict[str, Any] | None = None, **nodes: Any
) -> Iterator[ProxiedInstallation]:
    """Create an installation behind a faulty proxy, with simulated nodes, until the block ends.

    Parameters
    ----------
    settings
        Additional settings of the operator; None = none. With a gateway the CRDs
        of the Gateway API are installed, and its controller is simulated.
    nodes
        Arguments of `SimulatedNodes`.
    """
    usual = {"claimAgeSeconds": 0, "lease": QUICK_LEASE, "workers": 64}
    with operator_lock(cluster.name), faulty_proxy(cluster.kubeconfig, folder) as proxy:
        installed = Installation(cluster, folder, usual | (settings or {}))
        proxy.user = account_user("operator", installed.system)
        direct = DirectClient(cluster.kubeconfig)
        # Admission policies let the cluster's own components alone write the status of Pods.
        node = DirectClient(
            cluster.kubeconfig, user="system:kube-scheduler", groups="system:masters"
        )
        played = SimulatedNodes(node, **nodes)
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
            node.close()
            direct.close()


@dataclass
class LeaderSuccession:
    """Operators of one installation: a leader and a standby."""

    installation: Installation
    """The installation."""
    proxy: FaultyProxy
    """The proxy."""
    direct: DirectClient
    """Client of the API server without proxy."""
    _standby: tuple[ProxyPort, OperatorProcess] | None = None
    _leader: tuple[ProxyPort, OperatorProcess] | None = None
    _count: int = field(default=0)

    @property
    def leader_name(self) -> str:
        """The proxy port of the leader."""
        assert self._leader is not None
        return self._leader[0].name

    @property
    def leader(self) -> OperatorProcess:
        """The leader."""
        assert self._leader is not None
        return self._leader[1]

    def start(self) -> None:
        """Start a leader and a standby."""
        self._leader = self._start()
        self.leader.wait_until_it_leads()
        self._standby = self._start()

    def kill(self, *faults: Fault) -> None:
        """Kill the leader; the standby then leads, with these faults."""
        self.leader.kill()
        self._hand_over(*faults)

    def replace_both(self, *faults: Fault) -> None:
        """Kill both; an operator with an empty cache then leads, with these faults."""
        assert self._standby is not None
        self._standby[1].kill()
        self.leader.kill()
        self.proxy.faults = faults
        self.direct.delete(LEASE, "cloister-operator", self.installation.system)
        self._leader = self._start()
        until_sync(self._leads, what="a leader")
        self._standby = self._start()

    def _leads(self) -> bool:
        """Return whether the leader holds the Lease, even without a complete cache."""
        return self.leader.request("/readyz")[1] in {"syncing\n", "working\n"}

    def _hand_over(self, *faults: Fault) -> None:
        """Delete the dead leader's Lease; the standby leads, and another standby starts."""
        self.proxy.faults = faults
        self.direct.delete(LEASE, "cloister-operator", self.installation.system)
        assert self._standby is not None
        self._leader, self._standby = self._standby, self._start()

    def _start(self) -> tuple[ProxyPort, OperatorProcess]:
        self._count += 1
        port = self.proxy.open_port(f"operator-{self._count}")
        return port, self.installation.operator(kubeconfig=port.kubeconfig)
