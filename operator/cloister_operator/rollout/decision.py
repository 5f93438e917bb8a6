"""The form of a decision.

The next status, actions, lookups, requeue; the table of phases; Events. Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, TypeAlias

from pydantic import TypeAdapter

from cloister_crds.kinds.container import ContainerPhase, ContainerStatus
from cloister_crds.kinds.enclave import EnclaveSpec
from cloister_crds.kinds.meta import Condition
from cloister_crds.lifecycle.state.conditions import ReasonKind, condition, holds
from cloister_crds.lifecycle.state.observed import Need, SecretRefKey
from cloister_crds.lifecycle.state.reasons import REASONS

_PENDING = ContainerPhase.PENDING
_DEPLOYING = ContainerPhase.DEPLOYING
_STARTED = ContainerPhase.STARTED
_READY = ContainerPhase.READY
_FAILED = ContainerPhase.FAILED
_STOPPING = ContainerPhase.STOPPING
_STOPPED = ContainerPhase.STOPPED

_STARTING = frozenset({_PENDING, _DEPLOYING, _STARTED})

TRANSITIONS: dict[ContainerPhase | None, frozenset[ContainerPhase]] = {
    None: frozenset(ContainerPhase),
    _PENDING: _STARTING | {_READY, _FAILED, _STOPPING, _STOPPED},
    _DEPLOYING: _STARTING | {_READY, _FAILED, _STOPPING, _STOPPED},
    _STARTED: _STARTING | {_READY, _FAILED, _STOPPING, _STOPPED},
    _READY: _STARTING | {_READY, _FAILED, _STOPPING, _STOPPED},
    _FAILED: _STARTING | {_READY, _FAILED, _STOPPING, _STOPPED},
    _STOPPING: _STARTING | {_FAILED, _STOPPING, _STOPPED},
    _STOPPED: _STARTING | {_FAILED, _STOPPING, _STOPPED},
}
"""Phases that may follow each phase. What is stopped never becomes ready without having started: an
Enclave from before the stop never serves again."""


def may_move(before: ContainerPhase | None, after: ContainerPhase) -> bool:
    """Return whether a phase may follow another; None if none was written yet."""
    return after in TRANSITIONS[before]


def move(before: ContainerPhase | None, after: ContainerPhase) -> ContainerPhase:
    """Return the phase to write; `before` is None when none was written yet.

    Raises
    ------
    ValueError
        When the table does not have the transition: a rule is wrong.
    """
    if not may_move(before, after):
        raise ValueError(f"a container cannot move from {before} to {after}")
    return after


_CONDITIONS = TypeAdapter(tuple[Condition, ...])

Part = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StatusEvent:
    """An Event to record."""

    reason: str
    """Reason from the reasons table."""
    message: str
    """Sentence for people."""
    warning: bool
    """Whether something is wrong."""


def status_event(before: Part, after: Part) -> StatusEvent | None:
    """Return the Event that a written status calls for.

    Parameters
    ----------
    before
        The status before the write, of any kind but Enclave.
    after
        The status after it.

    Returns
    -------
    StatusEvent | None
        The new reason of Ready, when it differs from the previous one and the table gives it an
        Event; where the old release serves on after a failed update, UpdateFailed with the cause;
        else Drained, when that is new. Before all of these InvalidObject, where the reconcile has
        stalled and Ready is as it was. None means no Event.
    """
    conditions = _CONDITIONS.validate_python(after.get("conditions") or ())
    earlier = _CONDITIONS.validate_python(before.get("conditions") or ())
    old, new = _reason(earlier), None
    stalled = _invalid(conditions)
    if stalled is not None and _invalid(earlier) is None:
        return StatusEvent(stalled.reason, stalled.message, warning=True)
    ready = condition(conditions, "Ready")
    if ready is not None and (word := _reason(conditions)) != old:
        new = REASONS.get(word)
    # An attempt may go back to Deploying each time that a pull is tried again: one Event for each.
    if new is not None and new.word == "Deploying" and _same(before, after, "candidate"):
        new = None
    if ready is None or new is None or (new.kind is ReasonKind.STATE and not new.event):
        return _drained(before, after)
    return StatusEvent(new.word, ready.message, warning=new.kind is not ReasonKind.STATE)


def enclave_event(spec: Part, before: Part, after: Part) -> StatusEvent | None:
    """Return the Event of an Enclave that a written status calls for; None if there is none.

    What is wrong with it is reported by its Container.
    """
    if after.get("serving") and not before.get("serving"):
        names = spec.get("hostnames") or ("",)
        return StatusEvent("Serving", f"Tag {spec['tag']} serves at {names[0]}.", warning=False)
    if before.get("serving") and not after.get("serving") and after.get("phase") == "Ready":
        message = "Requests go to the next enclave; this one is deleted once it has drained."
        return StatusEvent("Draining", message, warning=False)
    if after.get("readyAt") and not before.get("readyAt"):
        message = "Every container has started and is healthy."
        return StatusEvent("Healthy", message, warning=False)
    return None


def _drained(before: Part, after: Part) -> StatusEvent | None:
    """Return that an Enclave that served has drained: it is in the history once it must go."""
    known = {each["enclave"] for each in before.get("history") or ()}
    added = (each for each in after.get("history") or () if each["enclave"] not in known)
    drained = next((each for each in added if each["outcome"] == "Served"), None)
    if drained is None or not after.get("activeEnclave"):
        return None
    message = f"Enclave {drained['enclave']} with tag {drained['tag']} has drained and is deleted."
    return StatusEvent("Drained", message, warning=False)


def _invalid(conditions: Iterable[Condition]) -> Condition | None:
    """Return the condition that says why an object is not reconciled; None if it is."""
    found = condition(conditions, "Stalled")
    return found if found is not None and found.reason == "InvalidObject" else None


def _same(before: Part, after: Part, field: str) -> bool:
    return (before.get(field) or "") == (after.get(field) or "")


def _reason(conditions: Iterable[Condition]) -> str:
    """Return the reason that sums up the conditions; empty if there is none yet."""
    conditions = tuple(conditions)
    stalled = condition(conditions, "Stalled")
    if holds(conditions, "Stalled") and stalled is not None and stalled.reason == "UpdateFailed":
        return stalled.reason
    ready = condition(conditions, "Ready")
    return ready.reason if ready is not None else ""


@dataclass(frozen=True, slots=True)
class CreateEnclave:
    """Create an Enclave by POST, with its ConfigMap and its snapshot of secret values.

    AlreadyExists with our controller uid is adopted, and what is missing is added, so that the same
    action completes an Enclave whose creation was interrupted.
    """

    name: str
    """Name of the Enclave."""
    spec: EnclaveSpec
    """Its spec."""
    file: bytes | None
    """Bytes for the ConfigMap; None if copied from `copy_from`."""
    secrets: tuple[SecretRefKey, ...] = ()
    """Content of the snapshot; read from core Secrets unless `copy_from` has a snapshot."""
    copy_from: str | None = None
    """Enclave whose ConfigMap and snapshot are copied; None if they are built from scratch."""


@dataclass(frozen=True, slots=True)
class DeleteEnclave:
    """Delete an Enclave, with preconditions; its Pod and the rest are garbage-collected."""

    name: str
    """Name of the Enclave."""
    uid: str
    """uid that was observed."""
    resource_version: str
    """resourceVersion that was observed."""


@dataclass(frozen=True, slots=True)
class ClaimHostname:
    """Create the HostnameClaim of a host for this Container, by POST.

    AlreadyExists is not an error: the next reconcile sees the holder.
    """

    hostname: str
    """Host name."""


@dataclass(frozen=True, slots=True)
class TransferHostname:
    """Make this Container the holder of a HostnameClaim of the one that it replaces.

    One write, so that nobody else gets the name in between.
    """

    hostname: str
    """Host name."""
    resource_version: str
    """resourceVersion that was observed."""


@dataclass(frozen=True, slots=True)
class ReleaseHostname:
    """Delete a HostnameClaim with preconditions, after a live GET and 60 s of age."""

    hostname: str
    """Host name."""
    uid: str
    """uid that was observed."""
    resource_version: str
    """resourceVersion that was observed."""


class ServiceRole(StrEnum):
    """What a Service of a Container leads to."""

    SERVING = "serving"
    """The Enclave that serves; deleted with the Container only."""
    PREVIEW = "preview"
    """The staged update; deleted when nothing is staged."""
    SSH = "ssh"
    """The debug Enclave; deleted when nobody may log in."""


@dataclass(frozen=True, slots=True)
class RouteTo:
    """Make a Service of the Container (server-side apply) select an Enclave."""

    role: ServiceRole
    """Which Service."""
    enclave: str
    """Name of the Enclave."""


@dataclass(frozen=True, slots=True)
class DeleteService:
    """Delete a Service of the Container, with a precondition."""

    role: ServiceRole
    """Which Service."""
    uid: str
    """uid that was observed."""


@dataclass(frozen=True, slots=True)
class RouteHostname:
    """Route a host name to a Service of the Container (TLSRoute, server-side apply)."""

    hostname: str
    """Host name; the route is named after it."""
    service: str
    """Name of the Service."""


@dataclass(frozen=True, slots=True)
class DeleteRoute:
    """Delete the TLSRoute of a host name, with preconditions."""

    hostname: str
    """Host name."""
    uid: str
    """uid that was observed."""
    resource_version: str
    """resourceVersion that was observed."""


@dataclass(frozen=True, slots=True)
class EnsureDeployment:
    """Create the Deployment of a repository if there is none, with our label."""

    repo: str
    """``owner/name``."""


@dataclass(frozen=True, slots=True)
class RecordServing:
    """Write promotedAt of an Enclave that started to serve."""

    enclave: str
    """Name of the Enclave."""
    at: datetime
    """Since when, in UTC."""


@dataclass(frozen=True, slots=True)
class RecordDemoted:
    """Write demotedAt of an Enclave that stopped serving."""

    enclave: str
    """Name of the Enclave."""
    at: datetime
    """Since when, in UTC."""


Action: TypeAlias = (
    CreateEnclave
    | DeleteEnclave
    | ClaimHostname
    | TransferHostname
    | ReleaseHostname
    | RouteTo
    | DeleteService
    | RouteHostname
    | DeleteRoute
    | EnsureDeployment
    | RecordServing
    | RecordDemoted
)
"""A change of the cluster."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What follows from an observation."""

    rule: str
    """Name of the rule that decided, for logs and tests."""
    status: ContainerStatus
    """The complete next status; equal to the observed one when nothing changed."""
    actions: tuple[Action, ...] = ()
    """What to do, in order, before the status is written."""
    needs: tuple[Need, ...] = ()
    """What to look up outside of the reconcile; a result enqueues the Container."""
    requeue_after: timedelta | None = None
    """When to reconcile again although nothing changed; None means on changes only."""
