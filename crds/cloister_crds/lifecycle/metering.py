"""Metering of run time: the finalizer of Enclaves. Pure.

An Enclave serves from promotedAt to demotedAt. The finalizer keeps it until the API has recorded
how long that was; it blocks nothing else, and not for ever.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from cloister_crds.kinds.enclave import Enclave

__all__ = [
    "FINALIZER",
    "REPORT_AFTER",
    "FinalizerDecision",
    "decide_finalizer",
    "has_departed",
    "served_until",
]

FINALIZER = "cloister.dev/metering"
"""Finalizer of Enclaves whose run time is metered."""
REPORT_AFTER = timedelta(minutes=2)
"""An Enclave that waits for longer reports it."""


@dataclass(frozen=True, slots=True)
class FinalizerDecision:
    """What to do about the finalizer of an Enclave that is being deleted."""

    remove: bool
    """Whether the operator removes the finalizer."""
    report: bool
    """Whether a condition and an Event report that it waits, or what was lost."""
    requeue_after: timedelta | None
    """When to reconcile again; None if never."""
    gives_up_at: datetime | None = None
    """When the operator removes it at the latest, in UTC; None if nothing waits."""


NOTHING = FinalizerDecision(remove=False, report=False, requeue_after=None)


def decide_finalizer(
    enclave: Enclave, now: datetime, *, metering: bool, wait: timedelta
) -> FinalizerDecision:
    """Decide about the finalizer.

    Parameters
    ----------
    now
        The present, in UTC.
    metering
        Whether run time is metered; if not, only the operator removes finalizers.
    wait
        How long the API may take.

    Returns
    -------
    FinalizerDecision
        Nothing to do for an Enclave that stays or has no such finalizer.
    """
    deleted = enclave.metadata.deletion_timestamp
    if deleted is None or FINALIZER not in enclave.metadata.finalizers:
        return NOTHING
    if not metering:
        return FinalizerDecision(remove=True, report=False, requeue_after=None)
    gives_up_at, tells_at = deleted + wait, deleted + min(REPORT_AFTER, wait / 2)
    if now >= gives_up_at:
        return FinalizerDecision(remove=True, report=True, requeue_after=None)
    if now >= tells_at:
        return FinalizerDecision(
            remove=False, report=True, requeue_after=gives_up_at - now, gives_up_at=gives_up_at
        )
    return FinalizerDecision(
        remove=False, report=False, requeue_after=tells_at - now, gives_up_at=gives_up_at
    )


def has_departed(enclave: Enclave, *, has_pod: bool) -> bool:
    """Return whether only the metering finalizer is left of an Enclave.

    Decisions treat it as deleted: what waits for its deletion must not wait for the API.
    """
    meta = enclave.metadata
    return meta.deletion_timestamp is not None and meta.finalizers == (FINALIZER,) and not has_pod


def served_until(
    enclave: Enclave,
    noticed: datetime,
    *,
    heartbeat: datetime | None = None,
    relieved: datetime | None = None,
) -> datetime:
    """Return when an Enclave that no longer serves stopped serving.

    Parameters
    ----------
    noticed
        When its Service was seen not to select it any more, or its Pod to be gone, in UTC.
    heartbeat
        Last heartbeat of its node, if that node is lost: time after it is not billed. None means
        the node is not lost, or has no heartbeat.
    relieved
        When the next Enclave of its Container was promoted: two never serve at the same time. None
        if there is none was.

    Returns
    -------
    datetime
        The earliest of these, but not before it was promoted.
    """
    known = (noticed, heartbeat, relieved)
    end = min(each for each in known if each is not None)
    return max(end, enclave.status.promoted_at or end)
