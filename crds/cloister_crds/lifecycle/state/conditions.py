"""Conditions as Kubernetes defines them, and the reasons of states in which nothing is wrong."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from cloister_crds.kinds.meta import Condition, ConditionStatus

__all__ = [
    "STATES",
    "ConditionUpdate",
    "Reason",
    "ReasonKind",
    "condition",
    "final",
    "holds",
    "merge",
    "open_",
    "state",
    "transient",
]


class ReasonKind(StrEnum):
    """What follows from a reason."""

    STATE = "state"
    """Nothing is wrong: it is a state."""
    TRANSIENT = "transient"
    """Temporary; retried with backoff."""
    TERMINAL = "terminal"
    """Action required; see the message."""


@dataclass(frozen=True, slots=True)
class Reason:
    """A word and what it means."""

    word: str
    """CamelCase, stable."""
    kind: ReasonKind
    """What follows from it."""
    meaning: str
    """What it means."""
    remedy: str = ""
    """What to do, as an imperative sentence; empty where there is nothing to do."""
    final: bool = False
    """Whether only a new request helps: it is not retried before that."""
    recheck: bool = False
    """Whether it is checked again every minute, because others can free what is missing and no
    watch reports it."""
    event: bool = False
    """Whether it has an Event although nothing is wrong; what is wrong always has one."""


def state(word: str, meaning: str, remedy: str = "", *, event: bool = False) -> Reason:
    """Build the reason of a state in which nothing is wrong."""
    return Reason(word, ReasonKind.STATE, meaning, remedy, event=event)


def transient(word: str, meaning: str, remedy: str) -> Reason:
    """Build a reason that is temporary."""
    return Reason(word, ReasonKind.TRANSIENT, meaning, remedy)


def final(word: str, meaning: str, remedy: str) -> Reason:
    """Build a reason that only a new request fixes."""
    return Reason(word, ReasonKind.TERMINAL, meaning, remedy, final=True)


def open_(word: str, meaning: str, remedy: str, *, recheck: bool = False) -> Reason:
    """Build a reason that ends as soon as somebody changes what is missing."""
    return Reason(word, ReasonKind.TERMINAL, meaning, remedy, recheck=recheck)


STATES = (
    state("Serving", "The release that spec requests serves.", event=True),
    state(
        "Stopped",
        "The container is stopped, as spec requests.",
        "Set spec.state to Running.",
        event=True,
    ),
    state("Stopping", "Its enclaves are being deleted."),
    state(
        "Deleting",
        "The object is being deleted; what belongs to it ends first.",
        "Wait; the message names what it waits for.",
    ),
    state(
        "Paused",
        "An administrator paused the container; what spec requests is not considered.",
        "Ask the administrator to take the annotation cloister.dev/paused away.",
    ),
    state("Resolving", "The release, its images, secrets and host name are being looked up."),
    state("Deploying", "An enclave was created and its Pod is not up yet.", event=True),
    state("Starting", "The Pod is up and the health checks run."),
    state("Healthy", "Every container of the enclave has started and is healthy.", event=True),
    state("Routing", "The enclave is ready and the Service is being pointed at it."),
    state("Updating", "The present release serves while the new one starts.", event=True),
    state(
        "StopFirst",
        "The present release is deleted before the new one starts, which needs its GPUs.",
        event=True,
    ),
    state(
        "AwaitingPromotion",
        "The update is ready and waits; the release before it serves.",
        "Set spec.promote to status.update.revision, or accept the update.",
        event=True,
    ),
    state("Draining", "Requests go to the next enclave; open ones may end.", event=True),
    state("Drained", "The enclave of the previous release has drained and is deleted.", event=True),
    state(
        "AwaitingMetering",
        "A deleted enclave waits for the API to meter its run time.",
        "Check that the API runs with metering and reaches its ledger.",
    ),
    state("RouteAccepted", "The gateway routes the host names to the container."),
    state(
        "RoutePending",
        "The gateway has not confirmed yet that it routes the host names to the container.",
        "Wait; if it persists, ask the administrator whether the controller of the Gateway runs.",
    ),
    state("NoTee", "The Host has no trusted execution environment."),
    state("Attested", "The machine of the enclave gave evidence of its TEE."),
    state("NotAttested", "The machine of the enclave has given no evidence yet."),
    state(
        "NodeAttested",
        "The node gave evidence of its TEE, which measures no single enclave.",
        "Use a Host with teeUnit Pod.",
    ),
    state("DebugEnclave", "A debug enclave permits logins."),
    state("TeeSwitchedOff", "The request switched the TEE of the Host off."),
    state(
        "NoGuestPolicy",
        "Rules that this release does not know judge what the node's operator requests of the "
        "machine.",
        "Leave policy.rego out of spec.initdata of the Host, and relaunch older enclaves.",
    ),
    state("SecretsInCluster", "Values of secrets come from core Secrets of the cluster."),
    state("SharedNetwork", "The containers of the enclave share one network namespace."),
    state("OwnNetworks", "Each container of the enclave has only the networks of the file."),
    state("HostCannot", "Fields of the file that this Host cannot enforce."),
    state("NodesReady", "The Host has nodes that are ready."),
    state(
        "NoNode",
        "No ready node matches the Host; enclaves wait for one.",
        "Add a node with the labels of the Host's nodeSelector.",
    ),
    state(
        "SeveralDefaults",
        "Several Hosts say that they are the default; the first by name counts.",
        "Leave spec.default out of the others.",
    ),
    state("ApiAnswers", "The API accepts connections at the address that enclaves use."),
    state("NamespaceReady", "The Organization has its namespace."),
    state(
        "AwaitingContainers",
        "The Organization is being deleted and waits for what runs in its namespace.",
        "Delete the Containers that the message names.",
    ),
    state("WithinLimits", "The organization has no more of anything than its limits permit."),
    state(
        "AboveLimits",
        "The organization has more than a limit permits; nothing is deleted, creates are refused.",
        "Delete what the message names, or raise spec.limits of the Organization.",
    ),
    state("Counted", "The Containers of the repository were counted."),
    state("ValueFound", "The value of the secret can be read."),
    state("KeyUsable", "The key can log in to debug enclaves that name it."),
    state("DomainVerified", "The records of the custom domain were seen.", event=True),
    state("CredentialsUsable", "The credentials of the registry can be read."),
)
"""In the order of the manual."""


MESSAGE_LIMIT = 32_768
"""Longest message that the schema takes, in characters."""


@dataclass(frozen=True, slots=True)
class ConditionUpdate:
    """A condition as observed now, without a transition time."""

    type: str
    """Name of the condition."""
    status: bool
    """Whether it holds."""
    reason: str
    """Reason from the reasons table."""
    message: str = ""
    """Sentence for people."""


def merge(
    before: Iterable[Condition],
    updates: Iterable[ConditionUpdate],
    *,
    generation: int,
    now: datetime,
) -> tuple[Condition, ...]:
    """Return the next conditions.

    Parameters
    ----------
    before
        Present conditions. One without an update is removed.
    updates
        The observed conditions, in the order in which they are written.
    now
        The present; it is written only where a status changes.

    Returns
    -------
    tuple[Condition, ...]
        The next conditions, equal to the present ones when nothing changed.
    """
    known = {each.type: each for each in before}
    merged = []
    for update in updates:
        status = ConditionStatus.TRUE if update.status else ConditionStatus.FALSE
        old = known.get(update.type)
        since = old.last_transition_time if old is not None and old.status is status else now
        merged.append(
            Condition(
                type=update.type,
                status=status,
                observed_generation=max(generation, 0),
                last_transition_time=since,
                reason=update.reason,
                message=update.message[:MESSAGE_LIMIT],
            )
        )
    return tuple(merged)


def condition(conditions: Iterable[Condition], name: str) -> Condition | None:
    """Return the condition of a type; None when that type is absent."""
    return next((each for each in conditions if each.type == name), None)


def holds(conditions: Iterable[Condition], name: str) -> bool:
    """Return whether a condition exists and is true."""
    found = condition(conditions, name)
    return found is not None and found.status is ConditionStatus.TRUE
