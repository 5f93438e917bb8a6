"""The kubelet's probes of what the enclave's agent knows: HTTP requests, which start no process.

Health checks run inside the enclave (docs/enclave.md); the kubelet only reads their state. An
unhealthy container is never restarted for it.
"""

from typing import Any

from cloister_operator.enclave.network.ports import PROBE_PORT

__all__ = ["READY_PATH", "agent_probes", "health_path", "stage_probe"]

READY_PATH = "/ready"
"""Path of the enclave's readiness."""
_WAIT_SECONDS = 55
"""How long the agent holds the start-up probe until it can be positive, so that the kubelet learns
it at once and need not ask every second."""
_NEVER = 2**31 - 1
"""Failures after which the kubelet would kill the container: the agent decides how long a boot may
take, not the kubelet."""


def health_path(container: str) -> str:
    """Return the path of the health of a container of the file."""
    return f"/health/{container}"


def agent_probes(path: str) -> dict[str, Any]:
    """Return ``startupProbe`` and ``readinessProbe`` of a container.

    Parameters
    ----------
    path
        `READY_PATH`, or a `health_path`.

    Returns
    -------
    dict[str, Any]
        The first waits for the first positive response; from then on the second one reads the
        state (Kubernetes, "Configure Liveness, Readiness and Startup Probes").
    """
    return {
        **_startup(path),
        "readinessProbe": {
            "httpGet": {"path": path, "port": PROBE_PORT},
            "periodSeconds": 5,
            "timeoutSeconds": 5,
            "failureThreshold": 1,
        },
    }


def stage_probe(stage: str) -> dict[str, Any]:
    """Return ``startupProbe`` of a sidecar of ours: a stage of the boot is over.

    Its result is the container's ``ready``, and nothing is asked afterwards.
    """
    return _startup(f"/stage/{stage}")


def _startup(path: str) -> dict[str, Any]:
    """Return ``startupProbe``."""
    return {
        "startupProbe": {
            "httpGet": {"path": f"{path}?wait={_WAIT_SECONDS}", "port": PROBE_PORT},
            "periodSeconds": 1,
            "timeoutSeconds": _WAIT_SECONDS + 5,
            "failureThreshold": _NEVER,
        }
    }
