"""Where a release comes from: a SLSA provenance statement (https://slsa.dev/spec/v1.0/provenance).

It holds no time and no name of a machine: the same commit gives the same statement.
"""

import hashlib
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from dev.cluster.binaries import environment, go_version
from dev.images.commands import run
from dev.images.release import ROOT, Release

STATEMENT: Final = "https://in-toto.io/Statement/v1"
PREDICATE: Final = "https://slsa.dev/provenance/v1"
BUILD: Final = "https://cloister.dev/release/v1"
"""Kind of build: `make release` of a clean checkout, as docs/development/release.md describes."""
BUILDER: Final = "https://cloister.dev/make-release/v1"
"""Who built: the person who ran the command. No service vouches for it (SLSA build L1)."""
LOCKS: Final = (
    *("images/base.lock", "uv.lock", "dev/uv-requirements.txt"),
    "operator/guest/go.sum",
)
"""Files that fix everything that is fetched."""
Resource = dict[str, Any]


def predicate(release: Release, registry: str, downloads: str) -> dict[str, Any]:
    """Return what a release was made of, and how.

    Parameters
    ----------
    registry
        Registry and path that it is pushed to, ``host/path``.
    downloads
        Address of its folder; empty = not known.

    Raises
    ------
    ImageError, LocalClusterError
        When a program is missing that builds.
    """
    given = {
        "version": release.version,
        "registry": registry,
        "source": release.source,
        "downloads": downloads,
    }
    return {
        "buildDefinition": {
            "buildType": BUILD,
            "externalParameters": {name: text for name, text in given.items() if text},
            "internalParameters": {"buildah": _buildah()},
            "resolvedDependencies": [_commit(release), *map(_lock, LOCKS), _go()],
        },
        "runDetails": {"builder": {"id": BUILDER}},
    }


def statement(subjects: Mapping[str, str], described: Mapping[str, Any]) -> dict[str, Any]:
    """Return the statement about files and images.

    Parameters
    ----------
    subjects
        Name of each and its SHA-256, hex.
    described
        As `predicate` returns it.
    """
    return {
        "_type": STATEMENT,
        "subject": [
            {"name": name, "digest": {"sha256": digest}}
            for name, digest in sorted(subjects.items())
        ],
        "predicateType": PREDICATE,
        "predicate": dict(described),
    }


def _commit(release: Release) -> Resource:
    address = {"uri": f"git+{release.source}@{release.revision}"} if release.source else {}
    return {"name": "cloister", **address, "digest": {"gitCommit": release.revision}}


def _lock(name: str) -> Resource:
    return {"name": name, "digest": {"sha256": _sha256(ROOT / name)}}


def _go() -> Resource:
    version = go_version()
    place = run(["go", "env", "GOROOT"], cwd=ROOT / "dev", environment=environment())
    program = Path(place.decode().strip(), "bin", "go")
    return {
        "name": "go",
        "uri": f"pkg:generic/go@{version}",
        "digest": {"sha256": _sha256(program)},
    }


def _buildah() -> str:
    said = subprocess.check_output(["buildah", "--version"], text=True)
    found = re.search(r"version (\S+)", said)
    return found[1] if found else said.strip()


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
