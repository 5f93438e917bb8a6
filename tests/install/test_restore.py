"""A cluster is lost, and what was backed up goes on in an empty one: with its operator, its Pods.

The steps are those of docs/operations/backup.md, for the chart's SQLite.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dev.chart.helm import NAMESPACE as SYSTEM
from dev.chart.local import API_CONFIG, PATIENCE
from dev.demo import repository
from tests.support.installed.chart import Chart, this_chart
from tests.support.installed.life import Tenant
from tests.support.installed.place import TAGS, Place, place_to_install
from tests.support.waiting import until_sync

pytestmark = [
    pytest.mark.node,
    pytest.mark.images,
    pytest.mark.programs("helm"),
    pytest.mark.timeout(1800),
]

COMMAND = Path(sys.executable).with_name("cloister")
LEDGER = ("cloister", "ledger")
SETTINGS = ("--config", API_CONFIG)


@dataclass(frozen=True, slots=True)
class Installed:
    """An installation with a backup's files."""

    place: Place
    chart: Chart

    @property
    def archive(self) -> Path:
        """The backup."""
        return self.place.folder / "backup.tar.gz"

    def in_api(self, *command: str, data: bytes | None = None) -> bytes:
        """Run a command in the API's Pod, and return its output."""
        cluster = self.place.cluster
        kubectl = (cluster.bin("kubectl"), f"--kubeconfig={cluster.kubeconfig}", "exec")
        stdin = () if data is None else ("-i",)
        return run(*kubectl, *stdin, "-n", SYSTEM, "deploy/cloister-api", "--", *command, data=data)

    def back_up(self) -> None:
        """Back up the ledger of the API's Pod, and everything with it."""
        ledger = self.place.folder / "ledger.db"
        ledger.write_bytes(self.in_api(*LEDGER, "backup", "-", *SETTINGS))
        self.as_administrator("backup", self.archive, "--ledger", ledger)

    def restore(self) -> None:
        """Install on an empty cluster, and restore everything while no operator runs."""
        kubectl = self.place.cluster.kubectl
        self.place.install("install", self.chart)
        operator, api = "deployment/cloister-operator", "deployment/cloister-api"
        kubectl("-n", SYSTEM, "scale", operator, "--replicas=0")
        pods = ("get", "pods", "-n", SYSTEM, "-l", "app.kubernetes.io/component=operator")
        until_sync(lambda: not kubectl(*pods, "-oname"), within=PATIENCE, what="no operator")
        self.as_administrator("restore", self.archive, "--no-ledger")
        kubectl("-n", SYSTEM, "rollout", "restart", api)
        self.place.wait_for_rollout("api")
        ledger = run("tar", "-xOzf", self.archive, "ledger.db")
        self.in_api(*LEDGER, "restore", "-", *SETTINGS, data=ledger)
        kubectl("-n", SYSTEM, "scale", operator, "--replicas=2")
        self.place.wait_for_rollout("operator")

    def as_administrator(self, command: str, *arguments: str | Path) -> None:
        """Run `cloister` as an administrator of the cluster."""
        environment = {**os.environ, "KUBECONFIG": str(self.place.cluster.kubeconfig)}
        run(COMMAND, command, *arguments, environment=environment)


def run(
    *command: str | Path, data: bytes | None = None, environment: dict[str, str] | None = None
) -> bytes:
    """Run a program, and return its output."""
    done = subprocess.run(command, input=data, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    folder = tmp_path_factory.mktemp("restore")
    chart = this_chart(folder)
    with place_to_install("restore", folder, chart) as place:
        place.prepare(chart)
        place.install("install", chart)
        yield Installed(place, chart)


def record(tenant: Tenant) -> dict[str, Any]:
    """Return what a user knows the only container by."""
    (found,) = tenant.call("GET", "/api/containers")
    return {key: found[key] for key in ("id", "name", "domain", "current_tag", "secrets")}


def test_containers_go_on_in_a_cluster_that_was_restored(installed: Installed) -> None:
    tenant = Tenant.create(installed.place.with_chart(installed.chart))
    tenant.call("POST", "/api/secrets", {"name": "GREETING", "value": "Welcome back"})
    body = {"name": "web", "repo": repository.REPO, "tag": TAGS[0], "secrets": ["GREETING"]}
    tenant.call("POST", "/api/containers", body)
    tenant.wait_until_ready()
    before, pods, page = record(tenant), tenant.pods(), tenant.page()
    installed.back_up()

    installed.place.lose_cluster(installed.chart)
    assert not installed.place.cluster.kubectl("get", "crd", "-oname")
    installed.restore()

    tenant.wait_until_ready()
    # The same identifiers, names and keys; the Pod is another one, and has the same secret.
    assert record(tenant) == before
    assert not {each for each, _ in pods} & {each for each, _ in tenant.pods()}
    assert until_sync(lambda: tenant.page().body, what="the page") == page.body
    tenant.call("POST", f"/api/containers/{before['id']}/relaunch", {"tag": TAGS[1]})
    until_sync(lambda: record(tenant)["current_tag"] == TAGS[1], within=PATIENCE, what="an update")
