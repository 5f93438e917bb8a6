"""``service-config.yml``: what a release of a user's repository wants to run."""

from cloister_crds.config.model import (
    ContainerSpec,
    Egress,
    EnvEntry,
    Healthcheck,
    Ipc,
    ModelSpec,
    Network,
    Restart,
    ServiceConfig,
    Shim,
    TlsMode,
    Tmpfs,
    User,
    Volume,
)
from cloister_crds.config.naming import object_name, secret_is_file

__all__ = [
    "ContainerSpec",
    "Egress",
    "EnvEntry",
    "Healthcheck",
    "Ipc",
    "ModelSpec",
    "Network",
    "Restart",
    "ServiceConfig",
    "Shim",
    "TlsMode",
    "Tmpfs",
    "User",
    "Volume",
    "object_name",
    "secret_is_file",
]
