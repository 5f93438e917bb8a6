"""Encrypted bodies in an enclave on a real node, with an unmodified client of others."""

import contextlib
import json
import os
import shutil
import signal
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dev.cluster import Cluster
from tests.support.programs.ehbp_clients import CLIENTS, foreign_request
from tests.support.programs.operator import Installation, operator_lock
from tests.support.programs.web_service import PageServices, page_file
from tests.support.waiting import until_sync

pytestmark = [
    pytest.mark.node,
    pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed"),
]

ECHO = (
    "#!/bin/sh\\nprintf 'Content-Type: text/plain\\\\r\\\\n\\\\r\\\\n'\\nprintf 'got '; exec cat\\n"
)
FOLDER = "mkdir -p /tmp/w/cgi-bin && echo open > /tmp/w/index.html"
SCRIPT = f'printf "{ECHO}" > /tmp/w/cgi-bin/echo && chmod 755 /tmp/w/cgi-bin/echo'
SERVE = {
    "command": ["sh", "-c", f"{FOLDER} && {SCRIPT} && exec httpd -f -p 8080 -h /tmp/w"],
    "tmpfs": {"/tmp": "size=8m,exec"},
}
SHIM = {"ehbp": "required", "paths": ["/", "/cgi-bin/echo"]}


@dataclass(frozen=True)
class EncryptedInstallation:
    """An installation with one enclave."""

    installation: Installation
    """The operator on the cluster."""
    pages: PageServices
    """Images and requests."""

    def get(self, path: str) -> str:
        """Return the body of a response."""
        page = self.pages.await_page(self.installation, "web", path)
        assert page.status == 200, page
        return page.body

    def key(self) -> str:
        """Return the key that the enclave's evidence binds."""
        document = json.loads(self.get("/.well-known/cloister-attestation"))
        keys = json.loads(b64decode(document["crypto_material"]))
        key: str = keys["hpke_x25519"]
        return key

    @property
    def url(self) -> str:
        """Address of the Service."""
        services = self.installation.objects("services")
        (address,) = [
            each["spec"]["clusterIP"] for each in services if each["metadata"]["name"] == "web"
        ]
        return f"https://{address}"

    def pod(self) -> dict[str, Any]:
        """Return the serving Pod."""
        enclave = self.installation.wait_for("web", "Ready").status.active_enclave
        pods = self.installation.objects("pods")
        return next(pod for pod in pods if pod["metadata"]["name"] == enclave)


@pytest.fixture(scope="module")
def world(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EncryptedInstallation]:
    pages = PageServices(cluster)
    with contextlib.ExitStack() as stack:
        stack.enter_context(operator_lock(cluster.name))
        installed = Installation(cluster, tmp_path_factory.mktemp("installation"), pages.settings)
        stack.callback(installed.end)
        installed.prepare()
        installed.create_organization()
        repository = installed.repository("acme/web")
        repository.release("v1.0.0", page_file(pages.web, "", shim=SHIM, **SERVE))
        installed.operator().wait_until_it_leads()
        installed.create_container("web", repo="acme/web", tag="v1.0.0")
        yield EncryptedInstallation(installed, pages)


def test_bodies_are_encrypted_to_the_key_that_evidence_binds(world: EncryptedInstallation) -> None:
    pod = world.pod()
    (part,) = [each for each in pod["spec"]["containers"] if each["name"] == "ehbp"]
    assert part["securityContext"]["runAsUser"] == 65008
    assert part["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    key = world.key()
    for client in CLIENTS:
        sent = foreign_request(client, world.url, "/cgi-bin/echo", pieces=["grüezi"], key=key)
        with sent as request:
            status, text = request.response()
        # The body of the other client is in chunks, which this server takes for something else.
        assert (status, text[:4]) == (200, "got ")
        assert client != "javascript" or text == "got grüezi"
    assert world.get("/") == "open\n"
    os.kill(_process(pod), signal.SIGKILL)

    def again() -> bool:
        states = world.pod()["status"]["containerStatuses"]
        return any(each["name"] == "ehbp" and each["restartCount"] for each in states)

    until_sync(again, what="its restart")
    until_sync(lambda: world.key() == key, what="the same key")

    def passes_on() -> bool:
        # It runs again, but it may not listen yet.
        sent = foreign_request("python", world.url, "/cgi-bin/echo", pieces=["x"], key=key)
        with sent as request:
            return bool(request.response()[0] == 200)

    until_sync(passes_on, what="a body encrypted to the same key")


def _process(pod: dict[str, Any]) -> int:
    """Return the process id of a Pod's part for encrypted bodies on this machine."""
    uid = pod["metadata"]["uid"]
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (folder / "cmdline").read_bytes().split(b"\0")
            groups = (folder / "cgroup").read_text().replace("_", "-")
            if command[:2] == [b"/guest", b"ehbp"] and uid in groups:
                return int(folder.name)
    raise AssertionError("the Pod has no such process")
