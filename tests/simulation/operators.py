"""The operator that ships, as a process on a machine of the world.

What is replaced is what `Outside` names (sources, registries, name servers), the clocks of the
machine, and the connections; and two names of libraries: kopf's discovery makes tasks of a set of
coroutines, so that their order would be that of addresses, and aiohttp's pool reads a clock of its
own.
"""

import asyncio
import hashlib
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from aiohttp import connector
from kopf._cogs.clients import scanning

from cloister_clients.clock import CLOCKS, monotonic
from cloister_clients.kube import KubeClient, KubeConfig
from cloister_clients.kube.kinds import of
from cloister_clients.registry import Credentials, Platform, ResolvedImage
from cloister_clients.sources import ListedRelease, PublishedRelease, PublishedTag, TagNotFound
from cloister_crds.kinds import Organization
from cloister_operator.context import Outside, ProcessContext
from cloister_operator.process.leader_election import Election, elect
from cloister_operator.process.process import LOST, operate
from cloister_operator.settings import OperatorSettings
from cloister_operator.telemetry.health import Liveness
from cloister_operator.telemetry.metrics import OperatorMetrics
from cloister_operator.writer import FIELD_MANAGER
from tests.simulation.apiserver.http import ApiServer
from tests.simulation.machines import EPOCH, Machine, World

__all__ = ["IMAGE", "Operators", "Releases", "use_clocks_of"]

DIGEST = "sha256:" + "0" * 64
IMAGE = "registry.example/web@sha256:" + "a" * 64
"""An image that the registry has."""
SETTINGS = OperatorSettings.model_validate(
    {
        "containersDomain": "containers.example",
        "shimImage": f"registry.example/shim@{DIGEST}",
        "guestImage": f"registry.example/guest@{DIGEST}",
        "sources": {"kind": "git", "base": "/nowhere"},
        "enclaveNetwork": {"resolvers": ["9.9.9.9"]},
        "drainSeconds": 2.5,
        "claimAgeSeconds": 5,
        "workers": 2,
        "lease": {"retrySeconds": 4},
    }
)
"""The settings of each operator."""


def use_clocks_of(world: World) -> None:
    """Have all programs of this process read the world's clocks."""
    CLOCKS.utc, CLOCKS.monotonic = world.utc, lambda: world.now


def _in_order(coroutines: Iterable[Any]) -> Any:
    """Make tasks of coroutines in the order of what they are about, then wait as asyncio does."""
    ordered = sorted(coroutines, key=lambda each: (each.__name__, str(each.cr_frame.f_locals)))
    return _AS_COMPLETED([asyncio.ensure_future(each) for each in ordered])


_AS_COMPLETED = asyncio.as_completed


class _Asyncio:
    """The module asyncio with `as_completed` in order, for kopf's discovery."""

    as_completed = staticmethod(_in_order)

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)


connector.monotonic = monotonic  # type: ignore[attr-defined]  # what it imports
scanning.asyncio = _Asyncio()  # type: ignore[attr-defined, assignment]  # what kopf imports


class Releases:
    """The repositories: a source provider whose responses take some time."""

    def __init__(self, world: World, files: Mapping[str, bytes]) -> None:
        self._world = world
        self.files = files
        """Tag -> configuration file, in every repository."""

    async def resolve(
        self, repo: str, tag: str, *, commit: str | None = None, kept: bool = False
    ) -> PublishedRelease:
        """Return a release, whose commit follows from repository and tag."""
        await asyncio.sleep(self._world.choices.seconds(0.01, 1, "a release is read"))
        if tag not in self.files:
            raise TagNotFound(repo, tag)
        present = hashlib.sha1((repo + tag).encode()).hexdigest()
        return PublishedRelease(
            repo=repo,
            tag=tag,
            commit=commit or present,
            tag_commit=present,
            published=EPOCH,
            file_name="service-config.yml",
            file=self.files[tag],
        )

    async def latest(self, repo: str) -> PublishedTag | None:
        """Return no newest release: nothing updates itself here."""
        return None

    async def releases(self, repo: str, limit: int) -> tuple[ListedRelease, ...]:
        """Return no list of releases."""
        return ()

    async def aclose(self) -> None:
        """Nothing is open."""


