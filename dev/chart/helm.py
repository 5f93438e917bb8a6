"""Runs our Helm, which is built as the programs of the cluster are."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from dev.cluster import LocalClusterError
from dev.cluster.binaries import binary

NAMESPACE = "cloister-system"
"""Namespace of an installation."""
RELEASE = "cloister"
"""Name of its release."""


@dataclass(frozen=True, slots=True)
class Helm:
    """Helm with a home of its own, so that nothing of this machine's settings counts."""

    folder: Path
    """Its home."""
    kubeconfig: Path | None = None
    """Way to a cluster; None = it sees none."""
    namespace: str = NAMESPACE
    release: str = RELEASE

    def run(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a command, and return what it said; it may have failed.

        Raises
        ------
        LocalClusterError
            When Helm cannot be built.
        """
        return subprocess.run(
            [binary("helm"), *arguments, "--namespace", self.namespace],
            env={
                "HOME": str(self.folder),
                "KUBECONFIG": str(self.kubeconfig or self.folder / "none"),
            },
            capture_output=True,
            text=True,
            check=False,
        )

    def output(self, *arguments: str | Path) -> str:
        """Run a command, and return its output.

        Raises
        ------
        LocalClusterError
            When it fails, with what it said; or when Helm cannot be built.
        """
        done = self.run(*arguments)
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip()
            raise LocalClusterError(f"helm {arguments[0]} failed: {said}")
        return done.stdout
