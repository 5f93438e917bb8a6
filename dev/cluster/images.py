"""Make OCI images from files and push them to a registry, without Docker.

An image is a layer (a tar archive), a configuration and a manifest, each named by its hash (OCI
Image Format Specification). The same files give the same image.
"""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from dev.cluster import binaries
from dev.cluster.trouble import Trouble

__all__ = ["Image", "archive", "busybox_image", "digest", "push", "shim_image"]

LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"


@dataclass(frozen=True, slots=True)
class Image:
    """An image to be."""

    files: Mapping[str, bytes | Path]
    """Content by absolute path; all files are executable and belong to root."""
    entrypoint: Sequence[str] = ()
    """ENTRYPOINT."""
    command: Sequence[str] = ()
    """CMD."""
    env: Sequence[str] = ()
    """ENV, ``NAME=value``."""
    user: str = ""
    """USER; empty = root."""
    working_dir: str = "/"
    """WORKDIR."""
    folders: Sequence[str] = ("/tmp",)
    """Empty folders that everybody may write to."""
    links: Mapping[str, str] = field(default_factory=dict)
    """Symbolic links: path -> target."""

    def blobs(self) -> tuple[bytes, bytes, bytes]:
        """Answer layer, configuration and manifest."""
        plain = self._layer()
        layer = gzip.compress(plain, compresslevel=1, mtime=0)
        config = _json(
            {
                "architecture": "amd64",
                "os": "linux",
                "config": {
                    "Entrypoint": list(self.entrypoint),
                    "Cmd": list(self.command),
                    "Env": list(self.env),
                    "User": self.user,
                    "WorkingDir": self.working_dir,
                },
                "rootfs": {"type": "layers", "diff_ids": [digest(plain)]},
            }
        )
        manifest = _json(
            {
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "config": _descriptor(CONFIG, config),
                "layers": [_descriptor(LAYER, layer)],
            }
        )
        return layer, config, manifest

    def _layer(self) -> bytes:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for folder in sorted(_parents(self.files, self.links) - set(self.folders)):
                _add_folder(tar, folder, 0o755)
            for folder in sorted(self.folders):
                _add_folder(tar, folder, 0o1777)
            for path, content in sorted(self.files.items()):
                data = content.read_bytes() if isinstance(content, Path) else content
                entry = tarfile.TarInfo(path.lstrip("/"))
                entry.mode, entry.size = 0o755, len(data)
                tar.addfile(entry, io.BytesIO(data))
            for path, target in sorted(self.links.items()):
                entry = tarfile.TarInfo(path.lstrip("/"))
                entry.type, entry.linkname = tarfile.SYMTYPE, target
                tar.addfile(entry)
        return buffer.getvalue()


def push(image: Image, registry: str, repository: str, tag: str = "latest") -> str:
    """Push an image to a registry that speaks plain HTTP and asks for no login.

    Returns
    -------
    str
        Reference with tag and digest.

    Raises
    ------
    httpx.HTTPError
        When the registry cannot be reached or refuses a part.
    """
    layer, config, manifest = image.blobs()
    base = f"http://{registry}/v2/{repository}"
    with httpx.Client(timeout=120, trust_env=False) as client:
        for blob in (layer, config):
            if client.head(f"{base}/blobs/{digest(blob)}").status_code == httpx.codes.OK:
                continue
            begun = client.post(f"{base}/blobs/uploads/").raise_for_status()
            location = httpx.URL(base).join(begun.headers["location"])
            client.put(
                location.copy_merge_params({"digest": digest(blob)}),
                content=blob,
                headers={"content-type": "application/octet-stream"},
            ).raise_for_status()
        client.put(
            f"{base}/manifests/{tag}", content=manifest, headers={"content-type": MANIFEST}
        ).raise_for_status()
    return f"{registry}/{repository}:{tag}@{digest(manifest)}"


def archive(image: Image, name: str) -> bytes:
    """Answer the image as an OCI archive that ``ctr images import`` takes.

    Parameters
    ----------
    image
        The image.
    name
        Full reference under which it is known on the node.
    """
    layer, config, manifest = image.blobs()
    descriptor = _descriptor(MANIFEST, manifest) | {
        "annotations": {"io.containerd.image.name": name},
        "platform": {"architecture": "amd64", "os": "linux"},
    }
    index = _json({"schemaVersion": 2, "mediaType": INDEX, "manifests": [descriptor]})
    members = {
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
        "index.json": index,
        **{f"blobs/sha256/{digest(blob)[7:]}": blob for blob in (layer, config, manifest)},
    }
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path, data in members.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def shim_image() -> Image:
    """Answer the image of the shim: Caddy alone, as an unprivileged user."""
    return Image(
        files={"/usr/bin/caddy": binaries.binary("caddy")},
        entrypoint=("/usr/bin/caddy",),
        command=("run",),
        env=("PATH=/usr/bin", "XDG_DATA_HOME=/tmp/data", "XDG_CONFIG_HOME=/tmp/config"),
        user="65532:65532",
    )


def busybox_image() -> Image:
    """Answer a small image with a shell and the usual programs, for tests.

    Raises
    ------
    Trouble
        When Debian's package busybox-static is not installed.
    """
    program = Path("/bin/busybox")
    if not program.exists():
        raise Trouble("busybox is missing; install Debian's package busybox-static")
    names = ("sh", "cat", "ls", "id", "env", "sleep", "wget", "nc", "httpd", "nslookup", "true")
    return Image(
        files={"/bin/busybox": program},
        links={f"/bin/{name}": "busybox" for name in names},
        command=("sh",),
        env=("PATH=/bin",),
    )


def digest(blob: bytes) -> str:
    """Answer the name of a blob: ``sha256:`` and its hash."""
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _descriptor(media_type: str, blob: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": digest(blob), "size": len(blob)}


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def _parents(*tables: Mapping[str, object]) -> set[str]:
    found: set[str] = set()
    for table in tables:
        for path in table:
            found |= {str(parent) for parent in Path(path).parents if str(parent) != "/"}
    return found


def _add_folder(tar: tarfile.TarFile, path: str, mode: int) -> None:
    entry = tarfile.TarInfo(path.lstrip("/"))
    entry.type, entry.mode = tarfile.DIRTYPE, mode
    tar.addfile(entry)
