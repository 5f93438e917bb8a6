"""What becomes of the release: each cell of the manual's table through both doors, by an operator.

Each cell has a container for each door; all go through their states together. No node: simulated
nodes write the status of Pods, and the first attempt of what has to fail fails.
"""

import contextlib
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Container, Enclave
from cloister_crds.kinds.container import ContainerPhase, UpdatePhase
from cloister_crds.names import CONTAINER_LABEL
from dev.cluster import Cluster
from dev.cluster.images import Image, push
from tests.support.cluster.direct_client import DirectClient
from tests.support.lifecycles.release_table import CELLS, NAMED, STATES, UPDATE, expected_tag
from tests.support.programs.operator import (
    Installation,
    condition_of,
    file_text,
    manifest,
    operator_lock,
)
from tests.support.programs.operator_facade import facade_of
from tests.support.stand_ins.nodes import READY, PodOutcome, SimulatedNodes
from tests.support.waiting import until_sync

FIRST = "v1.0.0"
REPO, REPO_NAMED = "acme/cells", "acme/named"
"""Repositories; the second one gets the release that actions name."""
SETTLES = 150.0
"""Longest wait for all containers together, in seconds."""


@dataclass
class Cell:
    """A cell at one door, and its container."""

    action: str
    """The action."""
    state: str
    """State in which it is taken."""
    door: str
    """rest or manifest."""
    name: str
    """Name of the container."""
    status: int = 200
    """Status of the last response."""
    text: str = ""
    """Body of the last response."""

    @property
    def word(self) -> str:
        """What the table says."""
        return CELLS[self.action, self.state]

    @property
    def names_tag(self) -> bool:
        """Whether the action names a tag."""
        return expected_tag(CELLS[self.action, "serving"], "serving") == NAMED

    @property
    def repo(self) -> str:
        """Its repository."""
        return REPO_NAMED if self.names_tag else REPO


def cells() -> tuple[Cell, ...]:
    """Return all cells of the table at both doors; a refusal is of the API alone."""
    rows = list(dict.fromkeys(action for action, _ in CELLS))
    return tuple(
        Cell(action, state, door, f"{door[0]}{rows.index(action)}x{STATES.index(state)}")
        for door in ("rest", "manifest")
        for (action, state), word in CELLS.items()
        if door == "rest" or word != "409"
    )


@dataclass
class Cells:
    """The containers of all cells."""

    installation: Installation
    """The operator's side."""
    client: httpx.Client
    """The REST interface."""
    direct: DirectClient
    """The manifests' side."""
    all: tuple[Cell, ...] = field(default_factory=cells)
    """The cells."""
    commits: dict[tuple[str, str], str] = field(default_factory=dict)
    """Commit by repository and tag."""
    ids: dict[str, str] = field(default_factory=dict)
    """Identifiers by name."""
    after: dict[str, Container] = field(default_factory=dict)
    """The containers in the end, by name."""
    _failed: set[tuple[str, str]] = field(default_factory=set)

    def containers(self) -> dict[str, Container]:
        """Read all containers, by name."""
        items = self.direct.list_objects(of(Container), self.installation.namespace)
        return {each.metadata.name: each for each in map(Container.read, items)}

    def wait(self, cells: tuple[Cell, ...], holds: Callable[[Cell, Container], bool]) -> None:
        """Wait until all of these containers are as they should be."""

        def all_hold() -> bool:
            there = self.containers()
            missing = {
                each.name: there[each.name].status.wire()
                for each in cells
                if not (is_seen(there[each.name]) and holds(each, there[each.name]))
            }
            assert not missing, (len(missing), next(iter(missing.items())))
            return True

        until_sync(all_hold, within=SETTLES, every=0.3, what="all containers")

    def patch(self, cell: Cell, **spec: Any) -> None:
        """Change the manifest."""
        place = self.installation.namespace
        keep(cell, self.direct.patch(of(Container), cell.name, {"spec": spec}, place))

    def tag(self, cell: Cell, tag: str) -> dict[str, Any]:
        """Return the keys of spec that name a release."""
        return {"tag": tag, "commit": self.commits[cell.repo, tag]}

    def outcome(self, pod: dict[str, Any]) -> PodOutcome:
        """Decide about a Pod: an update is never ready, or fails once, as its state has it."""
        name = pod["metadata"]["labels"][CONTAINER_LABEL]
        state = next((each.state for each in self.all if each.name == name), "")
        enclave = self.direct.get(of(Enclave), pod["metadata"]["name"], self.installation.namespace)
        tag = enclave["spec"]["tag"] if enclave is not None else ""
        if (state, tag) == ("updating", UPDATE):
            return PodOutcome(starts=False)
        fails = {("never served", FIRST), ("update failed", UPDATE)}
        if (state, tag) in fails and (name, tag) not in self._failed:
            self._failed.add((name, tag))
            return PodOutcome(code=1)
        return READY

    def create(self) -> None:
        """Bring all containers into their states."""
        host = self.installation.host
        for each in self.all:
            keys = {"staging": each.state == "update waits", "host": host, "repo": each.repo}
            spec = {**keys, **self.tag(each, FIRST), "autoUpdate": each.state == "following"}
            body = manifest("Container", each.name, spec, self.installation.namespace)
            self.direct.create(of(Container), body)
        self.wait(self.all, has_begun)
        updated = tuple(each for each in self.all if each.state in UPDATED)
        for each in updated:
            self.patch(each, **self.tag(each, UPDATE), relaunch="update")
        self.wait(updated, lambda each, there: UPDATED[each.state](there))

        def known() -> bool:
            listed = self.client.get("/api/containers").json()
            self.ids = {each["name"]: each["id"] for each in listed}
            return self.ids.keys() >= {each.name for each in self.all}

        until_sync(known, what="all containers over REST")

    def post(self, cell: Cell, action: str, **body: Any) -> None:
        """Call an action on the container as it is now, and keep the status of the response."""
        path = f"/api/containers/{self.ids[cell.name]}/{action}"
        keep(cell, self.client.post(path, json=body, headers=self.seen(cell)))

    def seen(self, cell: Cell) -> dict[str, str]:
        """Return the header that lets the facade answer with the container as it is now."""
        present = self.direct.get(of(Container), cell.name, self.installation.namespace)
        assert present is not None
        return {"X-Consistency-Token": present["metadata"]["resourceVersion"]}

    def await_known(self, cell: Cell) -> None:
        """Wait until the facade's copy has the container as it is, for calls without that header.

        The status of one whose update is on its way may change meanwhile.
        """
        version = int(self.seen(cell)["X-Consistency-Token"])
        path = f"/api/containers/{self.ids[cell.name]}"
        until_sync(
            lambda: int(self.client.get(path).headers["etag"].strip('"')) >= version,
            every=0.02,
            what=f"{cell.name} in the facade",
        )

    def act(self, steps: dict[str, Callable[["Cells", Cell], None]]) -> None:
        """Take a step of the action of each cell, some at a time."""
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda each: steps[each.action](self, each), self.all))


