"""API keys and rate limits of enclaves on a real node, with a stand-in for the API's key check.

The stand-in listens where Pods reach this machine, with a certificate of a private authority, as an
API outside of the cluster does.
"""

import contextlib
import os
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dev.cluster import Cluster
from tests.support.builders.certificates import certificate
from tests.support.programs.operator import Installation, condition_of, operator_lock
from tests.support.programs.web_service import PageServices, page_file
from tests.support.stand_ins.http_server import Reply
from tests.support.stand_ins.key_check import KeyCheck, running_key_check
from tests.support.waiting import until_sync

pytestmark = pytest.mark.node

KEYED = {"authenticated": True, "authenticated-endpoints": ["/keyed/*"], "paths": ["/", "/keyed/*"]}
PAGE = "mkdir -p /tmp/w/keyed && echo open > /tmp/w/index.html && echo in > /tmp/w/keyed/index.html"
SERVE = {"command": ["sh", "-c", f"{PAGE} && exec httpd -f -p 8080 -h /tmp/w"]}


@dataclass(frozen=True)
class GatedInstallation:
    """An installation whose enclaves check keys at the API."""

    installation: Installation
    """The operator on the cluster."""
    pages: PageServices
    """Images and requests."""
    check: KeyCheck
    """The stand-in."""

    def status(self, name: str, path: str, key: str | None = None) -> int:
        """Return the status of a request; 0 = no response."""
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        page = self.pages.fetch_page(self.installation, name, path, headers=headers)
        return 0 if page is None else page.status

    def wait_for_status(self, name: str, path: str, key: str | None, wanted: int) -> None:
        """Wait until a request has a status."""
        until_sync(
            lambda: self.status(name, path, key) == wanted,
            what=f"{wanted} at {path}",
        )

    def pod(self, name: str) -> dict[str, Any]:
        """Return the serving Pod of a Container."""
        enclave = self.installation.wait_for(name, "Ready").status.active_enclave
        pods = self.installation.objects("pods")
        return next(pod for pod in pods if pod["metadata"]["name"] == enclave)


@pytest.fixture(scope="module")
def world(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatedInstallation]:
    pages = PageServices(cluster)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gate")))
        made = certificate(folder, cluster.host_address)
        check = stack.enter_context(
            running_key_check(
                {"tk_good": Reply(200), "tk_capped": Reply(402)},
                tls=made.server(),
                address=cluster.host_address,
            )
        )
        assert check.served is not None
        settings = {
            "apiAddress": f"https://{cluster.host_address}:{check.served.port}",
            "apiAuthorities": str(made.file),
        }
        stack.enter_context(operator_lock(cluster.name))
        installed = Installation(
            cluster, tmp_path_factory.mktemp("installation"), pages.settings | settings
        )
        stack.callback(installed.end)
        installed.prepare()
        installed.create_organization()
        repository = installed.repository("acme/web")
        files: dict[str, dict[str, Any]] = {
            "v1.0.0": KEYED,
            "v2.0.0": {"rate-limit": 0.001, "rate-burst": 5},
            "v3.0.0": {"rate-burst": 5},
        }
        for tag, shim in files.items():
            repository.release(tag, page_file(pages.web, "", shim=shim, **SERVE))
        installed.operator().wait_until_it_leads()
        yield GatedInstallation(installed, pages, check)


