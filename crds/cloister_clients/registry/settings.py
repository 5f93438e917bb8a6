"""How registries are reached: the administrator's settings."""

from pathlib import Path
from typing import Self

import httpx
from pydantic import Field, model_validator

from cloister_clients.address_guard import Guard
from cloister_clients.registry.credentials import PrivateRegistry
from cloister_clients.settings import SettingsSection
from cloister_crds.installation import MAX_IMAGE_BYTES

__all__ = ["RegistrySettings"]


class RegistrySettings(SettingsSection):
    """How registries are reached, and what may be read from them."""

    allow_private: tuple[str, ...] = ()
    """Hosts, ``host`` or ``host:port``, that may have private addresses."""
    plain_http: tuple[str, ...] = ()
    """Hosts, ``host`` or ``host:port``, that are called without TLS."""
    mirrors: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Registry, as references write it -> addresses (``https://host[:port][/path]``) that are tried
    before it, in order, for images with a digest. They get no credentials of an organization."""
    private_hosts: dict[PrivateRegistry, tuple[str, ...]] = Field(default_factory=dict)
    """Registry (ghcr, gcr, dockerhub) -> further hosts that an organization's credentials for it
    are for, such as the registry of an Enterprise server."""
    token_hosts: tuple[str, ...] = ()
    """Hosts, ``host`` or ``host:port``, that may receive an organization's credentials as the token
    server of a registry that is another host. A registry itself, and Docker Hub's own token server,
    always may."""
    ca_file: Path | None = None
    """PEM file with the only certificate authorities to trust. None: the public ones."""
    timeout_seconds: float = Field(default=10.0, gt=0, le=300)
    """Longest wait for a connection and between two pieces of a response, in seconds."""
    total_seconds: float = Field(default=15.0, gt=0, le=600)
    """Longest time for one image with all requests that it needs (token, manifest, configuration),
    in seconds."""
    max_manifest_bytes: int = Field(default=4194304, ge=1024)
    """Largest manifest or index, in bytes (the distribution specification wants 4 MiB)."""
    max_config_bytes: int = Field(default=1048576, ge=1024)
    """Largest configuration of an image, in bytes."""

    max_image_bytes: int = Field(default=MAX_IMAGE_BYTES, ge=1048576)
    """Most bytes of all images of a configuration file as they are pulled, which is mostly
    compressed."""

    @model_validator(mode="after")
    def _mirrors_are_addresses(self) -> Self:
        """Check the addresses of mirrors."""
        for registry, addresses in self.mirrors.items():
            for address in addresses:
                try:
                    url = httpx.URL(address)
                except httpx.InvalidURL as error:
                    raise ValueError(
                        f"mirrors.{registry}: {address!r} is not an address"
                    ) from error
                if url.scheme not in {"http", "https"} or not url.host or url.userinfo or url.query:
                    raise ValueError(
                        f"mirrors.{registry}: {address!r} is not an address; write https://host, "
                        "without credentials"
                    )
        return self

    def guard(self) -> Guard:
        """Build the guard of these settings."""
        return Guard(
            allow_private=frozenset(self.allow_private), plain_http=frozenset(self.plain_http)
        )
