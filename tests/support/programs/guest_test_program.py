"""The program of the guest's own tests, as a tenant's image on a cluster, and what it answers.

``operator/guest/testprogram`` is honest or hostile, as its arguments say. Its image also has a
shell and the usual programs, and a user by name, so that more than a uid is resolved.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import yaml

from dev.cluster.guest import guest_binary
from dev.cluster.images import Image, busybox_image
from tests.support.programs.operator import Installation
from tests.support.waiting import until_sync

__all__ = ["GUEST_PLACES", "EnclaveContainers", "container_file", "guest_test_image"]

PASSWD = b"root:x:0:0:root:/root:/bin/sh\napp:x:1234:1235:App:/home/app:/bin/sh\n"
GROUP = b"root:x:0:\ndisk:x:6:root\napp:x:1235:\nextra:x:1300:app\n"
GUEST_PLACES = (
    "/.cloister/wiring/wiring.sock",
    "/.cloister/bin/guest",
    "/.cloister/spec/container-1.json",
    "/.cloister",
)
"""The guest's paths in the second container of a file."""


def guest_test_image(**changes: Any) -> Image:
    """Return the image.

    Parameters
    ----------
    changes
        Changed fields of the image, such as its user.
    """
    plain = busybox_image()
    program = guest_binary("testprogram", "./testprogram")
    files = {
        **plain.files,
        "/bin/testprogram": program,
        "/etc/passwd": PASSWD,
        "/etc/group": GROUP,
    }
    given = {"entrypoint": ("/bin/testprogram",), "command": ("pause",), **changes}
    return replace(plain, files=files, **given)


def container_file(containers: Sequence[Mapping[str, Any]], **changes: Any) -> bytes:
    """Write a configuration file.

    Parameters
    ----------
    containers
        Its containers; the first is the shim's target unless `changes` says otherwise.
    """
    document = {
        "cvm-version": "0.10.0",
        "cpus": 2,
        "memory": 8192,
        "containers": [dict(each) for each in containers],
        "shim": {"upstream-port": 8080, "paths": ["/*"]},
        **changes,
    }
    return yaml.safe_dump(document, sort_keys=False).encode()


class EnclaveContainers:
    """The containers of an Enclave, inspected from inside."""

    def __init__(self, installation: Installation, enclave: str) -> None:
        self.installation = installation
        self.enclave = enclave

    def run(self, container: str, *command: str) -> str:
        """Run a command in a container's namespaces, and return its output.

        It is the administrator's raw exec, with the privileges that the kubelet starts with: it
        shows the namespaces, not the program's privileges.
        """
        where = ("-n", self.installation.namespace, self.enclave, "-c", container)
        return self.installation.kubectl("exec", *where, "--", *command)

    def log(self, container: str) -> str:
        """Return the log of a container."""
        where = ("-n", self.installation.namespace, self.enclave, "-c", container)
        return self.installation.kubectl("logs", *where)

    def reported(self, container: str, *, within: float = 120.0) -> Any:
        """Wait for the first line of JSON in a container's log, and parse it."""

        def line() -> str:
            lines = self.log(container).splitlines()
            return next((each for each in lines if each.startswith(("{", "["))), "")

        return json.loads(until_sync(line, within=within, every=0.5, what=f"output of {container}"))

    def pod(self) -> dict[str, Any]:
        """Read the Pod."""
        found: dict[str, Any] = yaml.safe_load(
            self.installation.kubectl(
                "get", "pod", self.enclave, "-n", self.installation.namespace, "-o", "json"
            )
        )
        return found

    def termination(self, container: str) -> dict[str, Any] | None:
        """Return how a container terminated; None = it is running."""
        for each in self.pod()["status"]["containerStatuses"]:
            if each["name"] == container:
                ended: dict[str, Any] | None = each["state"].get("terminated")
                return ended
        return None
