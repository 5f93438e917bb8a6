"""Which status waits: counts of other objects, and the progress of a deployment."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cloister_crds.kinds.container import ContainerPhase, ContainerStatus
from cloister_operator.cache.projections import CONTAINER
from cloister_operator.cache.reconcile_memory import ReconcileMemory
from cloister_operator.cache.store import Store
from cloister_operator.context import ProcessContext
from cloister_operator.reconcile.results import BUSY_DELAY, defer_status, is_urgent
from cloister_operator.workqueue.queue import WorkQueue
from cloister_operator.workqueue.triggers import Key
from tests.support.builders.resources import container_of

READY = [{"type": "Ready", "status": "True", "reason": "Provisioned"}]


@pytest.mark.parametrize(
    ("before", "after", "urgent"),
    [
        ({"counts": {"containers": 3}}, {"counts": {"containers": 2}}, False),
        ({"counts": {"containers": 1}}, {"counts": {"containers": 0}}, True),
        ({"counts": {"containers": 0}}, {"counts": {"containers": 1}}, True),
        ({}, {"counts": {"containers": 0}}, False),
        ({"usedBy": ["web", "api"]}, {"usedBy": ["api"]}, False),
        ({"usedBy": ["web"]}, {}, True),
        ({}, {"usedBy": ["web"]}, True),
        ({"observedGeneration": 1}, {"observedGeneration": 2}, True),
        ({"conditions": []}, {"conditions": READY}, True),
        ({"conditions": [{**READY[0], "message": "1"}]}, {"conditions": READY}, False),
    ],
)
def test_only_a_status_that_people_wait_for_is_not_throttled(
    before: dict[str, Any], after: dict[str, Any], *, urgent: bool
) -> None:
    assert is_urgent(before, after) is urgent


DEPLOYING = ContainerStatus(phase=ContainerPhase.DEPLOYING)
WORKERS = 2
SECOND = timedelta(seconds=1)


class Waiting:
    """A Container of the cache whose status waits, with a clock and a work queue."""

    def __init__(self, due: int) -> None:
        self.now = 0.0
        queue = WorkQueue[Key](clock=lambda: self.now)
        for number in range(due):
            queue.add(Key("Container", "org-acme", f"web-{number}"))
        store = Store()
        self.container = container_of()
        store.put(CONTAINER, self.container.manifest())
        parts = SimpleNamespace(
            queue=queue, memory=ReconcileMemory(store), settings=SimpleNamespace(workers=WORKERS)
        )
        self.context = cast(ProcessContext, parts)

    def defer(self, after: ContainerStatus, *, progress: bool = True) -> timedelta | None:
        """Return how long the status waits from now."""
        return defer_status(self.context, self.container, after, progress=progress, delay=SECOND)


@pytest.mark.parametrize(
    ("due", "seconds", "waits"),
    [
        (WORKERS, 0.0, SECOND),
        (WORKERS, 0.75, SECOND / 4),
        (WORKERS, 1.0, None),
        (WORKERS + 1, 0.0, BUSY_DELAY),
        (WORKERS + 1, 1.0, BUSY_DELAY - SECOND),
        (WORKERS + 1, 15.0, None),
    ],
)
def test_progress_waits_longer_while_more_keys_are_due_than_workers(
    due: int, seconds: float, waits: timedelta | None
) -> None:
    waiting = Waiting(due)
    waiting.defer(DEPLOYING)
    waiting.now = seconds
    assert waiting.defer(DEPLOYING) == waits


def test_only_progress_waits_and_only_where_the_status_differs() -> None:
    waiting = Waiting(WORKERS + 1)
    assert waiting.defer(DEPLOYING, progress=False) is None
    assert waiting.defer(waiting.container.status) is None
    assert waiting.defer(DEPLOYING) == BUSY_DELAY


def test_what_is_written_begins_to_wait_anew() -> None:
    waiting = Waiting(WORKERS + 1)
    waiting.defer(DEPLOYING)
    waiting.now = 5.0
    assert waiting.defer(DEPLOYING, progress=False) is None
    assert waiting.defer(DEPLOYING) == BUSY_DELAY
