"""The shim's container: Caddy, without any privilege, the only one that takes requests."""

from typing import Any

from cloister_operator.enclave.container.probes import SHIM_PATH, agent_probe
from cloister_operator.enclave.network.ports import SHIM_PORT
from cloister_operator.enclave.plan import BuildSettings, EnclavePlan
from cloister_operator.enclave.pod.volumes import SHIM_CONFIG_PATH
from cloister_operator.enclave.shim.document import SHIM_KEY
from cloister_operator.enclave.sidecars import GUEST, SHIM, sidecar_name, unprivileged

__all__ = ["shim_container"]


def shim_container(
    plan: EnclavePlan, settings: BuildSettings, mounts: list[dict[str, Any]]
) -> dict[str, Any]:
    """Build the container.

    Returns
    -------
    dict[str, Any]
        An entry of ``spec.containers``. It is always restarted, and ready once it listens, which it
        does when it has certificates. NET_BIND_SERVICE is added because published images of Caddy
        have it as a file capability, without which the kernel refuses to run the program.
    """
    return {
        "name": sidecar_name(SHIM, plan.names),
        "image": settings.shim_image,
        "imagePullPolicy": "IfNotPresent",
        "command": [GUEST, "shim", "-config", f"{SHIM_CONFIG_PATH}/{SHIM_KEY}"],
        "workingDir": "/",
        "ports": [{"name": "https", "containerPort": SHIM_PORT}],
        **agent_probe(SHIM_PATH),
        "restartPolicy": "Always",
        "securityContext": {
            **unprivileged(SHIM),
            "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]},
        },
        # Why it was not started, such as an image whose Caddy is too old. It logs no request.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }
