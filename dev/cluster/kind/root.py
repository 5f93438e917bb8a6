"""The root of kind's node without our programs: packages of Debian, installed by mmdebstrap."""

import hashlib
import os
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from dev.cluster.binaries import cache_folder
from dev.cluster.kind.control_plane import architecture
from dev.cluster.layout import LocalClusterError
from dev.cluster.processes import Progress
from dev.cluster.requirements import debian_mirrors, install_packages

SUITE: Final = "trixie"
KEYRING: Final = "/usr/share/keyrings/debian-archive-keyring.gpg"
MIRRORS: Final = {
    "Debian": "http://deb.debian.org/debian",
    "Debian-Security": "http://deb.debian.org/debian-security",
}
PACKAGES: Final = (
    *("systemd", "ca-certificates", "conntrack", "curl", "ethtool", "iproute2", "iptables", "jq"),
    *("kmod", "libseccomp2", "mount", "nftables", "procps"),
)
NOT_STARTED: Final = (
    "etc/systemd/system/*.wants/*",
    *(
        f"usr/lib/systemd/system/{each}"
        for each in (
            *("multi-user.target.wants/*", "local-fs.target.wants/*", "basic.target.wants/*"),
            *("sockets.target.wants/*udev*", "sockets.target.wants/*initctl*"),
            "sysinit.target.wants/systemd-tmpfiles-setup.service",
        )
    ),
)
"""Units that a machine starts and a node in a container does not, as kind's Dockerfile has it."""
LEFT_OUT: Final = ("doc", "man", "locale", "lintian")
"""Folders of /usr/share."""


def key() -> str:
    """Hash what it is made by, 12 hexadecimal digits; the packages' versions are not part of it."""
    content = Path(__file__).read_bytes() + architecture().encode()
    return hashlib.sha256(content).hexdigest()[:12]


def tar(progress: Progress) -> Path:
    """Return its tar; make it when it is not in the cache.

    Raises
    ------
    LocalClusterError
        When the packages cannot be had.
    """
    made = cache_folder() / "kind" / f"root-{key()}.tar"
    if not made.exists():
        install_packages(["kind-node"], progress)
        progress.say("installing the Debian packages of kind's node")
        made.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".root-", dir=made.parent) as scratch:
            written = Path(scratch, "root.tar")
            _install(written)
            for old in made.parent.glob("root-*.tar"):
                old.unlink()
            written.rename(made)
    return made


def folders(made: Path) -> set[str]:
    """Return the folders of a root, without the first slash."""
    with tarfile.open(made) as archive:
        return {each.name.removeprefix("./") for each in archive if each.isdir() or each.issym()}


def _install(to: Path) -> None:
    mirrors = debian_mirrors(MIRRORS)
    removed = " ".join(f'"$1"/{pattern}' for pattern in NOT_STARTED)
    done = subprocess.run(
        [
            *("mmdebstrap", "--quiet", "--variant=minbase"),
            f"--architectures={architecture()}",
            f"--include={','.join(PACKAGES)}",
            *(f"--dpkgopt=path-exclude=/usr/share/{each}/*" for each in LEFT_OUT),
            f"--customize-hook=rm -f {removed}",
            *(SUITE, str(to)),
            f"deb [signed-by={KEYRING}] {mirrors['Debian']} {SUITE} main",
            f"deb [signed-by={KEYRING}] {mirrors['Debian-Security']} {SUITE}-security main",
        ],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"LC_ALL": "C", "SOURCE_DATE_EPOCH": "0"},
    )
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.startswith("E:")]
        raise LocalClusterError(f"mmdebstrap: {'; '.join(said) or done.stderr.strip()[-500:]}")
