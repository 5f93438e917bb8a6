"""The demo as a client sees it: ``cloister-verify`` on the enclave that it made."""

import subprocess
from pathlib import Path
from typing import Final

import yaml

from dev.cluster import Cluster, LocalClusterError
from dev.cluster.guest import guest_binary
from dev.demo.https_client import forward_port

NOT_CONFIDENTIAL: Final = 12
"""Exit code for an enclave without a TEE, as docs/verify.md says."""


def verify(
    cluster: Cluster,
    domain: str,
    service: tuple[str, str],
    *,
    release: tuple[str, str],
    git: str,
    folder: Path,
) -> tuple[int, str]:
    """Verify the enclave of a release, and keep the verification in ``folder/verification.json``.

    Parameters
    ----------
    cluster
        The cluster, through whose API the connection is forwarded.
    release
        Repository and tag that must run.

    Raises
    ------
    LocalClusterError
        When the program cannot be built.
    ConnectionError
        When the enclave cannot be reached.
    """
    source = folder / "source.yml"
    source.write_text(yaml.safe_dump({"kind": "git", "base": f"http://{git}", "plainHttp": [git]}))
    repo, tag = release
    with forward_port(cluster, *service) as port:
        done = subprocess.run(
            [
                guest_binary("cloister-verify", "./cmd/cloister-verify"),
                *(domain, "--connect", f"127.0.0.1:{port}", "--verbose"),
                *("--repo", repo, "--tag", tag, "--source", source),
                *("--bundle", folder / "verification.json"),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=120,
        )
    if done.returncode < 0:
        raise LocalClusterError(f"cloister-verify was killed by signal {-done.returncode}")
    return done.returncode, done.stdout
