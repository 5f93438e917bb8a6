"""Each call of the Admin API and the manifest change that does the same, as the manual lists them.

The call is made on one container and the change on another; an operator looks at both. There is no
node: `tests.support.stand_ins.pod_status` writes the status of Pods as a kubelet would.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from cloister_crds.kinds import Container
from cloister_crds.names import deployment_name
from dev.cluster import Cluster
from dev.cluster.images import Image, push
from tests.support.programs.operator import (
    Installation,
    condition_of,
    file_text,
    manifest,
    operator_lock,
)
from tests.support.programs.operator_facade import facade_of
from tests.support.stand_ins.pod_status import run_pod
from tests.support.waiting import until_sync

MANUAL = Path(__file__).parents[3] / "docs" / "lifecycle.md"
REPO = "acme/doors"
NUMBERS = count(1)


@dataclass
class Doors:
    """Two containers of the same request, one for each interface."""

    installation: Installation
    """The operator's side."""
    client: httpx.Client
    """The REST interface."""
    rest: str = ""
    """Name of the container that is called."""
    manifest: str = ""
    """Name of the container that is patched."""
    path: str = ""
    """Path of the container that is called."""
    commits: dict[str, str] = field(default_factory=dict)
    """Commit of each tag; a call pins it."""

    def of(self, name: str) -> Container:
        """Read a container."""
        found = self.installation.container(name)
        assert found is not None, name
        return found

    def post(self, action: str, **body: Any) -> None:
        """Call an action on the container as it is now, whose status the operator has written."""
        version = self.of(self.rest).metadata.resource_version
        seen = {"X-Consistency-Token": version}
        answer = self.client.post(f"{self.path}/{action}", json=body, headers=seen)
        assert answer.status_code in {200, 204}, answer.text

    def patch(self, **spec: Any) -> None:
        """Change the manifest."""
        where = (f"ctr/{self.manifest}", "-n", self.installation.namespace, "--type=merge")
        self.installation.kubectl("patch", *where, "-p", json.dumps({"spec": spec}))

    def tag(self, tag: str, **more: Any) -> dict[str, Any]:
        """Return the fields of another tag, as a call writes them."""
        return {"tag": tag, "commit": self.commits[tag], "relaunch": "again", **more}

    def apply(self, called: str, **spec: Any) -> None:
        """Apply a manifest as a whole."""
        commit = self.commits["v1.0.0"]
        given = {"repo": REPO, "tag": "v1.0.0", "commit": commit, "host": self.installation.host}
        self.installation.apply(manifest("Container", called, given | spec, self.place))

    def create(self, name: str, **body: Any) -> str:
        """Create over REST, and return the path."""
        given = {"name": name, "repo": REPO, "tag": "v1.0.0", "host_name": self.installation.host}
        answer = self.client.post("/api/containers", json=given | body)
        assert answer.status_code == 201, answer.text
        return str(answer.headers["location"])

    def begin(self, *, staging: bool) -> None:
        """Create the two containers."""
        number = next(NUMBERS)
        self.rest, self.manifest = f"r{number}", f"m{number}"
        body = {"staging": True} if staging else {}
        self.path = self.create(self.rest, **body)
        self.apply(self.manifest, **body)

    def run(self) -> None:
        """Let the Pods of both candidates come up."""
        for name in (self.rest, self.manifest):
            run_pod(self.installation, self.candidate(name))

    def candidate(self, name: str) -> str:
        """Wait for the candidate of a container."""
        return until_sync(lambda: self.of(name).status.candidate, within=60, what=name)

    def ready(self) -> None:
        """Let both serve."""
        self.run()
        for name in (self.rest, self.manifest):
            self.installation.wait_for(name, "Ready", reason="Serving")

    def update(self) -> None:
        """Bring both as far as a staged update that waits."""
        self.ready()
        self.post("relaunch", tag="v1.1.0")
        self.patch(**self.tag("v1.1.0"))
        self.run()
        for name in (self.rest, self.manifest):
            self.installation.wait_for(name, "Ready", reason="AwaitingPromotion")

    def deployment(self, **spec: Any) -> None:
        """Change the Deployment's manifest."""
        name = f"deployments.cloister.dev/{deployment_name(REPO)}"
        where = (name, "-n", self.installation.namespace, "--type=merge")
        self.installation.kubectl("patch", *where, "-p", json.dumps({"spec": spec}))

    def only_deployment(self) -> dict[str, Any]:
        """Wait until the facade shows the one Deployment that there is.

        The operator sweeps that of earlier containers, and makes it again for these.
        """

        def known(name: str) -> bool:
            status = self.of(name).status
            return bool(status.candidate or status.active_enclave)

        for name in (self.rest, self.manifest):
            until_sync(partial(known, name), within=60, what=name)

        def shown() -> dict[str, Any] | None:
            there = self.installation.objects("deployments.cloister.dev")
            found: list[dict[str, Any]] = self.client.get("/api/deployments").json()
            same = [each["metadata"]["uid"] for each in there] == [each["id"] for each in found]
            return found[0] if found and same else None

        found = until_sync(shown, what="the Deployment")
        assert found is not None
        return found

    def delete(self) -> None:
        """Delete both, the one by a call."""
        assert self.client.delete(self.path).status_code == 204
        self.installation.kubectl("delete", f"ctr/{self.manifest}", "-n", self.place)

    @property
    def place(self) -> str:
        """The namespace."""
        return self.installation.namespace

    def update_all(self) -> None:
        """Update the instance by the call for a repository's instances."""
        until_sync(lambda: self.client.get(self.path).json()["status"] == "ready", what=self.rest)
        found = self.only_deployment()
        identity = self.path.rsplit("/", 1)[-1]
        body = {"tag": "v1.1.0", "staging": False, "instance_ids": [identity]}
        answer = self.client.post(f"/api/deployments/{found['id']}/update", json=body)
        assert [each["status"] for each in answer.json()["results"]] == ["updating"], answer.text


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
    old = doors.path.rsplit("/", 1)[-1]
    doors.path = doors.create(doors.rest, replace_container_id=old)
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
        lambda d: d.patch(**d.tag("v1.1.0", staging=False)),
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
    """Return a spec without the container's own parts: names, and the text of relaunch."""
    spec = container.spec.wire()
    for own in ("name", "promote"):
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


def test_the_manual_lists_these_rows_and_no_others() -> None:
    row = re.compile(r"^\| `((?:POST|PATCH|DELETE) [^`]*)`([^|]*)\|", re.MULTILINE)
    listed = row.findall(MANUAL.read_text())
    assert {(call + more).strip().replace("`", "") for call, more in listed} == {*ROWS, *OTHERS}