def test_api_keys_are_checked_and_only_the_gate_reaches_the_api(world: GatedInstallation) -> None:
    world.installation.create_container("keyed", repo="acme/web", tag="v1.0.0")
    pod = world.pod("keyed")
    world.wait_for_status("keyed", "/", None, 200)
    assert world.status("keyed", "/keyed/") == 401
    assert world.status("keyed", "/keyed/", "tk_wrong") == 401
    assert world.status("keyed", "/keyed/", "tk_capped") == 402
    assert world.status("keyed", "/keyed/", "tk_good") == 200
    assert world.status("keyed", "/Keyed%2f", None) == 404
    container = world.installation.container("keyed")
    assert container is not None
    domain = container.status.domain
    reported = {"api_key": "tk_good", "domain": domain, "requested_host": domain, "path": "/keyed/"}
    assert reported in world.check.received
    (gate,) = [each for each in pod["spec"]["containers"] if each["name"] == "gate"]
    assert gate["securityContext"]["runAsUser"] == 65004
    assert gate["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    _cannot_connect(world, pod)


def _cannot_connect(world: GatedInstallation, pod: dict[str, Any]) -> None:
    """Return whether the file's container cannot connect to the API's address."""
    assert world.check.served is not None
    address = f"{world.installation.cluster.host_address} {world.check.served.port}"
    script = f"nc -w 3 {address} </dev/null && echo open || echo closed"
    place = ("-n", world.installation.namespace, pod["metadata"]["name"], "-c", "web")
    said = world.installation.kubectl("exec", *place, "--", "sh", "-c", script)
    assert said.strip() == "closed"


def test_a_rate_limit_holds_for_the_caller(world: GatedInstallation) -> None:
    world.installation.create_container("rated", repo="acme/web", tag="v2.0.0")
    world.pod("rated")
    seen = []

    def limited() -> bool:
        seen.append(world.status("rated", "/"))
        return seen[-1] == 429

    until_sync(limited, what="the limit")
    assert seen.count(200) == 5


def test_a_file_without_keys_and_rate_limits_has_no_gate(world: GatedInstallation) -> None:
    world.installation.create_container("bare", repo="acme/web", tag="v3.0.0")
    pod = world.pod("bare")
    assert "gate" not in [each["name"] for each in pod["spec"]["containers"]]
    world.wait_for_status("bare", "/", None, 200)


def test_a_killed_gate_is_restarted_and_open_paths_stay_available(world: GatedInstallation) -> None:
    world.installation.create_container("killed", repo="acme/web", tag="v1.0.0")
    pod = world.pod("killed")
    world.wait_for_status("killed", "/keyed/", "tk_good", 200)
    os.kill(_gate_process(pod), signal.SIGKILL)
    assert world.status("killed", "/") == 200
    world.wait_for_status("killed", "/keyed/", "tk_good", 200)

    def restarted() -> bool:
        assert world.status("killed", "/") == 200
        states = world.pod("killed")["status"]["containerStatuses"]
        counts = {each["name"]: each["restartCount"] for each in states}
        return bool(counts["gate"] == 1 and counts["net"] == 0)

    until_sync(restarted, what="a second gate")
    world.wait_for_status("killed", "/keyed/", "tk_wrong", 401)


def _gate_process(pod: dict[str, Any]) -> int:
    """Return the process id of a Pod's gate on this machine."""
    uid = pod["metadata"]["uid"]
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (folder / "cmdline").read_bytes().split(b"\0")
            groups = (folder / "cgroup").read_text().replace("_", "-")
            if command[:2] == [b"/guest", b"gate"] and uid in groups:
                return int(folder.name)
    raise AssertionError("the Pod has no gate")


def keys_checked(world: GatedInstallation, name: str) -> tuple[str, str, str]:
    """Return status, reason and message of a Container's condition about keys."""
    container = world.installation.container(name)
    found = condition_of(container, "KeysChecked") if container is not None else None
    return (found["status"], found["reason"], found["message"]) if found else ("", "", "")


def test_known_api_keys_stay_valid_while_the_api_is_unavailable(world: GatedInstallation) -> None:
    world.installation.create_container("outage", repo="acme/web", tag="v1.0.0")
    world.pod("outage")
    world.wait_for_status("outage", "/keyed/", "tk_good", 200)
    until_sync(
        lambda: keys_checked(world, "outage")[:2] == ("True", "ApiAnswers"),
        what="that keys are checked",
    )
    # That may have taken longer than the cache lifetime of a key.
    world.wait_for_status("outage", "/keyed/", "tk_good", 200)
    world.check.broken = True
    try:
        world.wait_for_status("outage", "/keyed/", "tk_new", 503)
        assert world.status("outage", "/keyed/", "tk_good") == 200
        assert world.status("outage", "/") == 200
        world.wait_for_status("outage", "/keyed/", "tk_good", 503)
    finally:
        world.check.broken = False
    world.wait_for_status("outage", "/keyed/", "tk_good", 200)


def test_an_unavailable_api_is_reported_with_a_remedy(world: GatedInstallation) -> None:
    """The last test: it stops the API for good."""
    world.installation.create_container("gone", repo="acme/web", tag="v1.0.0")
    world.pod("gone")
    world.check.stop()
    asked: list[str] = []

    def reported() -> bool:
        # A change of the Host triggers a reconcile at once, instead of after a minute.
        asked.append(f"example.com/look={len(asked)}")
        label = ("label", "--overwrite", f"host/{world.installation.host}", asked[-1])
        world.installation.kubectl(*label)
        return keys_checked(world, "gone")[:2] == ("False", "ApiUnreachable")

    until_sync(reported, every=1, what="that keys are not checked")
    message = keys_checked(world, "gone")[2]
    assert "503" in message
    assert message.endswith("Bring the API back, or correct apiAddress in the operator's settings.")
    assert world.status("gone", "/") == 200
