"""A real registry (the distribution project's), and images for it.

`registry` starts the binary on a free port of the loopback with a storage of its own; `push`
uploads by the distribution specification, so that a test needs no image builder.
"""

import contextlib
import hashlib
import json
import os
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from dev.cluster.binaries import binary
from tests.support.builders.certificates import Certificate
from tests.support.ports import free_port
from tests.support.waiting import until_sync

__all__ = [
    "PushedContent",
    "Registry",
    "image_config",
    "image_index",
    "image_manifest",
    "registry",
    "registry_binary",
]

OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
OCI_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


def registry_binary() -> Path:
    """Return the path of the registry's program; build it when it is missing."""
    return binary("registry")


@dataclass(frozen=True)
class PushedContent:
    """Pushed content."""

    digest: str
    """Its digest."""
    size: int
    """Its size, in bytes."""
    media_type: str
    """Its media type."""

    def descriptor(self, **more: Any) -> dict[str, Any]:
        """Return its descriptor, with further fields such as a platform."""
        return {"mediaType": self.media_type, "digest": self.digest, "size": self.size, **more}


@dataclass
class Registry:
    """A running registry."""

    port: int
    """Port on the loopback."""
    log: Path
    """Its log, including the access log."""
    tls: Certificate | None = None
    """Its certificate; None = plain HTTP."""
    authorization: str | None = None
    """Authorization header of pushes; None = none."""

    @property
    def host(self) -> str:
        """Host and port, as in image references."""
        return f"127.0.0.1:{self.port}"

    @property
    def base(self) -> str:
        """Its address."""
        return f"{'https' if self.tls else 'http'}://{self.host}"

    def blob(self, repository: str, content: bytes, media_type: str) -> PushedContent:
        """Upload content."""
        pushed = _pushed(content, media_type)
        with self._client() as client:
            started = client.post(f"/v2/{repository}/blobs/uploads/")
            assert started.status_code == 202, started.text
            url = httpx.URL(started.headers["location"]).copy_merge_params(
                {"digest": pushed.digest}
            )
            done = client.put(url, content=content)
            assert done.status_code == 201, done.text
        return pushed

    def manifest(
        self, repository: str, document: Mapping[str, Any], *, tag: str | None = None
    ) -> PushedContent:
        """Upload a manifest or an index, under its digest or a tag."""
        content = json.dumps(document).encode()
        pushed = _pushed(content, document["mediaType"])
        with self._client() as client:
            done = client.put(
                f"/v2/{repository}/manifests/{tag or pushed.digest}",
                content=content,
                headers={"Content-Type": pushed.media_type},
            )
            assert done.status_code == 201, done.text
        return pushed

    def image(
        self,
        repository: str,
        *,
        tag: str | None = None,
        architecture: str = "amd64",
        config: Mapping[str, Any] | None = None,
    ) -> PushedContent:
        """Upload an image with one small layer."""
        layer = self.blob(repository, b"layer", OCI_LAYER)
        content = image_config(architecture, config or {})
        pushed = self.blob(repository, content, OCI_CONFIG)
        return self.manifest(repository, image_manifest(pushed, layer), tag=tag)

    def _client(self) -> httpx.Client:
        headers = {"Authorization": self.authorization} if self.authorization else {}
        return httpx.Client(
            base_url=self.base, headers=headers, timeout=30, verify=_trust(self.tls)
        )


def _trust(tls: Certificate | None) -> ssl.SSLContext | bool:
    """Return a context that trusts only a certificate; for plain HTTP, no certificate."""
    return ssl.create_default_context(cafile=str(tls.file)) if tls else False


def _pushed(content: bytes, media_type: str) -> PushedContent:
    """Return the description of pushed content."""
    return PushedContent(f"sha256:{hashlib.sha256(content).hexdigest()}", len(content), media_type)


def image_config(architecture: str, config: Mapping[str, Any]) -> bytes:
    """Build the configuration of an image."""
    document = {
        "os": "linux",
        "architecture": architecture,
        "config": dict(config),
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{'0' * 64}"]},
    }
    return json.dumps(document).encode()


def image_manifest(config: PushedContent, *layers: PushedContent) -> dict[str, Any]:
    """Build the manifest of an image."""
    return {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": config.descriptor(),
        "layers": [layer.descriptor() for layer in layers],
    }


def image_index(entries: Mapping[str, PushedContent]) -> dict[str, Any]:
    """Build an index: platform such as ``linux/arm64/v8`` -> manifest."""
    manifests = []
    for name, pushed in entries.items():
        system, architecture, *variant = name.split("/")
        platform = {"os": system, "architecture": architecture}
        if variant:
            platform["variant"] = variant[0]
        manifests.append(pushed.descriptor(platform=platform))
    return {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": manifests}


@contextlib.contextmanager
def registry(
    folder: Path,
    *,
    auth: Mapping[str, Any] | None = None,
    proxy: str | None = None,
    tls: Certificate | None = None,
    everywhere: bool = False,
) -> Iterator[Registry]:
    """Run a registry until the block ends.

    Parameters
    ----------
    auth
        Section ``auth`` of its configuration; None = no authentication.
    proxy
        Address of the registry that it mirrors; None = none.
    tls
        Its certificate; None = plain HTTP.
    everywhere
        Whether it listens on every address, so that a node reaches it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "log"
    # The registry does not accept a listening socket, so a port is chosen, and another one when
    # it was taken in between.
    for _ in range(5):
        port = free_port()
        configuration: dict[str, Any] = {
            "version": 0.1,
            "log": {"level": "info", "formatter": "json"},
            "storage": {"filesystem": {"rootdirectory": str(folder / "storage")}},
            "http": {"addr": f"{'0.0.0.0' if everywhere else '127.0.0.1'}:{port}", "secret": "x"},
        }
        if auth is not None:
            configuration["auth"] = dict(auth)
        if tls is not None:
            files = {"certificate": str(tls.file), "key": str(tls.key_file)}
            configuration["http"]["tls"] = files
        if proxy is not None:
            configuration["proxy"] = {"remoteurl": proxy}
        (folder / "config.yml").write_text(yaml.safe_dump(configuration))
        with log.open("wb") as sink:
            process = subprocess.Popen(
                [str(registry_binary()), "serve", str(folder / "config.yml")],
                stdout=sink,
                stderr=subprocess.STDOUT,
                env={"PATH": os.environ["PATH"], "OTEL_TRACES_EXPORTER": "none"},
            )
        try:
            if until_sync(lambda: _state(process, port, tls), every=0.05) == "up":  # noqa: B023 - called within this iteration
                yield Registry(port, log, tls)
                return
        finally:
            process.terminate()
            process.wait(30)
    raise AssertionError(f"the registry did not start: {log.read_text()[-2000:]}")


def _state(process: subprocess.Popen[bytes], port: int, tls: Certificate | None) -> str:
    """Return ``up``, ``ended``, or an empty string while it starts."""
    if process.poll() is not None:
        return "ended"
    with contextlib.suppress(httpx.TransportError):
        address = f"{'https' if tls else 'http'}://127.0.0.1:{port}/v2/"
        if httpx.get(address, timeout=5, verify=_trust(tls)).status_code in {200, 401}:
            return "up"
    return ""
