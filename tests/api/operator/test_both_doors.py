"""Each call of the Admin API and the manifest change that does the same, as the manual lists them.

The call is made on one container and the change on another; an operator looks at both. There is no
node: `tests.support.stand_ins.pod_status` writes the status of Pods as a kubelet would.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from cloister_crds.kinds import Container
from dev.cluster import Cluster
from dev.cluster.images import Image, push
from tests.support.lifecycles.doors import REPO, Doors
from tests.support.programs.operator import (
    Installation,
    condition_of,
    file_text,
    operator_lock,
)
from tests.support.programs.operator_facade import facade_of
from tests.support.servers.git import Repository
from tests.support.waiting import until_sync

MANUAL = Path(__file__).parents[3] / "docs" / "lifecycle.md"


Step = Callable[[Doors], object]


@dataclass(frozen=True)
class Row:
    """A row of the manual's table."""

    before: Step
    """What both containers go through first."""
    call: Step
    """The call."""
    change: Step
    """The manifest change."""
    phase: str
    """Status word after it."""
    reason: str
    """Reason of Ready after it."""
    staging: bool = False
    """Whether the two are created with staging."""


def young(_doors: Doors) -> None:
    """Leave both in their rollout."""


def stopped(doors: Doors) -> None:
    """Let both be stopped."""
    doors.post("stop")
    doors.patch(state="Stopped")
    for name in (doors.rest, doors.manifest):
        doors.installation.wait_for(name, "Ready", reason="Stopped")


def replace_both(doors: Doors) -> None:
    """Go on with the containers that replace the two."""
    doors.replaced = (doors.rest, doors.manifest)
    doors.path = doors.create(doors.rest, replace_container_id=doors.identity)
    before = doors.manifest
    doors.rest, doors.manifest = f"{doors.rest}.2", f"{doors.manifest}.2"
    doors.apply(doors.manifest, name=before, replaces=before)


def revision(doors: Doors) -> str:
    """Return the revision of the update that waits."""
    update = doors.of(doors.manifest).status.update
    assert update is not None
    return update.revision


ROWS: dict[str, Row] = {
    "POST /api/containers": Row(young, young, young, "deploying", "Deploying"),
    "POST /api/containers with replace_container_id": Row(
        Doors.ready, replace_both, young, "deploying", "Deploying"
    ),
    "POST …/relaunch with tag": Row(
        Doors.ready,
        lambda d: d.post("relaunch", tag="v1.1.0"),
        lambda d: d.patch(**d.tag("v1.1.0")),
        "ready",
        "Updating",
    ),
    "POST …/relaunch with variables": Row(
        young,
        lambda d: d.post("relaunch", variables={"COLOUR": "blue"}),
        lambda d: d.patch(variables=[{"name": "COLOUR", "value": "blue"}], relaunch="again"),
        "deploying",
        "Deploying",
    ),
    "POST …/relaunch with debug": Row(
        young,
        lambda d: d.post("relaunch", debug=True),
        lambda d: d.patch(debug=True, relaunch="again"),
        "deploying",
        "Deploying",
    ),
    "POST …/relaunch with staging": Row(
        young,
        lambda d: d.post("relaunch", staging=True),
        lambda d: d.patch(staging=True, relaunch="again"),
        "deploying",
        "Deploying",
    ),
    "POST …/relaunch": Row(
        young,
        lambda d: d.post("relaunch"),
        lambda d: d.patch(relaunch="again"),
        "deploying",
        "Deploying",
    ),
    "POST …/stop": Row(
        young,
        lambda d: d.post("stop"),
        lambda d: d.patch(state="Stopped"),
        "stopped",
        "Stopped",
    ),
    "POST …/start": Row(
        stopped,
        lambda d: d.post("start"),
        lambda d: d.patch(state="Running", relaunch="again"),
        "deploying",
        "Deploying",
    ),
    "POST …/update/accept": Row(
        Doors.update,
        lambda d: d.post("update/accept"),
        lambda d: d.patch(promote=revision(d)),
        "ready",
        "Serving",
        staging=True,
    ),
    "POST …/update/cancel": Row(
        Doors.update,
        lambda d: d.post("update/cancel"),
        lambda d: d.patch(tag="v1.0.0", commit=d.commits["v1.0.0"], relaunch=None),
        "ready",
        "Serving",
        staging=True,
    ),
    "POST …/auto-update": Row(
        young,
        lambda d: d.post("auto-update", auto_update=True),
        lambda d: d.patch(autoUpdate=True),
        "deploying",
        "Deploying",
    ),
    "POST …/github-connection": Row(
        young,
        lambda d: d.post("github-connection", connected=False),
        lambda d: d.patch(githubConnected=False),
        "deploying",
        "Deploying",
    ),
    "POST /api/deployments/:id/update": Row(
        Doors.ready,
        Doors.update_all,
        lambda d: d.patch(**d.tag("v1.1.0", relaunchStaging=False)),
        "ready",
        "Updating",
    ),
}
"""Rows by their call, as the manual writes it."""
OTHERS = {"DELETE …/:id", "PATCH /api/deployments/:id"}
"""Rows with a test of their own below."""


