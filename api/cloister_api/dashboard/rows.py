"""What pages show, as frozen values: navigation, tables and their rows; templates render them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from cloister_api.auth.roles import RIGHTS, RoleRight
from cloister_api.cache import CachedContainer
from cloister_api.records.container import shown_state
from cloister_api.schemas.container_responses import (
    ConditionResponse,
    ContainerResponse,
    ContainerStatusResponse,
    ManagerResponse,
)
from cloister_api.schemas.resources import DomainResponse
from cloister_crds.kinds.container import ContainerPhase
from cloister_crds.kinds.meta import Condition, ConditionStatus
from cloister_crds.kinds.organization import Role
from cloister_crds.lifecycle.actions import ApiAction, refusal


@dataclass(frozen=True, slots=True)
class Place:
    """A page of every organization."""

    title: str
    """Its title."""
    path: str
    """Last part of its address."""
    right: RoleRight = RoleRight.READ
    """What it requires to be seen."""


GROUPS: tuple[tuple[str, tuple[Place, ...]], ...] = (
    ("Run", (Place("Containers", "containers"), Place("Deployments", "deployments"))),
    (
        "Configure",
        (
            Place("Secrets", "secrets"),
            Place("SSH keys", "ssh-keys"),
            Place("Domains", "domains"),
            Place("Registries", "registries"),
        ),
    ),
    (
        "Inference",
        (Place("API keys", "api-keys"), Place("Usage", "usage"), Place("Models", "models")),
    ),
    (
        "Organization",
        (
            Place("Billing", "billing"),
            Place("Admin keys", "admin-keys", RoleRight.ADMINISTER),
            Place("Members", "members"),
            Place("Audit", "audit", RoleRight.AUDIT),
            Place("Hosts", "hosts"),
            Place("Settings", "settings"),
        ),
    ),
)
"""Pages by group, in the order of the navigation."""


@dataclass(frozen=True, slots=True)
class NavigationLink:
    """A link of the navigation."""

    title: str
    """Title of the page."""
    address: str
    """Its path."""
    current: bool
    """Whether the present page is it, or one below it."""


@dataclass(frozen=True, slots=True)
class NavigationGroup:
    """Links that belong together."""

    title: str
    """Title."""
    links: tuple[NavigationLink, ...]
    """Links."""


def navigation_of(slug: str, role: Role, path: str) -> list[NavigationGroup]:
    """Return the links that somebody sees.

    Parameters
    ----------
    path
        Path of the present page.
    """
    groups = []
    for title, places in GROUPS:
        links = tuple(
            NavigationLink(each.title, address, path == address or path.startswith(f"{address}/"))
            for each in places
            if each.right in RIGHTS[role]
            for address in (f"/o/{slug}/{each.path}",)
        )
        if links:
            groups.append(NavigationGroup(title, links))
    return groups


class Tone(StrEnum):
    """How a status looks; the word next to it says the same."""

    GOOD = "good"
    """All is well."""
    BUSY = "busy"
    """Something is under way."""
    BAD = "bad"
    """Something is wrong."""
    QUIET = "quiet"
    """Nothing runs, as requested."""


TONES = {
    ContainerPhase.READY: Tone.GOOD,
    ContainerPhase.FAILED: Tone.BAD,
    ContainerPhase.STOPPED: Tone.QUIET,
}
"""Tones of phases; every other one is under way."""
URGENCY = (Tone.BAD, Tone.BUSY, Tone.GOOD, Tone.QUIET)
"""Order of a list: what needs somebody first."""
QUESTIONS = {
    "Ready": "Does what you asked for serve?",
    "Available": "Is something serving?",
    "Confidential": "Is it confidential?",
    "NetworkIsolated": "Are its networks apart?",
    "SecretsSealed": "Are its secrets sealed?",
    "DomainReady": "Is the domain in order?",
    "Routed": "Do requests reach it?",
    "KeysChecked": "Can API keys be checked?",
    "Stalled": "Does it wait for somebody?",
    "Reconciling": "Is something under way?",
    "Unenforced": "Does the host leave something of the file undone?",
    "TagMoved": "Has the tag moved since it was deployed?",
    "Paused": "Is it paused?",
}
"""What each condition answers; another one is shown by its type."""


Listed = tuple[CachedContainer, ContainerResponse, Sequence[ManagerResponse]]
"""A container, its record, and the GitOps tools that manage its fields."""


@dataclass(frozen=True, slots=True)
class ContainerRow:
    """A container in the list."""

    id: str
    """Identifier."""
    name: str
    """Name."""
    debug: bool
    """Whether it is a debug container."""
    status: str
    """Status word."""
    tone: Tone
    """How the status looks."""
    repo: str
    """Repository."""
    tag: str
    """Tag that serves or is on its way."""
    next_tag: str
    """Tag of an update; empty if there is none."""
    domain: str
    """Host name that serves."""
    resources: tuple[str, ...]
    """Parts of its size in words; empty before its file was read."""
    created_at: str
    """When it was created."""
    reason: str
    """Reason why it is not ready, if it should be; empty if it is, or nothing is known."""
    confidential: str
    """yes, no or not known."""
    confidential_tone: Tone
    """How that looks."""
    managers: tuple[str, ...]
    """GitOps tools that manage some of its fields."""
    tag_managers: tuple[str, ...]
    """Those of them that manage its tag, so that no update from here is taken."""


def container_rows(listed: Iterable[Listed]) -> list[ContainerRow]:
    """Return the rows of containers with their records and the GitOps tools that manage them."""
    return [_container_row(*each) for each in listed]


def _container_row(
    held: CachedContainer, record: ContainerResponse, managers: Sequence[ManagerResponse]
) -> ContainerRow:
    conditions = {each.type: each for each in held.container.status.conditions}
    ready, confidential = conditions.get("Ready"), conditions.get("Confidential")
    tone = tone_of(record.status)
    return ContainerRow(
        id=str(record.id),
        name=record.name,
        debug=record.debug,
        status=record.status.value,
        tone=tone,
        repo=record.repo,
        tag=record.current_tag,
        next_tag=record.update_tag or "",
        domain=record.domain,
        resources=resources_of(record),
        created_at=record.created_at,
        reason=reason_of(ready, record.status),
        confidential=answer_of(confidential),
        confidential_tone=Tone.QUIET if confidential is None else _tone_of_condition(confidential),
        managers=tuple(each.manager for each in managers),
        tag_managers=tuple(each.manager for each in managers if "tag" in each.fields),
    )


def reason_of(ready: Condition | None, phase: ContainerPhase) -> str:
    """Return the reason why a container is not ready; empty if it is, or its phase says as much."""
    if ready is None or ready.status is ConditionStatus.TRUE:
        return ""
    told = tone_of(phase) in {Tone.GOOD, Tone.QUIET} or ready.reason.lower() == phase.value
    return "" if told else ready.reason


def tone_of(phase: ContainerPhase) -> Tone:
    """Return how a phase looks."""
    return TONES.get(phase, Tone.BUSY)


def resources_of(record: ContainerResponse) -> tuple[str, ...]:
    """Return the size of a container in words; empty before its file was read."""
    if not record.cpus:
        return ()
    parts = (f"{record.cpus} CPUs", f"{record.memory_mb:,} MB")
    if not record.gpus:
        return parts
    return (*parts, f"{record.gpus} GPU" + ("s" if record.gpus > 1 else ""))


@dataclass(frozen=True, slots=True)
class ConditionRow:
    """A condition in words."""

    question: str
    """What it answers."""
    answer: str
    """yes, no or not known."""
    tone: Tone
    """How the answer looks."""
    about: ConditionResponse
    """The condition."""

    @property
    def remedy(self) -> str:
        """What to do about it in general; empty where nothing is wrong, or its message says so."""
        remedy = self.about.remedy or ""
        if self.tone is not Tone.BAD or remedy.rstrip(".") in self.about.message:
            return ""
        return remedy


@dataclass(frozen=True, slots=True)
class DomainRow:
    """A custom domain."""

    record: DomainResponse
    """Its record."""
    word: str
    """How it is."""
    tone: Tone
    """How that looks."""


def domain_rows(records: Sequence[DomainResponse]) -> list[DomainRow]:
    """Return the domains, those that need somebody first, then by name."""
    rows = []
    for each in records:
        if each.verified:
            word, tone = "verified", Tone.GOOD
        elif each.lost_at is not None:
            word, tone = "lost", Tone.BAD
        else:
            word, tone = "not verified yet", Tone.BUSY
        rows.append(DomainRow(each, word, tone))
    return sorted(rows, key=lambda row: (URGENCY.index(row.tone), row.record.domain))


BAD_WHEN_TRUE = frozenset({"Stalled", "Unenforced", "TagMoved"})
"""Conditions whose yes is bad."""
NEUTRAL = frozenset({"Reconciling", "Paused"})
"""Conditions whose yes and no are neither good nor bad."""
EXPECTED = frozenset({"NoTee", "NodeAttested"})
"""Reasons why nothing is confidential on a Host, which is not a fault of the container."""
UNKNOWN = "not known"
ANSWERS = {ConditionStatus.TRUE: "yes", ConditionStatus.FALSE: "no"}


def condition_rows(conditions: Sequence[ConditionResponse]) -> list[ConditionRow]:
    """Return the conditions in words, in the order of `QUESTIONS`, unknown types at the end."""
    order = list(QUESTIONS)
    rows = [
        ConditionRow(
            question=QUESTIONS.get(each.type, each.type),
            answer=answer_of(each),
            tone=_tone_of_condition(each),
            about=each,
        )
        for each in conditions
    ]
    return sorted(
        rows,
        key=lambda row: (
            order.index(row.about.type) if row.about.type in order else len(order),
            row.about.type,
        ),
    )


def answer_of(condition: ConditionResponse | Condition | None) -> str:
    """Return yes, no or not known."""
    return ANSWERS.get(condition.status, UNKNOWN) if condition is not None else UNKNOWN


def _tone_of_condition(condition: ConditionResponse | Condition) -> Tone:
    """Return how the answer of a condition looks."""
    if condition.type in NEUTRAL:
        return Tone.QUIET
    if condition.status not in ANSWERS:
        return Tone.BUSY
    if condition.type == "Confidential" and condition.reason in EXPECTED:
        return Tone.QUIET
    holds = condition.status is ConditionStatus.TRUE
    return Tone.GOOD if holds is (condition.type not in BAD_WHEN_TRUE) else Tone.BAD


def possible_actions(held: CachedContainer) -> frozenset[str]:
    """Return which actions a container permits now: a form that would be refused is not shown."""
    where, resources = shown_state(held.container), held.container.status.resources
    return frozenset(
        action.value
        for action in ApiAction
        if refusal(
            action,
            where.phase,
            where.update.status if where.update is not None else None,
            gpus=resources.gpus if resources is not None else 0,
            deleting=held.going,
        )
        is None
    )


def sentence_of(status: ContainerStatusResponse) -> ConditionRow | None:
    """Return the condition that says how a container is as a whole; None if none does yet."""
    rows = condition_rows(status.conditions)
    return next((each for each in rows if each.about.type == "Ready"), None)
