"""A cluster is lost, and what was backed up goes on in an empty one: with its operator, its Pods.

The commands are those of docs/operations/backup.md, for the chart's SQLite.
"""

import os
from collections.abc import Iterator
from math import isnan
from pathlib import Path
from typing import Any

import pytest

from dev.chart.helm import NAMESPACE as SYSTEM
from dev.chart.local import PATIENCE, POD_USER
from dev.demo import repository
from tests.support.installed.chart import this_chart
from tests.support.installed.life import Tenant
from tests.support.installed.pages import Reader, blocks
from tests.support.installed.place import TAGS, place_to_install
from tests.support.waiting import until_sync

pytestmark = [
    pytest.mark.node,
    pytest.mark.images,
    pytest.mark.programs("helm"),
    pytest.mark.timeout(1800),
]

PAGE = "operations/backup.md"
CLAIM = "backups"


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    folder = tmp_path_factory.mktemp("restore")
    chart = this_chart(folder)
    with place_to_install("restore", folder, chart) as place:
        place.prepare(chart)
        archives = folder / CLAIM
        archives.mkdir()
        os.chown(archives, POD_USER, POD_USER)
        place.with_chart(chart).apply(volume(archives))
        place.changed["backup"] = {"enabled": True, "existingClaim": CLAIM, "keep": 2}
        place.install("install", chart)
        yield Reader(place, chart)


def volume(path: Path) -> dict[str, Any]:
    """Return a volume for the claim of backups, where the cluster makes none."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": CLAIM},
        "spec": {
            "capacity": {"storage": "20Gi"},
            "accessModes": ["ReadWriteOnce"],
            "claimRef": {"namespace": SYSTEM, "name": CLAIM},
            "hostPath": {"path": str(path), "type": "Directory"},
        },
    }


def follow(reader: Reader, *, beginning: str) -> None:
    """Run the block of the page that has a command with this beginning."""
    (block,) = (each for each in blocks(PAGE) if any(one.startswith(beginning) for one in each))
    failed = reader.follow(PAGE, block, {})
    assert not failed, failed


def backed_up_at(reader: Reader) -> float:
    """Return what the API reports of the last backup; NaN if it knows none."""
    kubectl = reader.place.cluster.kubectl
    pod = kubectl(
        *("get", "pods", "-n", SYSTEM, "-l", "app.kubernetes.io/component=api"),
        "-ojsonpath={.items[0].metadata.name}",
    )
    text = kubectl("get", "--raw", f"/api/v1/namespaces/{SYSTEM}/pods/{pod}:9090/proxy/metrics")
    name = "cloister_api_backup_timestamp_seconds "
    found = (each.removeprefix(name) for each in text.splitlines() if each.startswith(name))
    return float(next(found, "nan"))


def record(tenant: Tenant) -> dict[str, Any]:
    """Return what a user knows the only container by."""
    (found,) = tenant.call("GET", "/api/containers")
    return {key: found[key] for key in ("id", "name", "domain", "current_tag", "secrets")}


def test_containers_go_on_in_a_cluster_that_was_restored(reader: Reader) -> None:
    place, chart = reader.place, reader.chart
    tenant = Tenant.create(place.with_chart(chart))
    tenant.call("POST", "/api/secrets", {"name": "GREETING", "value": "Welcome back"})
    body = {"name": "web", "repo": repository.REPO, "tag": TAGS[0], "secrets": ["GREETING"]}
    tenant.call("POST", "/api/containers", body)
    tenant.wait_until_ready()
    before, pods, page = record(tenant), tenant.pods(), tenant.page()

    # By hand, and by the CronJob; the archive of the latter is restored.
    follow(reader, beginning="kubectl cloister backup backup.tar.gz")
    assert isnan(backed_up_at(reader))
    (place.folder / "backup.tar.gz").unlink()
    follow(reader, beginning="kubectl apply")
    follow(reader, beginning="kubectl -n cloister-system create job")
    until_sync(
        lambda: not isnan(backed_up_at(reader)), within=PATIENCE, what="the metric of the backup"
    )
    (archive,) = (place.folder / CLAIM).iterdir()
    archive.rename(place.folder / "backup.tar.gz")

    place.lose_cluster(chart)
    assert not place.cluster.kubectl("get", "crd", "-oname")
    place.install("install", chart)
    *_, stop, objects, ledger, start = blocks(PAGE)
    for block in (stop, objects, ledger, start):
        failed = reader.follow(PAGE, block, {})
        assert not failed, failed

    tenant.wait_until_ready()
    # The same identifiers, names and keys; the Pod is another one, and has the same secret.
    assert record(tenant) == before
    assert not {each for each, _ in pods} & {each for each, _ in tenant.pods()}
    assert until_sync(lambda: tenant.page().body, what="the page") == page.body
    tenant.call("POST", f"/api/containers/{before['id']}/relaunch", {"tag": TAGS[1]})
    until_sync(lambda: record(tenant)["current_tag"] == TAGS[1], within=PATIENCE, what="an update")
