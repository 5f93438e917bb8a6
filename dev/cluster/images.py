"""Build container images without Docker and push them to a registry.

Follows the OCI image format and distribution specifications. The same content gives
the same digest. Called by the cluster (pause image), the demo (its service) and
tests; the released images are those of `dev.images`.
"""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from dev.cluster.guest import guest_binary, shim_binary
from dev.cluster.layout import LocalClusterError
from dev.plain_http import NO_TRUST

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
PLAIN_LAYER = "application/vnd.oci.image.layer.v1.tar"

NOBODY = "65532:65532"
"""User and group of programs that need no privileges."""

BUSYBOX = (
    *("cat", "chmod", "cp", "date", "df", "echo", "env", "false", "grep", "head", "httpd", "id"),
    *("ip", "kill", "ls", "mkdir", "mount", "nc", "nproc", "nslookup", "ping", "printf", "ps"),
    *("rm", "seq", "sh", "sleep", "stat", "sync", "tail", "test", "touch", "true", "unshare"),
    *("wget", "yes"),
)
"""Applets that have a link of their own in `busybox_image`."""


@dataclass(frozen=True, slots=True)
class Content:
    """The blobs of an image."""

    descriptor: dict[str, Any]
    """Of its manifest."""
    blobs: dict[str, bytes]
    """Digest -> content; the last one is the manifest."""


@dataclass(frozen=True, slots=True)
class Image:
    """Content of an image, and how it is started."""

    files: Mapping[str, bytes | Path]
    """Path in the image -> content: bytes, or a file whose mode is kept."""
    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ()
    env: Sequence[str] = ()
    user: str = ""
    working_dir: str = "/"
    ports: Sequence[int] = ()
    links: Mapping[str, str] = field(default_factory=dict)
    """Path of a symbolic link -> its target."""
    folders: Sequence[str] = ("/tmp",)
    """World-writable folders."""
    architecture: str = "amd64"
    labels: Mapping[str, str] = field(default_factory=dict)

    def layer(self) -> bytes:
        """Build the one layer (tar); zero times and owners make its digest reproducible."""
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for folder in sorted(self._folders()):
                entry = tarfile.TarInfo(folder)
                entry.type = tarfile.DIRTYPE
                entry.mode = 0o1777 if f"/{folder}" in self.folders else 0o755
                archive.addfile(entry)
            for path, content in sorted(self.files.items()):
                data = content if isinstance(content, bytes) else content.read_bytes()
                entry = tarfile.TarInfo(path.lstrip("/"))
                entry.size = len(data)
                executable = isinstance(content, Path) and content.stat().st_mode & 0o100
                entry.mode = 0o755 if executable else 0o644
                archive.addfile(entry, io.BytesIO(data))
            for path, target in sorted(self.links.items()):
                entry = tarfile.TarInfo(path.lstrip("/"))
                entry.type = tarfile.SYMTYPE
                entry.linkname = target
                archive.addfile(entry)
        return stream.getvalue()

    def _folders(self) -> set[str]:
        wanted = {folder.strip("/") for folder in self.folders}
        for path in (*self.files, *self.links, *self.folders):
            for parent in Path(path.lstrip("/")).parents:
                if str(parent) != ".":
                    wanted.add(str(parent))
        return wanted

    def config(self, layer_digest: str) -> bytes:
        """Build the image configuration (JSON)."""
        run: dict[str, Any] = {
            "Env": list(self.env),
            "WorkingDir": self.working_dir,
            "Entrypoint": list(self.entrypoint) or None,
            "Cmd": list(self.command) or None,
            "User": self.user or None,
            "ExposedPorts": {f"{port}/tcp": {} for port in self.ports} or None,
            "Labels": dict(self.labels) or None,
        }
        return json_bytes(
            {
                "architecture": self.architecture,
                "os": "linux",
                "config": {key: value for key, value in run.items() if value is not None},
                "rootfs": {"type": "layers", "diff_ids": [layer_digest]},
            }
        )

    def content(self, *, packed: bool = False) -> Content:
        """Build the whole image: its layer, packed by gzip or not, configuration and manifest."""
        layer = self.layer()
        config = self.config(_digest(layer))
        blob = gzip.compress(layer, compresslevel=1, mtime=0) if packed else layer
        layers = [_descriptor(LAYER if packed else PLAIN_LAYER, blob)]
        manifest = json_bytes(
            {
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "config": _descriptor(CONFIG, config),
                "layers": layers,
            }
        )
        blobs = {_digest(each): each for each in (blob, config, manifest)}
        return Content(_descriptor(MANIFEST, manifest), blobs)


def json_bytes(content: Any) -> bytes:
    """Return the one encoding of JSON, which digests are of."""
    return json.dumps(content, separators=(",", ":"), sort_keys=True).encode()


def _digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def _descriptor(media_type: str, content: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": _digest(content), "size": len(content)}


def push(
    image: Image, registry: str, repository: str, tag: str = "latest", *, index: bool = False
) -> str:
    """Push an image to a plain HTTP registry.

    Parameters
    ----------
    registry
        Host and port, such as that of `Cluster.registry`.
    tag
        Tag to set; "" pushes by digest alone.
    index
        Wrap it in an image index, as images for several platforms are.

    Returns
    -------
    str
        Reference with digest, ``registry/repository@sha256:…``.

    Raises
    ------
    LocalClusterError
        When the registry refuses or does not respond.
    """
    content = image.content(packed=True)
    *blobs, manifest = content.blobs.values()
    base = f"http://{registry}"
    with httpx.Client(base_url=base, timeout=60, trust_env=False, verify=NO_TRUST) as client:
        try:
            for blob in blobs:
                _push_blob(client, repository, blob)
            digest = _push_manifest(client, repository, MANIFEST, manifest, "" if index else tag)
            if index:
                platform = {"os": "linux", "architecture": image.architecture}
                entry = {**content.descriptor, "platform": platform}
                whole = json_bytes({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]})
                digest = _push_manifest(client, repository, INDEX, whole, tag)
        except httpx.HTTPError as error:
            raise LocalClusterError(
                f"pushing {repository} to the registry {registry} failed: {error}"
            ) from error
    return f"{registry}/{repository}@{digest}"