@pytest.fixture(scope="module")
def installed(
    api_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Installation, httpx.Client]]:
    image = push(Image(files={"/x": b"x"}, entrypoint=("/x",)), api_cluster.registry, "tests/x")
    with operator_lock(api_cluster.name):
        folder = tmp_path_factory.mktemp("installation")
        made = Installation(api_cluster, folder, {"claimAgeSeconds": 1})
        try:
            made.prepare()
            made.create_organization()
            repository = made.repository(REPO)
            for tag in ("v1.0.0", "v1.1.0"):
                repository.release(tag, file_text(image, command=(f"/{tag}",), env=["COLOUR"]))
            made.operator().wait_until_it_leads()
            with facade_of(made) as client:
                yield made, client
        finally:
            made.end()


@pytest.fixture
def doors(installed: tuple[Installation, httpx.Client]) -> Doors:
    repository = installed[0].repositories.path / f"{REPO}.git"
    found = Doors(*installed)
    for tag in ("v1.0.0", "v1.1.0"):
        place = repository / "refs" / "tags" / tag
        found.commits[tag] = place.read_text().strip()
    return found


def spec_of(container: Container) -> dict[str, Any]:
    """Return a spec without its own parts: names, the default of staging, the text of relaunch."""
    spec = container.spec.wire()
    for own in ("name", "promote", "staging"):  # REST writes the default of staging
        spec.pop(own, None)
    for marked in ("relaunch", "replaces"):
        if spec.get(marked):
            spec[marked] = "set"
    return spec


def seen(container: Container) -> tuple[object, ...]:
    """Return what a user sees of a container, without its own names."""
    status = container.status
    ready = condition_of(container, "Ready")
    update = status.update
    return (
        status.observed_generation == container.metadata.generation,
        str(status.phase),
        ready["reason"] if ready is not None else "",
        (str(update.status), str(update.type), update.tag) if update is not None else None,
        status.current_tag,
        bool(status.active_enclave),
        bool(status.candidate),
        sorted(each.type for each in status.conditions if str(each.status) == "True"),
    )


@pytest.mark.lifecycle("start", "stop", "update-of-all")
@pytest.mark.parametrize("call", ROWS)
def test_a_call_and_its_manifest_change_do_the_same(doors: Doors, call: str) -> None:
    row = ROWS[call]
    doors.begin(staging=row.staging)
    row.before(doors)
    row.call(doors)
    row.change(doors)

    def settled() -> bool:
        one, other = (seen(doors.of(name)) for name in (doors.rest, doors.manifest))
        assert one == other, (call, one, other)
        assert one[:3] == (True, row.phase, row.reason), one
        return True

    until_sync(settled, within=90, every=0.3, what=call)
    assert spec_of(doors.of(doors.rest)) == spec_of(doors.of(doors.manifest))
    doors.delete()


@pytest.mark.lifecycle("deleted")
def test_a_delete_is_a_delete(doors: Doors) -> None:
    doors.begin(staging=False)
    doors.run()
    doors.delete()

    def gone() -> bool:
        names = {each["metadata"]["name"] for each in doors.installation.objects("ctr,encl")}
        return not any(name.startswith((doors.rest, doors.manifest)) for name in names)

    until_sync(gone, within=60, what="the end of both")


def test_the_default_of_staging_is_a_field_of_the_deployment(doors: Doors) -> None:
    doors.begin(staging=False)
    path = f"/api/deployments/{doors.only_deployment()['id']}"
    assert doors.client.patch(path, json={"default_staging": True}).status_code == 200
    (called,) = doors.installation.objects("deployments.cloister.dev")
    doors.deployment(defaultStaging=False)
    doors.deployment(defaultStaging=True)
    (patched,) = doors.installation.objects("deployments.cloister.dev")
    assert called["spec"] == patched["spec"] == {"repo": REPO, "defaultStaging": True}
    doors.deployment(defaultStaging=False)
    doors.delete()


