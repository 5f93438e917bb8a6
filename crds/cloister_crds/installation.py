"""What the operator publishes of its settings, so that the facade cannot differ in them.

Only the operator has these settings. It writes them into a ConfigMap of its namespace, which the
facade reads by a watch.
"""

import math
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Self

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from cloister_crds.names import RepositoryNames

__all__ = ["CONFIG_MAP_NAME", "MAX_IMAGE_BYTES", "DefaultLimits", "InstallationSettings"]

CONFIG_MAP_NAME = "cloister-installation"
"""Name of the ConfigMap; the rights of both accounts name it."""
MAX_IMAGE_BYTES = 20 * 1024**3
"""Most bytes of all images of a file, where the administrator sets nothing else."""
_KEY = "settings.json"
"""The key of its data."""


class DefaultLimits(BaseModel):
    """How many objects an organization may have whose ``spec.limits`` does not name a number."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True
    )

    secrets: int = 100
    """Secrets (csec)."""
    ssh_keys: int = 100
    """SSHKeys."""
    domains: int = 100
    """Domains."""
    api_keys: int = 1000
    """API keys that were not deleted."""
    admin_keys: int = 100
    """Valid admin keys."""


class InstallationSettings(BaseModel):
    """Settings by which both programs judge. Further settings of a later operator are ignored."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True
    )

    containers_domain: str
    """Domain of generated host names."""
    service: str
    """Name of the mount and of the well-known paths in enclaves."""
    platform: str
    """Platform that images must have, such as ``linux/amd64``."""
    strict_from: str | None = None
    """First cvm-version from which strict rules of the file are errors; None means never."""
    file_names: tuple[str, ...]
    """Names of the configuration file in a repository; the first that exists is read."""
    max_file_bytes: int
    """Largest configuration file in bytes."""
    max_image_bytes: int = MAX_IMAGE_BYTES
    """Most bytes of all images of a file as they are pulled."""
    metering: bool
    """Whether the run time of containers is metered."""
    ignore_repository_case: bool = False
    """Whether the source compares names of repositories without case."""
    pull_deadline_seconds: int
    """Seconds from an enclave's creation until all of its containers must have started."""
    progress_deadline_seconds: int
    """Seconds from then until it must be ready, in addition to what its health checks need."""
    default_limits: DefaultLimits = DefaultLimits()
    """Limits of organizations that name none."""

    def boot_seconds(self, allowance: timedelta) -> int:
        """Return the seconds from the start of an enclave's containers until it must be ready.

        Parameters
        ----------
        allowance
            The longest time that a health check of its file may need.
        """
        return self.progress_deadline_seconds + math.ceil(allowance.total_seconds())

    @property
    def of_sources(self) -> dict[str, Any]:
        """Those that are settings of sources, by the names of its fields."""
        return {"file_names": self.file_names, "max_file_bytes": self.max_file_bytes}

    @property
    def repositories(self) -> RepositoryNames:
        """How names of repositories are compared."""
        return RepositoryNames(ignore_case=self.ignore_repository_case)

    def manifest(self, namespace: str) -> dict[str, Any]:
        """Build the ConfigMap."""
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": CONFIG_MAP_NAME,
                "namespace": namespace,
                "labels": {"app.kubernetes.io/part-of": "cloister"},
            },
            "data": {_KEY: self.model_dump_json(by_alias=True, indent=2) + "\n"},
        }

    @classmethod
    def read(cls, item: Mapping[str, Any]) -> Self:
        """Read the ConfigMap.

        Raises
        ------
        KeyError
            When it has no settings.
        pydantic.ValidationError
            When one is missing or wrong.
        """
        return cls.model_validate_json(item["data"][_KEY])