def keep(cell: Cell, response: httpx.Response) -> None:
    """Keep what was answered, which the test of the cell looks at."""
    cell.status, cell.text = response.status_code, response.text


def is_seen(container: Container) -> bool:
    """Return whether the operator has seen the present spec."""
    return container.status.observed_generation == container.metadata.generation


def has_begun(cell: Cell, container: Container) -> bool:
    """Return whether the first release serves, or has failed where it should."""
    if cell.state == "never served":
        return container.status.phase is ContainerPhase.FAILED
    wanted = UPDATE if cell.state == "following" else FIRST
    ready = condition_of(container, "Ready")
    serves = ready is not None and ready["reason"] == "Serving"
    return serves and container.status.current_tag == wanted


def updating(container: Container) -> bool:
    """Return whether an update is on its way."""
    update = container.status.update
    return update is not None and bool(update.enclave) and update.status is not UpdatePhase.FAILED


def waits(container: Container) -> bool:
    """Return whether an update waits for promotion."""
    ready = condition_of(container, "Ready")
    return ready is not None and ready["reason"] == "AwaitingPromotion"


def update_failed(container: Container) -> bool:
    """Return whether an update has failed."""
    update = container.status.update
    return update is not None and update.status is UpdatePhase.FAILED


UPDATED: dict[str, Callable[[Container], bool]] = {
    "updating": updating,
    "update waits": waits,
    "update failed": update_failed,
}
"""States that an update to the second release brings, and how one recognizes them."""


def relaunch(world: Cells, cell: Cell, tag: str | None = None) -> None:
    """Relaunch, with a tag or without."""
    if cell.door == "rest":
        world.post(cell, "relaunch", **({"tag": tag} if tag else {}))
    elif tag or cell.state in UPDATED:
        world.patch(cell, relaunch="again", **world.tag(cell, tag or FIRST))
    else:
        world.patch(cell, relaunch="again")


def stop(world: Cells, cell: Cell) -> None:
    """Stop."""
    if cell.door == "rest":
        world.post(cell, "stop")
    else:
        world.patch(cell, state="Stopped")


def start(world: Cells, cell: Cell, tag: str | None = None) -> None:
    """Start what is stopped."""
    if cell.door == "rest":
        world.post(cell, "start", **({"tag": tag} if tag else {}))
    else:
        named = world.tag(cell, tag) if tag else {}
        world.patch(cell, state="Running", relaunch="again", **named)


def follow(world: Cells, cell: Cell, *, wanted: bool) -> None:
    """Switch automatic updates."""
    if cell.door == "rest":
        world.post(cell, "auto-update", auto_update=wanted)
    else:
        world.patch(cell, autoUpdate=wanted)


def cancel(world: Cells, cell: Cell) -> None:
    """Cancel an update."""
    if cell.door == "rest":
        world.post(cell, "update/cancel")
    else:
        world.patch(cell, relaunch=None, **world.tag(cell, FIRST))


