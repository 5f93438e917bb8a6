"""One run: a life in a world, with a fault at one write; and the sweep over all of them."""

import gc
import json
import logging
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from tests.simulation.apiserver.http import ApiServer, Request
from tests.simulation.apiserver.store import Change
from tests.simulation.choices import Choices
from tests.simulation.cluster import Cluster
from tests.simulation.faults import Fault, FaultPlan
from tests.simulation.lives import (
    FILES,
    LIVES,
    MOST_WRITES,
    Step,
    User,
    install,
    nothing_left,
    outcome,
)
from tests.simulation.machines import Deadlock, World
from tests.simulation.operators import Operators, Releases, use_clocks_of
from tests.simulation.oracles import Errors, Oracles

__all__ = ["EVERY", "REGRESSIONS", "Result", "Run", "freeze_memory", "replay", "sweep"]

REGRESSIONS = Path(__file__).parent / "regressions"
"""Replay files of what was found, which run first."""
EVERY = 6
"""In `make simulate` each n-th fault is tried at a write."""
STEP_SECONDS = 120.0
"""Until a step of a life must be done, in virtual seconds: less than a resync or relist takes."""
_FAULTS = [fault for fault in Fault if fault is not Fault.NONE]
QUIET_SECONDS = 20.0
"""In the end nothing is written for so long, but the Lease."""
LEFT = {
    "Namespace", "Node", "Host", "Organization", "NetworkPolicy", "RoleBinding", "ResourceQuota",
    "Lease", "ConfigMap", "Event", "PodDisruptionBudget",
}  # fmt: skip
"""Kinds of objects that may be left when no Container is."""


@dataclass(slots=True)
class Result:
    """What became of a run."""

    @property
    def command(self) -> str:
        """The arguments that repeat it."""
        return (
            f"run --life {self.life} --seed {self.seed} --write {self.write} --fault '{self.fault}'"
        )

    life: str
    seed: int
    write: int
    """Number of the write with the fault; 0: none."""
    fault: str
    what: str = ""
    """The write."""
    problems: list[str] = field(default_factory=list)
    """What must not be; empty if all is well."""
    virtual_seconds: float = 0.0
    writes: int = 0
    operators: int = 0
    trace: str = ""
    """Digest of all requests and their times."""


