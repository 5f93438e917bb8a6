"""The kubelet's probes of what the enclave's agent knows: HTTP requests, which start no process.

Health checks run inside the enclave (docs/enclave.md); the kubelet only reads their state. An
unhealthy container is never restarted for it.

There is a readiness probe only, no start-up probe: the kubelet asks the former as soon as it sees
that the container runs and at every later look at the Pod while it is not ready, the latter once a
second (pkg/kubelet/prober of Kubernetes 1.36).
"""

from typing import Any, Final

from cloister_operator.enclave.network.ports import PROBE_PORT

__all__ = ["READY_PATH", "SHIM_PATH", "agent_probe", "health_path", "stage_probe"]

READY_PATH: Final = "/ready"
"""Path of the enclave's readiness."""
SHIM_PATH: Final = "/stage/shim"
"""Path of the shim's, which the agent looks at each time: it may be restarted."""
_WAIT_SECONDS: Final = 600
"""How long the agent holds a probe until it can be positive."""
_STATE_PERIOD: Final = 5
"""Seconds between two looks at a state, which may change."""
_STAGE_PERIOD: Final = 60
"""Seconds between two looks at a stage of the boot: once it is over, it stays so."""


def health_path(container: str) -> str:
    """Return the path of the health of a container of the file."""
    return f"/health/{container}"


def agent_probe(path: str) -> dict[str, Any]:
    """Return ``readinessProbe`` of a container.

    Parameters
    ----------
    path
        `READY_PATH`, `SHIM_PATH`, or a `health_path`.
    """
    return _readiness(path, _STATE_PERIOD)


def stage_probe(stage: str) -> dict[str, Any]:
    """Return ``readinessProbe`` of a container of ours: a stage of the boot is over."""
    return _readiness(f"/stage/{stage}", _STAGE_PERIOD)


def _readiness(path: str, period: int) -> dict[str, Any]:
    """Return ``readinessProbe``."""
    return {
        "readinessProbe": {
            "httpGet": {"path": f"{path}?wait={_WAIT_SECONDS}", "port": PROBE_PORT},
            "periodSeconds": period,
            "timeoutSeconds": _WAIT_SECONDS + 5,
            "failureThreshold": 1,
        }
    }
