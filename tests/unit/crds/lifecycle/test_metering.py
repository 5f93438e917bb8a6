"""The lifecycle's part in metering: when an Enclave ceased to serve, and its finalizer."""

from datetime import UTC, datetime, timedelta

import pytest

from cloister_crds.kinds import Enclave
from cloister_crds.kinds.meta import ObjectMeta
from cloister_crds.lifecycle.metering import (
    FINALIZER,
    REPORT_AFTER,
    decide_finalizer,
    has_departed,
    served_until,
)
from cloister_operator.rollout.rollout_state import RolloutState
from tests.support.builders.resources import container_of, enclave_of, observed_of

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
DAY = timedelta(days=1)


def enclave(
    *finalizers: str, deleted: datetime | None = None, promoted: datetime | None = None
) -> Enclave:
    """Make an Enclave with finalizers."""
    made = enclave_of(container_of())
    meta = ObjectMeta.model_validate(
        made.metadata.model_dump() | {"finalizers": finalizers, "deletion_timestamp": deleted}
    )
    status = made.status.model_copy(update={"promoted_at": promoted})
    return made.model_copy(update={"metadata": meta, "status": status})


@pytest.mark.parametrize(
    ("ago", "metering", "wanted"),
    [
        (timedelta(seconds=1), True, (False, False, REPORT_AFTER - timedelta(seconds=1))),
        (REPORT_AFTER, True, (False, True, DAY - REPORT_AFTER)),
        (DAY - timedelta(seconds=1), True, (False, True, timedelta(seconds=1))),
        (DAY, True, (True, True, None)),
        (timedelta(seconds=1), False, (True, False, None)),
    ],
)
def test_a_deleted_enclave_waits_says_so_and_goes(
    ago: timedelta, *, metering: bool, wanted: tuple[bool, bool, timedelta | None]
) -> None:
    waiting = enclave(FINALIZER, deleted=NOW - ago)
    found = decide_finalizer(waiting, NOW, metering=metering, wait=DAY)
    assert (found.remove, found.report, found.requeue_after) == wanted


def test_nothing_is_done_for_others() -> None:
    for other in (enclave(FINALIZER), enclave("else", deleted=NOW - 2 * DAY), enclave()):
        for metering in (True, False):
            found = decide_finalizer(other, NOW, metering=metering, wait=DAY)
            assert (found.remove, found.report, found.requeue_after) == (False, False, None)


def test_an_enclave_has_departed_when_only_our_finalizer_is_left() -> None:
    assert has_departed(enclave(FINALIZER, deleted=NOW), has_pod=False)
    assert not has_departed(enclave(FINALIZER, deleted=NOW), has_pod=True)
    assert not has_departed(enclave(FINALIZER), has_pod=False)
    both = enclave("foregroundDeletion", FINALIZER, deleted=NOW)
    assert not has_departed(both, has_pod=False)


@pytest.mark.spec("5.2")
def test_time_ends_with_what_is_known_first() -> None:
    minute = timedelta(minutes=1)
    promoted = NOW - 10 * minute
    serving = enclave(promoted=promoted)
    assert served_until(serving, NOW) == NOW
    earlier = NOW - 3 * minute
    assert served_until(serving, NOW, heartbeat=earlier) == earlier
    assert served_until(serving, NOW, relieved=earlier) == earlier
    assert served_until(serving, NOW, heartbeat=NOW - 99 * minute) == promoted


def test_time_does_not_end_when_the_deletion_was_requested() -> None:
    deleted = enclave(deleted=NOW - timedelta(minutes=2), promoted=NOW - timedelta(minutes=9))
    assert served_until(deleted, NOW) == NOW


def test_the_name_of_a_departed_enclave_is_not_used_again() -> None:
    container = container_of()
    gone = enclave_of(container, attempt=3, deleting=True)
    state = RolloutState(observed_of(container, departed=(gone,)), NOW)
    assert state.next_attempt_number(gone.spec.revision) == 4
    assert state.all_enclaves == ()
