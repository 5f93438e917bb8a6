"""The ConfigMap of an Enclave: the file as it was measured, and the shim's configuration.

Immutable, so that what was measured cannot change while the enclave lives.
"""

import json
from base64 import b64encode
from typing import Any

from cloister_operator.enclave.caddy import shim_config
from cloister_operator.enclave.plan import EnclavePlan

__all__ = ["CONFIG_KEY", "SHIM_KEY", "build_config_map"]

CONFIG_KEY = "config.yml"
"""Key of the file's raw bytes; also its name under the mount in the containers."""
SHIM_KEY = "shim.json"
"""Key of the shim's configuration."""


def build_config_map(plan: EnclavePlan) -> dict[str, Any]:
    """Build the ConfigMap.

    Parameters
    ----------
    plan
        The Enclave and its file.

    Returns
    -------
    dict[str, Any]
        Manifest of an immutable ConfigMap; the file's bytes are kept as they are (in
        ``binaryData``, so that no byte is read as text on the way).
    """
    shim = shim_config(plan.config.shim, plan.enclave.spec.served_names)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": plan.metadata(plan.config_map),
        "immutable": True,
        "binaryData": {CONFIG_KEY: b64encode(plan.file).decode()},
        "data": {SHIM_KEY: json.dumps(shim, indent=1, sort_keys=True)},
    }
