"""What pages show, as frozen values: navigation, tables and their rows; templates render them."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from cloister_api.auth.roles import RIGHTS, RoleRight
from cloister_api.cache import CachedContainer
from cloister_api.records.container import shown_state
from cloister_api.schemas.container_responses import (
    BootStageResponse,
    ConditionResponse,
    ContainerResponse,
    ContainerStatusResponse,
    ManagerResponse,
)
from cloister_api.schemas.resources import DomainResponse
from cloister_crds.kinds.container import ContainerPhase, UpdatePhase
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
    icon: str
    """Its picture, by the name in `icons.svg`."""
    right: RoleRight = RoleRight.READ
    """What it requires to be seen."""


GROUPS: tuple[tuple[str, tuple[Place, ...]], ...] = (
    (
        "",
        (
            Place("Containers", "containers", "box"),
            Place("Deployments", "deployments", "layers"),
            Place("Activity", "audit", "pulse", RoleRight.AUDIT),
        ),
    ),
    (
        "Inference",
        (
            Place("API keys", "api-keys", "key"),
            Place("Usage", "usage", "chart"),
            Place("Models", "models", "model"),
        ),
    ),
    (
        "Configuration",
        (
            Place("Secrets", "secrets", "lock"),
            Place("Domains", "domains", "globe"),
            Place("Registries", "registries", "archive"),
            Place("SSH keys", "ssh-keys", "terminal"),
        ),
    ),
    (
        "Organization",
        (
            Place("Members", "members", "users"),
            Place("Admin keys", "admin-keys", "shield", RoleRight.ADMINISTER),
            Place("Billing", "billing", "card"),
            Place("Hosts", "hosts", "server"),
            Place("Settings", "settings", "sliders"),
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
    icon: str
    """Its picture."""
    current: bool
    """Whether the present page is it, or one below it."""


@dataclass(frozen=True, slots=True)
class NavigationGroup:
    """Links that belong together."""

    title: str
    """Title; empty for the first one."""
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
            NavigationLink(
                each.title, address, each.icon, path == address or path.startswith(f"{address}/")
            )
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
    """Something is in progress."""
    WARN = "warn"
    """Something waits."""
    BAD = "bad"
    """Something is wrong."""
    NONE = "none"
    """Nothing runs, as requested."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A status as pages show it."""

    word: str
    """Its word."""
    tone: Tone
    """How it looks."""
    shape: str = ""
    """Its picture; empty means that of the tone."""


PHASES = {
    ContainerPhase.PENDING: Shown("Waiting", Tone.WARN),
    ContainerPhase.DEPLOYING: Shown("Deploying", Tone.BUSY),
    ContainerPhase.STARTED: Shown("Starting", Tone.BUSY),
    ContainerPhase.READY: Shown("Running", Tone.GOOD),
    ContainerPhase.FAILED: Shown("Failed", Tone.BAD),
    ContainerPhase.STOPPING: Shown("Stopping", Tone.NONE, "s-working"),
    ContainerPhase.STOPPED: Shown("Stopped", Tone.NONE),
}
"""The API's status words as pages show them."""


class Situation(StrEnum):
    """What a list groups, counts and orders containers by, the most urgent first."""

    FAILED = "failed"
    """It, or its update, failed."""
    REVIEW = "review"
    """An update is ready and waits for its promotion."""
    PROGRESS = "in-progress"
    """It, or an update of it, is on its way."""
    RUNNING = "running"
    """It serves, and nothing else happens."""
    STOPPED = "stopped"
    """It is stopped, as requested."""


SITUATIONS = {
    Situation.FAILED: Shown("Failed", Tone.BAD),
    Situation.REVIEW: Shown("Review", Tone.BUSY, "s-review"),
    Situation.PROGRESS: Shown("In progress", Tone.BUSY),
    Situation.RUNNING: Shown("Running", Tone.GOOD),
    Situation.STOPPED: Shown("Stopped", Tone.NONE),
}
"""Situations as pages show them."""


def situation_of(phase: ContainerPhase, update: UpdatePhase | None) -> Situation:
    """Return the situation of a container, by its status and that of its update."""
    if ContainerPhase.FAILED in {phase, update}:
        return Situation.FAILED
    if phase is ContainerPhase.STOPPED:
        return Situation.STOPPED
    if phase is not ContainerPhase.READY:
        return Situation.PROGRESS
    if update is None:
        return Situation.RUNNING
    return Situation.REVIEW if update is UpdatePhase.READY else Situation.PROGRESS