@pytest.mark.spec("5.7", "23.5")
@pytest.mark.lifecycle("update-of-all")
def test_an_update_of_all_instances_while_some_are_stopped(doors: Doors) -> None:
    idle = replace(doors)
    idle.begin(staging=False)
    idle.ready()
    stopped(idle)
    doors.begin(staging=False)
    doors.ready()
    found = doors.only_deployment()
    for each, word in ((doors, "ready"), (idle, "stopped")):
        each.await_shown(word)
    response = doors.client.post(
        f"/api/deployments/{found['id']}/update",
        json={"tag": "v1.1.0", "instance_ids": [doors.identity, idle.identity]},
    )
    results = {each["container_id"]: each for each in response.json()["results"]}
    assert results[doors.identity]["status"] == "updating", response.text
    skipped = results[idle.identity]
    assert (skipped["status"], skipped["error"]) == ("skipped", "instance is not running")
    for each in (doors, idle):  # as one commit in a repository does
        each.patch(**each.tag("v1.1.0"))
    doors.run()
    for name in (doors.rest, doors.manifest):
        container = doors.installation.wait_for(name, "Ready", reason="Serving")
        assert container.status.current_tag == "v1.1.0"
    # Nothing starts what is stopped; the next start deploys what its own door requested.
    requests = {idle.rest: "v1.0.0", idle.manifest: "v1.1.0"}
    for name, tag in requests.items():
        status = idle.installation.wait_for(name, "Ready", reason="Stopped").status
        assert (status.phase, status.requested_tag, status.candidate) == ("stopped", tag, "")
    idle.post("start")
    idle.patch(state="Running")
    idle.ready()
    for name, tag in requests.items():
        assert idle.of(name).status.current_tag == tag
    doors.delete()
    idle.delete()


@pytest.mark.spec("12.1")
def test_an_update_at_the_instance_limit_is_no_further_instance(doors: Doors) -> None:
    def alone() -> bool:
        return not doors.installation.objects("ctr,encl,pods")

    until_sync(alone, what="the end of earlier containers")
    doors.begin(staging=False)
    doors.ready()
    doors.limit(2)
    try:
        body = {"name": "more", "repo": REPO, "tag": "v1.0.0", "host_name": doors.installation.host}
        asked = {"instance_name": "more", "repo": REPO, "tag": "v1.0.0"}
        validate = partial(doors.client.post, "/api/containers/validate", json=asked)
        until_sync(lambda: not validate().json()["valid"], what="the limit in the facade")
        refused = doors.client.post("/api/containers", json=body)
        assert (refused.status_code, refused.json()["code"]) == (403, "FORBIDDEN"), refused.text
        assert "quota reached" in refused.json()["error"]
        doors.apply("further")
        until_sync(lambda: reason_of(doors.of("further"), "Stalled") == "LimitReached", what="it")
        doors.post("relaunch", tag="v1.1.0")
        doors.patch(**doors.tag("v1.1.0"))
        for name in (doors.rest, doors.manifest):
            candidate = doors.candidate(name)
            container = doors.of(name)
            # The candidate is beside what serves, and neither counts twice.
            assert container.status.phase == "ready"
            assert container.status.active_enclave not in ("", candidate)
        doors.ready()
        for name in (doors.rest, doors.manifest):
            assert doors.of(name).status.current_tag == "v1.1.0"
        assert reason_of(doors.of("further"), "Stalled") == "LimitReached"
    finally:
        doors.limit(1000)
    doors.candidate("further")
    doors.installation.kubectl("delete", "ctr/further", "-n", doors.place)
    doors.delete()


def test_a_tag_that_moved_keeps_its_commit_at_both_doors(doors: Doors) -> None:
    doors.begin(staging=False)
    doors.patch(commit=None)
    doors.ready()
    names = (doors.rest, doors.manifest)
    before = {name: doors.of(name).status.active_enclave for name in names}
    repository = Repository(doors.installation.repositories.path / f"{REPO}.git")
    kept = doors.commits["v1.0.0"]
    moved = repository.commit({"service-config.yml": b"cvm-version: 0.10.0\n"})
    repository.tag("v1.0.0", moved)
    try:
        doors.post("relaunch")
        doors.patch(relaunch="again")
        doors.run()
        for name in names:
            doors.installation.wait_for(name, "Ready", reason="Serving")
            container = doors.of(name)
            assert container.status.current_commit == kept
            assert container.status.active_enclave != before[name]
            found = condition_of(container, "TagMoved")
            assert found is not None
            assert kept in found["message"]
            assert moved in found["message"]
    finally:
        repository.tag("v1.0.0", kept)
    doors.delete()


def reason_of(container: Container, kind: str) -> str:
    """Return the reason of a condition; empty = it has none of that type."""
    found = condition_of(container, kind)
    return found["reason"] if found is not None else ""


def test_the_manual_lists_these_rows_and_no_others() -> None:
    row = re.compile(r"^\| `((?:POST|PATCH|DELETE) [^`]*)`([^|]*)\|", re.MULTILINE)
    listed = row.findall(MANUAL.read_text())
    assert {(call + more).strip().replace("`", "") for call, more in listed} == {*ROWS, *OTHERS}