class Run:
    """A life, from an empty cluster to its end."""

    def __init__(
        self,
        life: str,
        seed: int,
        *,
        write: int | str = 0,
        fault: Fault = Fault.NONE,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self.result = Result(life, seed, write if isinstance(write, int) else 0, str(fault))
        random.seed(seed)
        self.world = World(Choices(seed))
        use_clocks_of(self.world)
        self.server = ApiServer(self.world)
        self.cluster = Cluster(self.server)
        self.oracles = Oracles(self.server.objects, self.world)
        self.user = User(self.server.objects)
        self.plan = FaultPlan(self.server, lambda: self.operators, write=write, fault=fault)
        self.server.around = self.plan
        self.plan.written = self.oracles.written
        self._tell = tell
        if tell is not None:
            self.server.objects.observers.append(self._story)
        self.cluster.add_node()
        install(self.user)
        self.cluster.outcome = outcome(self.server.objects)
        self.operators = Operators(self.server, Releases(self.world, FILES))
        self._errors = Errors(self.oracles.note)

    def live(self) -> Result:
        """Run to the end, and return what became of it."""
        logging.getLogger("cloister_operator").addHandler(self._errors)
        logging.getLogger("cloister_operator").propagate = False
        try:
            self._live()
        except Deadlock as error:
            self.oracles.note(str(error))
        result = self.result
        result.problems = [*self.oracles.problems, *self.operators.crashes]
        result.what, result.writes = self.plan.what, self.plan.writes
        result.virtual_seconds = round(self.world.now, 2)
        result.operators = self.operators.started
        result.trace = self.server.trace.hexdigest()[:16]
        return result

    def _live(self) -> None:
        life = LIVES[self.result.life]
        for step in life:
            self._say(f"user        {step.name}")
            self.oracles.serving_expected = step.serves
            step.act(self.user)
            if not self._until(partial(self._is_over, step, last=step is life[-1])):
                self.oracles.note(f"{step.name} is not done after {STEP_SECONDS:.0f} s")
                return
        self.oracles.serving_expected = False
        if not self._until(lambda: nothing_left(self.user) and not self._left()):
            self.oracles.note(f"left behind: {self._left()}")
        if not self._until(self._is_quiet, timed=True):
            self.oracles.note("writes do not end when nothing is left to do")
        most = MOST_WRITES[self.result.life]
        if self.result.fault == Fault.NONE and self.plan.writes > most:
            self.oracles.note(f"{self.plan.writes} writes, and {most} are enough")
        for each in self.operators.leftovers():
            self.oracles.note(each)

    def _is_over(self, step: Step, *, last: bool) -> bool:
        """Return whether a step is done, or the user does not wait for it."""
        if self.plan.hasty and not last:
            self.plan.hasty = False
            return True
        return step.done(self.user)

    def _is_quiet(self) -> bool:
        return self.world.now - self.plan.wrote_at >= QUIET_SECONDS

    def _left(self) -> list[str]:
        return [
            f"{kind.ref.kind} {found.metadata['name']}"
            for kind, found in self.server.objects.everything()
            if kind.ref.kind not in LEFT
        ]

    def _until(self, condition: Callable[[], object], *, timed: bool = False) -> bool:
        """Run until a condition holds; one about objects is checked when one has changed."""
        seen = -1

        def holds() -> object:
            nonlocal seen
            if self.server.failure is not None:
                raise self.server.failure
            self.plan.act()
            self.operators.look_after()
            if seen == self.server.objects.version and not (timed or self.plan.hasty):
                return False
            seen = self.server.objects.version
            return condition()

        return self.world.run_until(holds, within=STEP_SECONDS)

    def _say(self, text: str) -> None:
        if self._tell is not None:
            self._tell(f"{self.world.now:8.2f}  {text}")

    def _story(self, change: Change) -> None:
        if change.kind.ref.kind in ("Lease", "Event"):
            return
        verb = "created" if change.before is None else "gone" if change.after is None else "changed"
        self._say(f"{change.kind.ref.kind:<12}{verb:<8} {change.name}")


class _Enough(Exception):  # noqa: N818 - it ends a sweep
    """A sweep has found what it is for."""


def sweep(life: str, seed: int, *, every: int, until_first: bool = False) -> Iterator[Result]:
    """Run a life, and from each of its writes on once more with each fault, or each n-th of them.

    What is before the write is run once: the process forks there, and each copy continues with its
    fault. Yields the results of the copies, then that of the life itself.

    Parameters
    ----------
    until_first
        Whether it ends with the first problem, and nothing is repeated.
    """
    run = Run(life, seed)
    results: list[Result] = []

    def fork(number: int, request: Request) -> Fault | None:
        for fault in _FAULTS[-number % every :: every]:
            found = _forked(run, number, fault)
            if found is None:
                return fault
            results.append(found)
            if found.problems and until_first:
                raise _Enough
        return None

    run.plan.reached = fork
    try:
        final = run.live()
    except _Enough:
        yield from results
        return
    except Exception as error:
        if not _WRITE_END:
            raise
        run.result.problems.append(f"{run.world.now:8.2f} {error!r}")
        final = run.result
    finish_copy(final)
    yield from results
    if until_first:
        yield final
        return
    again = Run(life, seed).live()
    if again.trace != final.trace:
        final.problems.append(f"not deterministic: {final.trace}, then {again.trace}")
    yield final


_WRITE_END: list[int] = []
"""In a copy: where its result goes."""


def _forked(run: Run, number: int, fault: Fault) -> Result | None:
    """Run a copy of this process with a fault; None in the copy."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read_end)
        # asyncio compares process ids: a copy has no running loop until it is told.
        run.server.machine.resume_after_fork()
        _WRITE_END.append(write_end)
        run.plan.reached = lambda _number, _request: None
        run.result.write, run.result.fault = number, str(fault)
        return None
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        content = pipe.read()
    _, status = os.waitpid(pid, 0)
    if not content:
        broken = [f"the run ended with {status} and said nothing"]
        return Result(run.result.life, run.result.seed, number, str(fault), problems=broken)
    return Result(**json.loads(content))


def replay(path: Path, tell: Callable[[str], None] | None = None) -> Result:
    """Run what a replay file describes."""
    described = json.loads(path.read_text(encoding="utf-8"))
    return Run(
        described["life"],
        described["seed"],
        write=described["write"],
        fault=Fault(described["fault"]),
        tell=tell,
    ).live()


def finish_copy(result: Result) -> None:
    """End this process if it is a copy that was forked for a fault: its result is handed over."""
    if _WRITE_END:
        os.write(_WRITE_END[0], json.dumps(asdict(result)).encode())
        os._exit(0)


def freeze_memory() -> None:
    """Switch the collector off, which would end parts of killed processes, and others' logs."""
    gc.collect()
    gc.disable()
    for name in ("aiohttp.server", "kopf", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