def accept(world: Cells, cell: Cell) -> None:
    """Accept an update."""
    if cell.door == "rest":
        world.post(cell, "update/accept")
    else:
        update = world.containers()[cell.name].status.update
        assert update is not None
        world.patch(cell, promote=update.revision)


def update_instance(world: Cells, cell: Cell) -> None:
    """Update one instance of the deployment, which skips what is being updated."""
    if cell.door == "rest":
        (found,) = (
            each
            for each in world.client.get("/api/deployments").json()
            if each["repo"] == cell.repo
        )
        world.await_known(cell)
        body = {"tag": NAMED, "instance_ids": [world.ids[cell.name]]}
        keep(cell, world.client.post(f"/api/deployments/{found['id']}/update", json=body))
    elif cell.word == "named":
        world.patch(cell, relaunch="again", relaunchStaging=False, **world.tag(cell, NAMED))


def nothing(_world: Cells, _cell: Cell) -> None:
    """Do nothing."""


ACTIONS: dict[str, Callable[[Cells, Cell], None]] = {
    "relaunch": relaunch,
    "relaunch with a tag": lambda world, cell: relaunch(world, cell, NAMED),
    "stop": stop,
    "start after that": stop,
    "start with a tag after that": stop,
    "auto-update on": lambda world, cell: follow(world, cell, wanted=True),
    "auto-update off": lambda world, cell: follow(world, cell, wanted=False),
    "cancel": cancel,
    "accept": accept,
    "update of the deployment": update_instance,
}
LATER: dict[str, Callable[[Cells, Cell], None]] = dict.fromkeys(ACTIONS, nothing) | {
    "start after that": start,
    "start with a tag after that": lambda world, cell: start(world, cell, NAMED),
}
"""What follows when all that were stopped have stopped."""


@pytest.fixture(scope="module")
def world(api_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cells]:
    """Take the action of each cell, at both doors."""
    image = push(Image(files={"/x": b"x"}, entrypoint=("/x",)), api_cluster.registry, "tests/x")
    folder, direct = tmp_path_factory.mktemp("cells"), DirectClient(api_cluster.kubeconfig)
    with operator_lock(api_cluster.name):
        made = Installation(api_cluster, folder, {"claimAgeSeconds": 1})
        try:
            made.prepare()
            made.create_organization()
            made.operator().wait_until_it_leads()
            with facade_of(made) as client:
                yield walked(Cells(made, client, direct), image)
        finally:
            made.end()
            direct.close()


def walked(world: Cells, image: str) -> Cells:
    """Take all cells through their states and actions."""
    repositories = {repo: world.installation.repository(repo) for repo in (REPO, REPO_NAMED)}

    def publish(repo: str, tag: str, when: int) -> None:
        text = file_text(image, command=(f"/{tag}",))
        world.commits[repo, tag] = repositories[repo].release(tag, text, when=when)

    for repo in repositories:
        publish(repo, FIRST, 1_700_000_000)
        publish(repo, UPDATE, 1_700_000_100)
    nodes = SimulatedNodes(world.direct, outcome=world.outcome)
    nodes.start()
    try:
        world.create()
        publish(REPO_NAMED, NAMED, 1_700_000_200)
        world.act(ACTIONS)
        stopped = tuple(each for each in world.all if LATER[each.action] is not nothing)
        world.wait(stopped, lambda _, there: there.status.phase is ContainerPhase.STOPPED)
        world.act(LATER)
        with contextlib.suppress(AssertionError):  # the test of the cell says what is wrong
            world.wait(tuple(each for each in world.all if each.word != "409"), is_reached)
    finally:
        nodes.stop()
    world.after = world.containers()
    return world


def is_reached(cell: Cell, container: Container) -> bool:
    """Return whether a cell says what became of a container."""
    status, tag = container.status, expected_tag(cell.word, cell.state)
    if status.requested_tag != tag:
        return False
    if cell.action == "stop":
        return status.phase is ContainerPhase.STOPPED and status.update is None
    if cell.word == "present":
        # A relaunch of what serves is an update too; with staging it waits.
        return status.current_tag == tag and (status.update is None or status.update.tag == tag)
    return True


def test_the_table_has_these_actions_and_states() -> None:
    assert {action for action, _ in CELLS} == set(ACTIONS)
    assert {state for _, state in CELLS} == set(STATES)


@pytest.mark.spec("22.9")
@pytest.mark.parametrize(
    "cell", cells(), ids=lambda each: f"{each.action}-{each.state}-{each.door}"
)
def test_each_cell_of_the_release(world: Cells, cell: Cell) -> None:
    walked = next(each for each in world.all if each.name == cell.name)
    if cell.word == "409":
        assert walked.status == 409, walked.text
        return
    assert walked.status in {200, 204}, walked.text
    if (cell.action, cell.door) == ("update of the deployment", "rest"):
        (result,) = json.loads(walked.text)["results"]
        assert result["status"] == ("skipped" if cell.word == "update" else "updating"), walked.text
    container = world.after[cell.name]
    assert is_reached(cell, container), container.status.wire()
