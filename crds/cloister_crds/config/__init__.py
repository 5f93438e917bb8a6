"""``service-config.yml``: what a release of a user's repository wants to run."""

from cloister_crds.config.effective import shared_namespace
from cloister_crds.config.limits import STORED, Rules, metrics_secret, object_name, secret_is_file
from cloister_crds.config.model import (
    ContainerConfig,
    Egress,
    EncryptedBodies,
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
from cloister_crds.config.parsing import ParsedConfig, json_schema, parse
from cloister_crds.config.rules.environment import variable_problems

__all__ = [
    "STORED",
    "ContainerConfig",
    "Egress",
    "EncryptedBodies",
    "EnvEntry",
    "Healthcheck",
    "Ipc",
    "ModelSpec",
    "Network",
    "ParsedConfig",
    "Restart",
    "Rules",
    "ServiceConfig",
    "Shim",
    "TlsMode",
    "Tmpfs",
    "User",
    "Volume",
    "json_schema",
    "metrics_secret",
    "object_name",
    "parse",
    "secret_is_file",
    "shared_namespace",
    "variable_problems",
]