def _push_blob(client: httpx.Client, repository: str, content: bytes) -> None:
    digest = _digest(content)
    if client.head(f"/v2/{repository}/blobs/{digest}").is_success:
        return
    upload = client.post(f"/v2/{repository}/blobs/uploads/")
    upload.raise_for_status()
    place = httpx.URL(upload.headers["Location"]).copy_merge_params({"digest": digest})
    client.put(
        place, content=content, headers={"Content-Type": "application/octet-stream"}
    ).raise_for_status()


def _push_manifest(
    client: httpx.Client, repository: str, media_type: str, content: bytes, tag: str
) -> str:
    digest = _digest(content)
    place = f"/v2/{repository}/manifests/{tag or digest}"
    client.put(place, content=content, headers={"Content-Type": media_type}).raise_for_status()
    return digest


def pause_image(pause: Path) -> Image:
    """Return the image of the pause container, which holds a Pod's namespaces."""
    return Image(files={"/pause": pause}, entrypoint=["/pause"], user=NOBODY)


def shim_image() -> Image:
    """Return the image of the shim: the program alone. The same sources give the same digest.

    Raises
    ------
    LocalClusterError
        When it cannot be built.
    """
    files = {"/cloister-shim": shim_binary()}
    return Image(files=files, entrypoint=("/cloister-shim",), user=NOBODY, folders=())


def guest_image(guest: Path | None = None) -> Image:
    """Return the image of the guest: the program alone. The same sources give the same digest.

    Parameters
    ----------
    guest
        The program; None = build it.

    Raises
    ------
    LocalClusterError
        When it cannot be built.
    """
    program = guest or guest_binary()
    return Image(files={"/guest": program}, entrypoint=("/guest",), user=NOBODY, folders=())


def busybox_image(busybox: Path = Path("/bin/busybox")) -> Image:
    """Return a small image with a shell and the usual programs, for tests.

    Raises
    ------
    LocalClusterError
        When the program is missing.
    """
    if not busybox.exists():
        raise LocalClusterError(f"{busybox} is missing; install Debian's package busybox-static")
    return Image(
        files={"/bin/busybox": busybox, "/etc/passwd": b"root:x:0:0:root:/:/bin/sh\n"},
        links={f"/bin/{name}": "busybox" for name in BUSYBOX},
        command=("sh",),
        env=("PATH=/bin",),
    )


NAME = "io.containerd.image.name"
"""Annotation with the reference that containerd gives an image."""
LAYOUT = {"imageLayoutVersion": "1.0.0"}


@dataclass(frozen=True, slots=True)
class Archive:
    """An archive that is being written; the same images give the same bytes."""

    tar: tarfile.TarFile
    entries: list[dict[str, Any]]
    """What its index lists."""
    there: set[str]
    """Digests of the blobs that it has."""

    @classmethod
    def write(cls, path: Path, images: Mapping[str, Image]) -> None:
        """Write images of this machine, by their reference."""
        with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
            archive = cls(tar, [], set())
            for reference, image in sorted(images.items()):
                content = image.content()
                for digest, blob in content.blobs.items():
                    archive._add_blob(digest, blob)
                archive._name(content.descriptor, reference)
            archive._finish()

    @classmethod
    def copy(cls, path: Path, layout: Path, references: Mapping[str, tuple[str, ...]]) -> None:
        """Write images of a layout's folder.

        Parameters
        ----------
        references
            Name of an image in the layout -> the references that it gets.

        Raises
        ------
        KeyError
            When the layout has no image of a name.
        """
        index = json.loads((layout / "index.json").read_text())["manifests"]
        named = {each["annotations"]["org.opencontainers.image.ref.name"]: each for each in index}
        with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
            archive = cls(tar, [], set())
            for name, wanted in sorted(references.items()):
                descriptor = {key: named[name][key] for key in ("mediaType", "digest", "size")}
                for digest in _reached(layout, descriptor):
                    archive._add_blob(digest, _blob(layout, digest).read_bytes())
                for reference in wanted:
                    archive._name(descriptor, reference)
            archive._finish()

    def _name(self, descriptor: dict[str, Any], reference: str) -> None:
        self.entries.append({**descriptor, "annotations": {NAME: reference}})

    def _add_blob(self, digest: str, content: bytes) -> None:
        if digest not in self.there:
            self.there.add(digest)
            self._add(f"blobs/{digest.replace(':', '/')}", content)

    def _add(self, path: str, content: bytes) -> None:
        info = tarfile.TarInfo(path)
        info.size = len(content)
        self.tar.addfile(info, io.BytesIO(content))

    def _finish(self) -> None:
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": self.entries}
        self._add("oci-layout", json_bytes(LAYOUT))
        self._add("index.json", json_bytes(index))


def _blob(layout: Path, digest: str) -> Path:
    return layout / "blobs" / digest.replace(":", "/")


def _reached(layout: Path, descriptor: Mapping[str, Any]) -> Iterator[str]:
    """Return the digest of a descriptor and of everything that it refers to."""
    yield str(descriptor["digest"])
    if descriptor["mediaType"].endswith(("index.v1+json", "manifest.v1+json")):
        found = json.loads(_blob(layout, descriptor["digest"]).read_text())
        below = found.get("manifests") or [found["config"], *found["layers"]]
        for each in below:
            yield from _reached(layout, each)