def update_of(update: UpdatePhase | None, tag: str) -> Shown | None:
    """Return the second status of a container; None if it has no update."""
    if update is None:
        return None
    if update is UpdatePhase.FAILED:
        return Shown("Update failed", Tone.BAD)
    if update is UpdatePhase.READY:
        return Shown(f"Review {tag}", Tone.BUSY, "s-review")
    return Shown(f"Updating to {tag}", Tone.BUSY)


CHECKS = {
    "Ready": ("The requested release is serving", "The requested release isn't serving"),
    "Confidential": ("Confidential hardware reported", "Not confidential"),
    "NetworkIsolated": ("Networks isolated per container", "Containers share one network"),
    "SecretsSealed": ("Secrets sealed", "Secrets readable by the cluster"),
    "DomainReady": ("Custom domain verified", "Custom domain not ready"),
    "Routed": ("Reachable at its address", "Not reachable at its address"),
    "KeysChecked": ("API keys are checked", "API keys can't be checked"),
    "Unenforced": ("Some settings aren't enforced by this host", "All settings enforced"),
    "TagMoved": ("The tag moved since its deployment", "The tag is the deployed one"),
    "Paused": ("Paused by an administrator of the cluster", ""),
}
"""What each condition says where it is true and where it is false; empty is not shown."""
TOLD = frozenset({"Available", "Stalled", "Reconciling"})
"""Conditions that repeat what the status and the note on top of a page say."""
MANAGERS = {
    "argocd-controller": "Argo CD",
    "kustomize-controller": "Flux",
    "helm-controller": "Flux",
}
"""Products of field managers."""


WORD = re.compile(r"(?<=[a-z])([A-Z])")
GIGABYTE = 1024
"""In MB."""
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
    status: Shown
    """Status."""
    update: Shown | None
    """Status of its update; None if there is none."""
    about: str
    """What else there is to know of its status; empty if there is nothing."""
    repo: str
    """Repository."""
    tag: str
    """Tag that serves or is on its way."""
    next_tag: str
    """Tag of an update; empty if there is none."""
    domain: str
    """Host name that serves."""
    size: str
    """Size in words; empty before its file was read."""
    hardware: str
    """Whether its hardware is reported as confidential; empty before anything is reported."""
    updated_at: str
    """When it was changed."""
    managers: tuple[str, ...]
    """Products that manage some of its fields."""
    tag_managers: tuple[str, ...]
    """GitOps tools that manage its tag, so that no update from here is taken."""


def container_rows(listed: Iterable[Listed]) -> list[ContainerRow]:
    """Return the rows of containers with their records and the GitOps tools that manage them."""
    return [_container_row(*each) for each in listed]


def _container_row(
    held: CachedContainer, record: ContainerResponse, managers: Sequence[ManagerResponse]
) -> ContainerRow:
    conditions = {each.type: each for each in held.container.status.conditions}
    failed_update = record.update_status is UpdatePhase.FAILED
    return ContainerRow(
        id=str(record.id),
        name=record.name,
        debug=record.debug,
        status=PHASES[record.status],
        update=update_of(record.update_status, record.update_tag or ""),
        about=f"{record.current_tag} keeps serving"
        if failed_update
        else reason_of(conditions.get("Ready"), record.status),
        repo=record.repo,
        tag=record.current_tag,
        next_tag=record.update_tag or "",
        domain=record.domain,
        size=size_of(record.cpus, record.memory_mb, record.gpus),
        hardware=hardware_of(conditions.get("Confidential")),
        updated_at=record.updated_at,
        managers=product_names(managers),
        tag_managers=tuple(each.manager for each in managers if "tag" in each.fields),
    )


def product_names(managers: Iterable[ManagerResponse]) -> tuple[str, ...]:
    """Return the products behind field managers; unknown ones are named as they are."""
    return tuple(dict.fromkeys(MANAGERS.get(each.manager, each.manager) for each in managers))


def reason_of(ready: Condition | None, phase: ContainerPhase) -> str:
    """Return why a container is not ready; empty if it is, or its phase says as much."""
    if ready is None or ready.status is ConditionStatus.TRUE:
        return ""
    settled = PHASES[phase].tone in {Tone.GOOD, Tone.NONE}
    return "" if settled or ready.reason.lower() == phase.value else spaced(ready.reason)


def spaced(reason: str) -> str:
    """Return a reason as words: `ImageNotFound` is "Image not found"."""
    return WORD.sub(r" \1", reason).capitalize().strip()


