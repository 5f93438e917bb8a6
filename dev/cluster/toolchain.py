"""The release of Go and the environment that everything here is built with.

Flags, architecture levels and experiments of the machine change what a compiler writes without
changing any source, so none of them reaches a build.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache

from dev.cluster.errors import LocalClusterError
from dev.cluster.versions import load

PINNED = {
    "CGO_ENABLED": "0",
    "GO111MODULE": "on",
    "GOAMD64": "v1",
    "GOARM64": "v8.0",
    "GODEBUG": "",
    "GOENV": "off",
    "GOEXPERIMENT": "",
    "GOFIPS140": "off",
    "GOFLAGS": "-buildvcs=false -mod=readonly",
    "GOWORK": "off",
    "LC_ALL": "C",
}
"""What decides about the bytes of a program beside its sources and the release of Go."""
SOURCES = (
    *("GOCACHE", "GOMODCACHE", "GOPATH"),
    *("GOPROXY", "GONOPROXY", "GOSUMDB", "GONOSUMDB", "GOPRIVATE", "GOINSECURE", "GOAUTH"),
)
"""Where this machine's Go fetches and keeps modules; go.sum says what their content is."""
PASSED = (
    *("PATH", "HOME", "TMPDIR", "XDG_CACHE_HOME", "GOTMPDIR"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    *("SSL_CERT_DIR", "SSL_CERT_FILE"),
)
"""What a build needs of its machine: programs, folders and the way to the network."""


@cache
def go_version(release: str = "") -> str:
    """Return the release of Go that builds: the one of ``versions.toml``, and no other.

    Parameters
    ----------
    release
        The one that a module names for itself; "" = the one of everything else.

    Returns
    -------
    str
        Such as ``1.26.8``. A Go of another release fetches it from the module proxy.

    Raises
    ------
    LocalClusterError
        When Go is missing, cannot fetch the release, or is too old to (before 1.21).
    """
    wanted = release or load().go
    remedy = f"install Go {wanted} (https://go.dev/dl) and put it on PATH"
    if shutil.which("go") is None:
        raise LocalClusterError(f"Go is not installed, but the cluster is built with it: {remedy}")
    done = subprocess.run(
        ["go", "env", "GOVERSION"],
        capture_output=True,
        text=True,
        env=environment(release=wanted),
        check=False,
    )
    found = done.stdout.strip()
    if found != f"go{wanted}":
        said = found or done.stderr.strip()[-500:]
        raise LocalClusterError(f"what is built needs Go {wanted}, and this is {said}: {remedy}")
    return wanted


def environment(
    *, cgo: bool = False, machine: Mapping[str, str] | None = None, release: str = ""
) -> dict[str, str]:
    """Return the whole environment of a ``go`` command.

    Parameters
    ----------
    machine
        The machine's own environment; None = that of this process.
    release
        The release of Go; "" = the one of ``versions.toml``.
    """
    machine = os.environ if machine is None else machine
    passed = {name: machine[name] for name in PASSED if name in machine}
    pinned = PINNED | {"GOTOOLCHAIN": f"go{release or load().go}"}
    return passed | _sources(machine) | pinned | ({"CGO_ENABLED": "1"} if cgo else {})


def _sources(machine: Mapping[str, str]) -> dict[str, str]:
    """Ask Go where modules come from here: its answer includes the settings of `go env -w`."""
    # A folder of a module would make the question switch the release, or fail.
    done = subprocess.run(
        ["go", "env", "-json", *SOURCES],
        capture_output=True,
        text=True,
        cwd="/",
        env={**machine, "GOTOOLCHAIN": "local", "GOFLAGS": ""},
        check=False,
    )
    if done.returncode != 0:
        return {name: machine[name] for name in SOURCES if name in machine}
    told: dict[str, str] = json.loads(done.stdout)
    return {name: value for name, value in told.items() if value}
