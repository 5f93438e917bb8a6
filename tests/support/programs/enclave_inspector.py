"""Inspection of a real enclave: its well-known paths, and its processes on this machine."""

import json
import os
import signal
from pathlib import Path
from typing import Any

from tests.support.programs.operator import Installation
from tests.support.programs.web_service import PageServices
from tests.support.waiting import until_sync

__all__ = ["EnclaveInspector", "kill"]


class EnclaveInspector:
    """The serving enclave of a Container."""

    def __init__(self, installation: Installation, pages: PageServices, name: str) -> None:
        self._installation = installation
        self._pages = pages
        self._name = name

    @property
    def enclave(self) -> str:
        """Name of the serving enclave, and of its Pod."""
        container = self._installation.container(self._name)
        assert container is not None
        return container.status.active_enclave

    def well_known(self, path: str) -> Any:
        """Fetch a well-known path through the shim's TLS; None = the status is not 200."""
        page = self._pages.fetch_page(self._installation, self._name, f"/.well-known/{path}")
        if page is None or page.status != 200:
            return None
        return page.body if path == "metrics" else json.loads(page.body)

    def container(self, name: str) -> dict[str, Any]:
        """Fetch the state of one container as the enclave reports it; empty = no response."""
        reported = self.well_known("cloister-containers") or {"containers": ()}
        return next((each for each in reported["containers"] if each["name"] == name), {})

    def page(self, path: str = "/") -> str:
        """Fetch a page; empty = the status is not 200."""
        found = self._pages.fetch_page(self._installation, self._name, path)
        return found.body.strip() if found is not None and found.status == 200 else ""

    def status(self, container: str) -> dict[str, Any]:
        """Return the kubelet's status of a container of the Pod."""
        pods = self._installation.objects("pods")
        (pod,) = (each for each in pods if each["metadata"]["name"] == self.enclave)
        status = pod["status"]
        every = (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ()))
        found: dict[str, Any] = next(each for each in every if each["name"] == container)
        return found

    def kill(self, container: str) -> None:
        """Kill the first process of a container of the Pod, and wait until it is restarted."""
        before = self.status(container)
        kill(before["containerID"].partition("://")[2])

        def again() -> bool:
            now = self.status(container)
            back = "running" in now["state"] and now["restartCount"] > before["restartCount"]
            return bool(back and now["started"])

        until_sync(again, within=180, every=0.3, what=f"{container} of {self.enclave} again")

    def read(self, container: str, path: str) -> str:
        """Read a file in a container that has a shell."""
        namespace = self._installation.namespace
        return self._installation.kubectl(
            "exec", "-n", namespace, self.enclave, "-c", container, "--", "cat", path
        )


def kill(container: str) -> None:
    """Kill the first process of a container on this machine.

    Raises
    ------
    AssertionError
        When no process of that container is the first of its process namespace.
    """
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            groups = (folder / "cgroup").read_text()
            status = (folder / "status").read_text()
        except OSError:
            continue  # it has exited meanwhile
        spaces = next((x.split()[1:] for x in status.splitlines() if x.startswith("NSpid:")), [])
        if container in groups and len(spaces) > 1 and spaces[-1] == "1":
            os.kill(int(folder.name), signal.SIGKILL)
            return
    raise AssertionError(f"no first process of container {container}")