def size_of(cpus: int, memory_mb: int, gpus: int) -> str:
    """Return a size in words; empty before the file was read."""
    if not cpus:
        return ""
    memory = f"{memory_mb / 1024:g} GB" if memory_mb >= GIGABYTE else f"{memory_mb} MB"
    return f"{cpus} CPU, {memory}" + (f", {gpus} GPU" if gpus else "")


def hardware_of(confidential: Condition | None) -> str:
    """Return whether the hardware is reported as confidential."""
    if confidential is None or confidential.status not in KNOWN:
        return ""
    if confidential.status is ConditionStatus.TRUE:
        return "Confidential"
    return "None" if confidential.reason in EXPECTED else "Not confidential"


@dataclass(frozen=True, slots=True)
class Check:
    """A condition in words."""

    words: str
    """What is so."""
    tone: Tone
    """How it looks."""
    about: ConditionResponse
    """The condition."""

    @property
    def why(self) -> str:
        """Why, and what to do about it; empty where it is plainly fine."""
        if self.tone is Tone.GOOD:
            return ""
        remedy = self.about.remedy or ""
        if self.tone is not Tone.BAD or remedy.rstrip(".") in self.about.message:
            return self.about.message
        return f"{self.about.message.rstrip('.')}. {remedy}"


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
            word, tone = "Verified", Tone.GOOD
        elif each.lost_at is not None:
            word, tone = "Lost", Tone.BAD
        else:
            word, tone = "Waiting for DNS", Tone.WARN
        rows.append(DomainRow(each, word, tone))
    return sorted(rows, key=lambda row: (list(Tone).index(row.tone) * -1, row.record.domain))


BAD_WHEN_TRUE = frozenset({"Unenforced", "TagMoved"})
"""Conditions whose yes is bad."""
EXPECTED = frozenset({"NoTee", "NodeAttested"})
"""Reasons why nothing is confidential on a Host, which is not a fault of the container."""
KNOWN = frozenset({ConditionStatus.TRUE, ConditionStatus.FALSE})


def checks_of(conditions: Sequence[ConditionResponse]) -> list[Check]:
    """Return the conditions in words, in the order of `CHECKS`, unknown types at the end."""
    order = list(CHECKS)
    shown = sorted(
        (each for each in conditions if each.type not in TOLD),
        key=lambda each: (order.index(each.type) if each.type in CHECKS else len(order), each.type),
    )
    return [Check(words, _tone_of(each), each) for each in shown if (words := _words_of(each))]


def _words_of(condition: ConditionResponse) -> str:
    """Return what a condition says; empty if nothing is to be shown."""
    holds, fails = CHECKS.get(condition.type, (condition.type, f"{condition.type}: no"))
    if condition.status not in KNOWN:
        return f"{spaced(condition.type)}: not reported yet"
    return holds if condition.status is ConditionStatus.TRUE else fails


def _tone_of(condition: ConditionResponse) -> Tone:
    """Return how a condition looks."""
    neutral = condition.type == "Paused" or condition.status not in KNOWN
    if neutral or (condition.type == "Confidential" and condition.reason in EXPECTED):
        return Tone.NONE
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


def ready_of(status: ContainerStatusResponse) -> Check | None:
    """Return the check that says how a container is as a whole; None if none does yet."""
    return next((each for each in checks_of(status.conditions) if each.about.type == "Ready"), None)


STARTING = ("containers",)
TRAFFIC = ("shim",)
STEPS = ("Boot", "Start", "Traffic")


@dataclass(frozen=True, slots=True)
class Step:
    """A part of a start."""

    title: str
    """Its title."""
    done: int
    """How many of its stages are over."""
    of: int
    """How many stages it has."""
    tone: str
    """How it looks; empty before it begins."""


def steps_of(stages: Sequence[BootStageResponse]) -> list[Step]:
    """Return the boot stages of an enclave as three steps; none before it reports any."""
    found = []
    before = True
    for title in STEPS if stages else ():
        own = [each for each in stages if _step_of(each.name) == title]
        done = sum(each.status in OVER for each in own)
        failed = any(each.status == "failed" for each in own)
        whole = bool(own) and done == len(own)
        tone = "bad" if failed else "good" if whole else "busy" if before else ""
        before = before and whole
        found.append(Step(title, done, len(own), tone))
    return found


OVER = frozenset({"ok", "skipped", "warning"})


def _step_of(stage: str) -> str:
    return "Start" if stage in STARTING else "Traffic" if stage in TRAFFIC else "Boot"
