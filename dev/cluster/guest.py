"""Build the guest, Cloister's program inside enclaves, from ``operator/guest`` into the cache.

Its module is part of the product, not of the cluster. Its bytes depend on its sources and the
pinned release of Go alone.
"""

import fcntl
import hashlib
import subprocess
import tempfile
from pathlib import Path

from dev.cluster.binaries import cache_folder, environment, go_version
from dev.cluster.layout import LocalClusterError

MODULE = Path(__file__).resolve().parents[2] / "operator" / "guest"
"""The Go module."""
SHIM = "./cmd/cloister-shim"
"""The package of the shim, a program of its own since it has Caddy in it."""
REPRODUCIBLE = ("-trimpath", "-buildvcs=false", "-ldflags=-s -w -buildid=")
"""Flags that make a build depend on the sources and the version of Go alone."""
SHOWN = 3000
"""Characters of a failed build that the error shows."""


def guest_binary(name: str = "guest", package: str = ".", *, root: str = "") -> Path:
    """Return the path of the guest; build it when these sources were not built before.

    Parameters
    ----------
    name
        Name of the program; tests use another one of the module.
    root
        Where it finds the measurement in place of ``/.cloister``, for tests outside of Pods: the
        name then has to be another one.

    Raises
    ------
    LocalClusterError
        When it cannot be built.
    """
    target = cache_folder() / "bin" / f"guest-{_key()}" / name
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
                build(MODULE, Path(scratch) / name, package, root=root).rename(target)
    return target


def shim_binary(name: str = "cloister-shim", *, root: str = "") -> Path:
    """Return the path of the shim, as `guest_binary` that of the guest."""
    return guest_binary(name, SHIM, root=root)


def build(
    module: Path,
    target: Path,
    package: str = ".",
    *,
    architecture: str = "",
    system: str = "",
    root: str = "",
) -> Path:
    """Build the guest, or another program that depends on its sources alone.

    Parameters
    ----------
    architecture
        Go's name of the architecture; "" = this machine's.
    system
        Go's name of the operating system; "" = this machine's.
    root
        As of `guest_binary`.

    Raises
    ------
    LocalClusterError
        When the build fails; with the compiler's messages.
    """
    go_version()
    other_target = {"GOARCH": architecture, "GOOS": system}
    other = f" -X cloister.dev/guest/internal/foundation/measured.root={root}" if root else ""
    done = subprocess.run(
        [
            "go",
            "build",
            *REPRODUCIBLE[:-1],
            f"{REPRODUCIBLE[-1]}{other}",
            "-o",
            str(target),
            package,
        ],
        cwd=module,
        env=environment() | {name: value for name, value in other_target.items() if value},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise LocalClusterError(f"building {target.name} failed:\n{done.stderr[-SHOWN:]}")
    return target


def _key() -> str:
    """Hash the inputs of the build."""
    digest = hashlib.sha256(repr((go_version(), REPRODUCIBLE)).encode())
    for path in sorted(MODULE.rglob("*")):
        named = path.suffix == ".go" or path.name in {"go.mod", "go.sum"}
        if named and not path.name.endswith("_test.go"):
            content = path.read_bytes()
            digest.update(f"{path.relative_to(MODULE)} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:12]
