"""Write the status of Pods as a kubelet would, where there is none.

For tests on an API server without a node: the Pod is real, but no container runs. Everything else
(scheduling, leases, garbage collection) is not simulated.
"""

from functools import cache
from itertools import count
from typing import Any

import yaml

from tests.support.builders.enclave_plans import of_file
from tests.support.programs.operator import Installation
from tests.support.waiting import until_sync

__all__ = ["fail_pod", "run_pod"]

_STARTED = "2026-01-01T00:00:00Z"
_NUMBERS = count()


def run_pod(installation: Installation, name: str, *, within: float = 60.0) -> None:
    """Wait for a Pod and report all its containers as running and ready."""
    pod = _pod(installation, name, within=within)
    statuses = {
        kind: [_running(each) for each in pod["spec"].get(kind, ())]
        for kind in ("initContainers", "containers")
    }
    reported = {
        "containerStatuses": statuses["containers"],
        "initContainerStatuses": statuses["initContainers"],
    }
    _patch(installation, pod, {"phase": "Running", **reported})


def _running(container: dict[str, Any]) -> dict[str, Any]:
    """Return the status of a running, ready container, or of a completed init container."""
    ended = {"exitCode": 0, "reason": "Completed", "startedAt": _STARTED, "finishedAt": _STARTED}
    running = {"running": {"startedAt": _STARTED}}
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "ready": True,
        "started": True,
        "restartCount": 0,
        "state": running if container.get("restartPolicy") else {"terminated": ended},
    }


def fail_pod(installation: Installation, name: str, *, code: int, within: float = 60.0) -> None:
    """Wait for a Pod and report the file's first container as terminated with an exit code."""
    pod = _pod(installation, name, within=within)
    first = of_file(pod)[0]
    ended = {
        "exitCode": code,
        "reason": "Error",
        "startedAt": _STARTED,
        "finishedAt": _STARTED,
    }
    status = {
        "name": first["name"],
        "image": first["image"],
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": {"terminated": ended},
    }
    _patch(installation, pod, {"phase": "Running", "containerStatuses": [status]})


def _pod(installation: Installation, name: str, *, within: float) -> dict[str, Any]:
    """Wait for a Pod."""

    def found() -> dict[str, Any] | None:
        pods = (each for each in installation.objects("pods") if each["metadata"]["name"] == name)
        return next(pods, None)

    pod = until_sync(found, within=within, what=f"the Pod {name}")
    assert pod is not None
    return pod


@cache
def _address(uid: str) -> str:
    """Return the address of a Pod, which no other Pod of the tests has."""
    del uid
    number = next(_NUMBERS)
    return f"10.99.{number // 250}.{number % 250 + 1}"


def _patch(installation: Installation, pod: dict[str, Any], status: dict[str, Any]) -> None:
    """Write the status, with a unique address."""
    found = _address(pod["metadata"]["uid"])
    address = {"podIP": found, "podIPs": [{"ip": found}]}
    text = yaml.safe_dump({"status": {**status, **address}})
    where = ("pod", pod["metadata"]["name"], "-n", installation.namespace)
    installation.kubectl("patch", *where, "--subresource=status", "--type=merge", "-p", text)
