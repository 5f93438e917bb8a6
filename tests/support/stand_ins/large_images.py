"""A registry whose images say a lot about themselves: the description is what the test wants."""

import contextlib
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.support.stand_ins.http_server import HttpServer, Reply, Request, serve

__all__ = ["LargeImages", "large_images"]


@dataclass
class LargeImages:
    """The running registry."""

    content: dict[str, bytes] = field(default_factory=dict)
    """Manifests and configurations by digest."""
    served: HttpServer | None = None
    """The server; None before it runs."""

    def image(self, config: dict[str, Any] | bytes, *layers: int) -> str:
        """Add an image with this configuration of its process, and return its reference.

        Parameters
        ----------
        config
            What it says about its process, or the bytes of the whole configuration.
        layers
            Sizes of its layers, as the manifest has them; there are none.
        """
        raw = config if isinstance(config, bytes) else json.dumps({"config": config}).encode()
        described = {
            "mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": self._add(raw),
            "size": len(raw),
        }
        listed = [{"digest": described["digest"], "size": size} for size in layers]
        manifest = {"schemaVersion": 2, "config": described, "layers": listed}
        assert self.served is not None
        return f"{self.served.host}/x@{self._add(json.dumps(manifest).encode())}"

    def _add(self, content: bytes) -> str:
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        self.content[digest] = content
        return digest

    def respond(self, request: Request) -> Reply:
        """Return content by its digest."""
        content = self.content.get(request.parts[-1])
        return Reply(404) if content is None else Reply(200, content)


@contextlib.contextmanager
def large_images() -> Iterator[LargeImages]:
    """Serve on the loopback until the block ends."""
    images = LargeImages()
    with serve(images.respond) as images.served:
        yield images
