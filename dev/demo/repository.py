"""The demo's repository: a real git repository with one release per version of the service.

Each release is made as by a project's release workflow: the image is built and pushed, its
digest replaces the placeholder in ``service-config.yml``, the commit gets a tag.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

from dev.cluster import LocalClusterError
from dev.cluster.binaries import environment

REPO = "demo/hello"
"""The repository, ``owner/name``."""
SERVICE = Path(__file__).parent / "service"
"""Source of the service."""
PLACEHOLDER = re.compile(r"image: \S+@sha256:0{64}")
GIT_IDENTITY = {
    "GIT_AUTHOR_NAME": "Demo",
    "GIT_AUTHOR_EMAIL": "demo@example.invalid",
    "GIT_COMMITTER_NAME": "Demo",
    "GIT_COMMITTER_EMAIL": "demo@example.invalid",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
}


def build_program(version: str, target: Path) -> Path:
    """Build the service as one static program.

    Raises
    ------
    subprocess.CalledProcessError
        When the build fails; Go's messages are on standard error.
    """
    program = target / f"hello-{version}"
    target.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [
            "go",
            "build",
            "-trimpath",
            "-buildvcs=false",
            "-ldflags",
            f"-s -w -X main.version={version}",
            "-o",
            str(program),
            ".",
        ],
        cwd=SERVICE,
        check=True,
        env=environment(),
    )
    return program


def release(base: Path, *, tag: str, image: str) -> str:
    """Publish one release: commit the file with the image's digest and tag the commit.

    An existing release with the same files is kept: a tag that moved would be refused by
    Containers that were made from it.

    Parameters
    ----------
    base
        Folder of the repositories; the repository is ``<base>/demo/hello.git``.
    image
        Image reference with digest.

    Raises
    ------
    LocalClusterError
        When a git command fails; with its error output.
    """
    bare = base / f"{REPO}.git"
    work = base.parent / "work"
    if not bare.exists():
        _git("init", "--quiet", "--bare", "--initial-branch=main", str(bare), cwd=base.parent)
    shutil.rmtree(work, ignore_errors=True)
    _git("clone", "--quiet", str(bare), str(work), cwd=base.parent)
    for source in SERVICE.iterdir():
        if source.is_file():
            shutil.copy(source, work)
    config = work / "service-config.yml"
    config.write_text(PLACEHOLDER.sub(f"image: {image}", config.read_text()))
    _git("checkout", "--quiet", "-B", "main", cwd=work)
    _git("add", ".", cwd=work)
    known = tag in _git("tag", "--list", tag, cwd=work).split()
    if known and not _git("diff", "--cached", "--name-only", tag, cwd=work):
        return _git("rev-parse", f"{tag}^{{commit}}", cwd=work)
    _git("commit", "--quiet", "--allow-empty", "-m", f"Release {tag}", cwd=work)
    _git("tag", "--force", "-a", tag, "-m", f"Release {tag}", cwd=work)
    _git("push", "--quiet", "--force", "origin", "main", tag, cwd=work)
    return _git("rev-parse", "HEAD", cwd=work)


def _git(*arguments: str, cwd: Path) -> str:
    cwd.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        ["git", *arguments],
        cwd=cwd,
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, **GIT_IDENTITY},
    )
    if done.returncode:
        raise LocalClusterError(f"`git {' '.join(arguments)}` failed:\n{done.stderr}")
    return done.stdout.strip()
