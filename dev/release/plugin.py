"""The plugin of kubectl: an archive of our wheel and what it needs, and its manifest for krew."""

import gzip
import hashlib
import io
import tarfile
from pathlib import Path
from typing import Final

import yaml

from dev.images.commands import run
from dev.images.release import ROOT

PROGRAM: Final = "kubectl-cloister"
DESCRIPTION: Final = """\
Checks an installation of Cloister (doctor), backs it up and restores it (backup, restore),
collects what support needs, redacted (support-bundle), and explains service-config.yml (config).
At its first start it installs its locked packages, by their hashes, from where pip takes packages.
"""


def write_archive(uv: Path, wheel: Path, archive: Path, time: int) -> None:
    """Write the plugin's archive; the same content gives the same bytes.

    Parameters
    ----------
    time
        Time of every file, in seconds of Unix time.

    Raises
    ------
    ImageError
        When the locked packages cannot be listed.
    """
    # Of the API, for backup and restore.
    exported = ["export", "--quiet", "--frozen", "--no-dev", "--extra=api", "--no-emit-project"]
    locked = run([uv, *exported, "--no-header", "--no-annotate"], cwd=ROOT).decode()
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    files = {
        PROGRAM: (0o755, (Path(__file__).parent / "launcher.py").read_bytes()),
        "LICENSE": (0o644, (ROOT / "LICENSE").read_bytes()),
        "requirements.txt": (0o644, f"{locked}./{wheel.name} --hash=sha256:{digest}\n".encode()),
        wheel.name: (0o644, wheel.read_bytes()),
    }
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, (mode, content) in sorted(files.items()):
            info = tarfile.TarInfo(name)
            info.mode, info.mtime, info.size = mode, time, len(content)
            tar.addfile(info, io.BytesIO(content))
    archive.write_bytes(gzip.compress(packed.getvalue(), mtime=time))


def manifest(archive: Path, version: str, downloads: str, source: str = "") -> str:
    """Return the manifest for krew (https://krew.sigs.k8s.io).

    Parameters
    ----------
    downloads
        Address of the folder that has it; empty = where it will be is not known, so that it can
        be installed from the file alone.
    source
        Public address of the repository; empty = not known. The index of krew wants one.
    """
    base = f"{downloads.rstrip('/')}/" if downloads else ""
    document = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "cloister"},
        "spec": {
            "version": f"v{version}",
            **({"homepage": source} if source else {}),
            "shortDescription": "Check and explain an installation of Cloister",
            "description": DESCRIPTION,
            "caveats": "It needs Python 3.11 or newer as python3.\n",
            "platforms": [
                {
                    "selector": {
                        "matchExpressions": [
                            {"key": "os", "operator": "In", "values": ["darwin", "linux"]}
                        ]
                    },
                    "uri": f"{base}{archive.name}",
                    "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
                    "bin": PROGRAM,
                }
            ],
        },
    }
    return yaml.safe_dump(document, sort_keys=False)
