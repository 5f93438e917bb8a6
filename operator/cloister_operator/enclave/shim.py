"""The shim's container: Caddy, without any privilege, as the only way into the enclave."""

from typing import Any

from cloister_operator.enclave.config_map import SHIM_KEY
from cloister_operator.enclave.plan import SHIM_PORT, BuildSettings, EnclavePlan
from cloister_operator.enclave.volumes import SHIM_CONFIG_PATH, SHIM_DATA_PATH

__all__ = ["SHIM_USER", "shim_container"]

SHIM_USER = 65532
"""User and group of the shim: nobody's, without any right."""


def shim_container(
    plan: EnclavePlan, settings: BuildSettings, mounts: list[dict[str, Any]]
) -> dict[str, Any]:
    """Build the container.

    Parameters
    ----------
    plan
        The Enclave and its file.
    settings
        Names the image.
    mounts
        ``volumeMounts`` of the shim.

    Returns
    -------
    dict[str, Any]
        An entry of ``spec.containers``. It is always restarted, and ready once it listens, which
        it does when its certificates are made. NET_BIND_SERVICE is there because published
        images of Caddy carry it as a file capability, without which the kernel refuses to run
        the program.
    """
    return {
        "name": plan.shim_container,
        "image": settings.shim_image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["caddy", "run", "--config", f"{SHIM_CONFIG_PATH}/{SHIM_KEY}"],
        "env": [
            {"name": "HOME", "value": SHIM_DATA_PATH},
            {"name": "XDG_CONFIG_HOME", "value": SHIM_DATA_PATH},
            {"name": "XDG_DATA_HOME", "value": SHIM_DATA_PATH},
        ],
        "ports": [{"name": "https", "containerPort": SHIM_PORT, "protocol": "TCP"}],
        "readinessProbe": {
            "tcpSocket": {"port": SHIM_PORT},
            "periodSeconds": 2,
            "timeoutSeconds": 2,
        },
        "restartPolicy": "Always",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]},
            "privileged": False,
            "readOnlyRootFilesystem": True,
            "runAsGroup": SHIM_USER,
            "runAsNonRoot": True,
            "runAsUser": SHIM_USER,
        },
        "volumeMounts": mounts,
    }
