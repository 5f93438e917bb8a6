"""What somebody can do by hand after the demo: printed, and run by `make demo CHECK=1`."""

import os
import shlex
import signal
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dev.chart.helm import NAMESPACE as SYSTEM
from dev.chart.local import API_CONFIG, CONTAINERS_DOMAIN
from dev.cluster import Cluster, LocalClusterError
from dev.cluster.layout import free_port
from dev.demo import manifests

PATIENCE = 120.0
"""Seconds that all commands together may take."""
SHOWN = 3000
"""Characters of what they said that an error shows."""
END = "trap 'kill $(jobs -p)' EXIT\n"
"""Ends what the commands leave in the background."""
DASHBOARD = "service/cloister-dashboard"
RETRY = "--retry 9 --retry-connrefused"
"""Of curl, since a forwarded port is there after a moment."""


@dataclass(frozen=True)
class NextSteps:
    """The commands, for bash."""

    cluster: Cluster
    authority: Path
    """CA certificate for clients of enclaves."""
    key: str
    """The admin key."""
    identifier: str
    """Of the container `web`."""
    dashboard: str
    """Address of the dashboard."""

    @cached_property
    def commands(self) -> list[str]:
        """The commands, in order."""
        ports = set(self.cluster.record.ports.values())
        api = free_port(ports)
        web = free_port(ports | {api})
        domain = f"web.{manifests.ORGANIZATION}.{CONTAINERS_DOMAIN}"
        address = f"http://127.0.0.1:{api}/api/containers"
        programs = shlex.quote(str(self.cluster.bin("kubectl").parent))
        page = f"--resolve {domain}:{web}:127.0.0.1 https://{domain}:{web}/"
        curl = 'curl -fsS -H "Authorization: Bearer $ADMIN_KEY"'
        console = int(self.dashboard.rpartition(":")[2])
        link = f"cloister session link --user {manifests.USER} --config {API_CONFIG}"
        return [
            f"export KUBECONFIG={shlex.quote(str(self.cluster.kubeconfig))}",
            f"export PATH={programs}:$PATH",
            f"export ADMIN_KEY={self.key}",
            f"kubectl port-forward -n {SYSTEM} service/cloister-api {api}:80 >/dev/null &",
            f"{curl} {RETRY} {address}",
            f"{curl} {address}/{self.identifier}",
            f"kubectl port-forward -n {manifests.NAMESPACE} service/web {web}:443 >/dev/null &",
            f"curl -fsS {RETRY} --cacert {shlex.quote(str(self.authority))} {page}",
            f"kubectl port-forward -n {SYSTEM} {DASHBOARD} {console}:80 >/dev/null &",
            f"LINK=$(kubectl exec -n {SYSTEM} deploy/cloister-api -- {link})",
            f"curl -fsS {RETRY} $LINK | grep -o 'Sign in as.*' && echo open $LINK",
            "kubectl get ctr,encl -A",
            "kubectl explain containers.cloister.dev.spec",
            f"kubectl describe ctr web -n {manifests.NAMESPACE}",
        ]

    def show(self) -> None:
        """Print them."""
        print("", *(f"  {command}" for command in self.commands), "", sep="\n", flush=True)

    def run(self) -> None:
        """Run them as somebody would, each of which must succeed.

        Raises
        ------
        LocalClusterError
            When one fails, with it and what it said; or when curl is missing.
        """
        script = END + "\n".join(self.commands)
        with subprocess.Popen(
            ["bash", "-euo", "pipefail", "-x", "-c", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as shell:
            try:
                said, _ = shell.communicate(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                os.killpg(shell.pid, signal.SIGKILL)
                said, _ = shell.communicate()
        if shell.returncode != 0 or "Hello from" not in said:
            shown = said.replace(self.key, "ADMIN_KEY")[-SHOWN:]
            raise LocalClusterError(f"the printed commands do not work:\n{shown}")