class Registry:
    """A registry that has every image."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def resolve(
        self, reference: str, *, platform: Platform, credentials: Credentials | None
    ) -> ResolvedImage:
        """Return an image."""
        await asyncio.sleep(self._world.choices.seconds(0.01, 0.5, "an image is looked up"))
        return ResolvedImage(
            reference=reference,
            manifest_digest=reference.partition("@")[2],
            entrypoint=("/program",),
            cmd=None,
            env=(),
            user="",
            working_dir="",
            stop_signal="",
            size=1000,
            runtime_size=10,
        )

    async def aclose(self) -> None:
        """Nothing is open."""


class NoNameServers:
    """Name servers that know nothing."""

    async def texts(self, name: str) -> tuple[str, ...]:
        """Return no record."""
        return ()

    async def alias(self, name: str) -> tuple[str, ...]:
        """Return no alias."""
        return ()


class Flag:
    """A flag that says whether it is set."""

    def __init__(self) -> None:
        self._set = False

    def is_set(self) -> bool:
        """Return whether it is set."""
        return self._set

    def set(self) -> None:
        """Set it."""
        self._set = True


class Operators:
    """The replicas of the operator: one runs at a time, and those that were frozen."""

    def __init__(self, server: ApiServer, releases: Releases) -> None:
        self._server = server
        self._releases = releases
        self._numbers = itertools.count()
        self._exits: dict[Machine, asyncio.Task[int]] = {}
        self._contexts: dict[Machine, ProcessContext] = {}
        self.started = 0
        """How many were started."""
        self.crashes: list[str] = []
        """Exceptions that ended a process without an exit code: each is a finding."""
        self.current = self._start()
        """The one that should lead."""

    def kill(self) -> None:
        """Kill the one that should lead, and start another."""
        self._server.world.kill(self.current)
        self._exits.pop(self.current, None)
        self.current = self._start()

    def freeze(self, seconds: float) -> None:
        """Freeze the one that should lead, and start another that takes over."""
        self.current.freeze(seconds)
        self.current = self._start()

    def look_after(self) -> None:
        """Start what has exited again, as a kubelet does."""
        for machine, task in list(self._exits.items()):
            if not task.done():
                continue
            error = task.exception()
            if error is not None:
                self.crashes.append(f"{self._server.world.now:.2f} {machine.name}: {error!r}")
            del self._exits[machine]
            self._server.world.kill(machine)
            if machine is self.current:
                self.current = self._start()

    def leftovers(self) -> list[str]:
        """Return what the one that leads has wrong when nothing is left to do."""
        context, objects = self._contexts[self.current], self._server.objects
        found = []
        for watched in context.watched:
            ref = watched.ref
            cached = {(e.namespace, e.name, e.version) for e in context.store.entries(ref)}
            stored = {
                (each.metadata.get("namespace", ""), each.metadata["name"], each.version)
                for each in objects.all(ref, selector=watched.label_selector or "")
            }
            if cached != stored:
                found.append(f"the cache differs in {ref.plural}: {sorted(cached ^ stored)}")
        organizations = context.store.count(of(Organization))
        if len(context.memory) > organizations:
            found.append(f"{len(context.memory) - organizations} entries are of what is gone")
        return found

    def _start(self) -> Machine:
        number = next(self._numbers)
        self.started += 1
        machine = self._server.world.machine(f"operator-{number}")
        with machine.running():
            self._exits[machine] = machine.create_task(self._main(machine, number))
        return machine

    async def _main(self, machine: Machine, number: int) -> int:
        """Do what `run` does: the election next to the operator; return the exit code."""
        world = self._server.world
        kube = KubeConfig("http://apiserver", connector=self._server.http.connector)
        client = KubeClient(kube, field_manager=FIELD_MANAGER, user_agent="lease")
        identity = f"operator-{number}"
        election = Election(client, SETTINGS.lease, SETTINGS.operator_namespace, identity)
        context = ProcessContext.from_settings(
            SETTINGS,
            kube,
            metrics=OperatorMetrics(),
            liveness=Liveness(1e9),
            leads=lambda: election.leads,
            outside=Outside(source=self._releases, registry=Registry(world), dns=NoNameServers()),
        )
        self._contexts[machine] = context
        acquired, lost = Flag(), machine.create_future()
        standing = elect(
            election, acquired=acquired, lost=lost.set_result, stopping=asyncio.Event()
        )
        working = machine.create_task(operate(context, acquired))
        electing = machine.create_task(standing)
        await asyncio.wait({working, electing, lost}, return_when=asyncio.FIRST_COMPLETED)
        # Losing the Lease ends the process at once, whatever else happened in this moment.
        return LOST if lost.done() else await working
