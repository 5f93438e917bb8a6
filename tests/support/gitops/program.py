"""A controller that runs as a process of this machine, with its log in a file."""

import contextlib
import json
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from dev.cluster import Cluster
from dev.cluster.binaries import environment, load
from tests.support.waiting import until_sync

__all__ = ["apply_crds", "module_files", "run_program"]

SHOWN = 6000
"""Characters of a log that a failed test shows."""


def module_files(name: str) -> Path:
    """Return the folder of the Go module that a program of ``versions.toml`` comes from.

    Its manifests, such as CRDs, are those of the program's version.
    """
    module = load().modules[name]
    done = subprocess.run(
        ["go", "mod", "download", "-json", module.requires],
        cwd=module.folder,
        env=environment(release=module.go),
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return Path(json.loads(done.stdout)["Dir"])


def apply_crds(cluster: Cluster, files: Iterable[Path]) -> None:
    """Apply CRDs and wait until the server serves them."""
    named = [word for each in files for word in ("-f", str(each))]
    cluster.kubectl("apply", "--server-side", *named)
    # A CRD that is brand new has no conditions yet, which kubectl takes for an error.
    wait = ("wait", "--for=condition=Established", "--timeout=10s", *named)
    until_sync(lambda: cluster.kubectl(*wait), what="the kinds of a GitOps tool")


@contextlib.contextmanager
def run_program(
    command: Sequence[str],
    log: Path,
    variables: Mapping[str, str],
    *,
    programs: Path | None = None,
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a program until the block ends.

    Parameters
    ----------
    programs
        Folder of programs that it finds first; None = those of this machine alone.
    """
    path = ":".join(filter(None, (str(programs or ""), os.environ["PATH"])))
    with log.open("ab") as sink:
        process = subprocess.Popen(
            command,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env={"PATH": path, **variables},
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(20)
