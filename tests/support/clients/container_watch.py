"""``kubectl get ctr --watch`` in the background: each state that a Container has shown."""

import contextlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.programs.operator import Installation
from tests.support.waiting import until_sync

__all__ = ["ContainerWatch", "watching"]


@dataclass
class ContainerWatch:
    """Output of a watch, which misses no change, as polling may."""

    path: Path
    """File of the output."""

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The columns of each state, in order; ``<none>`` = the field is missing."""
        whole, _, _ = self.path.read_text().rpartition("\n")
        return [tuple(line.split()) for line in whole.splitlines()]


@contextlib.contextmanager
def watching(installation: Installation, name: str, *fields: str) -> Iterator[ContainerWatch]:
    """Watch a Container until the block ends, which begins after the first row.

    Parameters
    ----------
    fields
        The columns, as JSON paths.
    """
    columns = ",".join(f"C{number}:{path}" for number, path in enumerate(fields))
    kubectl = [str(installation.cluster.bin("kubectl"))]
    kubectl += [f"--kubeconfig={installation.cluster.kubeconfig}", "-n", installation.namespace]
    kubectl += ["get", "ctr", name, "--watch", "--no-headers", "-o", f"custom-columns={columns}"]
    watch = ContainerWatch(installation.folder / f"watch-{name}.txt")
    with watch.path.open("w") as output, subprocess.Popen(kubectl, stdout=output) as process:
        try:
            until_sync(lambda: watch.rows, what="the first row of the watch")
            yield watch
        finally:
            process.terminate()
