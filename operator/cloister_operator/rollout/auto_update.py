"""Which release is desired (automatic updates), and how far its rollout is."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import floor
from zlib import crc32

from cloister_crds.kinds.container import ContainerPhase, DesiredState, LatestRelease
from cloister_crds.kinds.meta import REQUESTED_AT_ANNOTATION
from cloister_crds.lifecycle.state.observed import (
    Failed,
    Known,
    Need,
    NeedLatest,
    NewestRelease,
    Observed,
)
from cloister_crds.lifecycle.state.release_order import release_order
from cloister_operator.rollout.decision import Action


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutPlan:
    """Status and cleanup follow only from the plan."""

    progress: ContainerPhase
    """How far the wanted request is, as if nothing else served."""
    reason: str
    """Reason of the condition Ready, from the reasons table."""
    message: str = ""
    """Sentence for people."""
    settled: bool = False
    """Whether what spec requests is reached: the condition Ready."""
    stalled: bool = False
    """Whether an action is required."""
    active: str | None = None
    """Name of the Enclave that serves from now on; None means unchanged, empty if there is none."""
    candidate: str = ""
    """Name of the Enclave that is starting, or of the one kept for its failure; empty if there is
    none."""
    keep: frozenset[str] = frozenset()
    """Names of Enclaves that stay; all others are deleted."""
    route: str = ""
    """Name of the Enclave that the Service must select; empty leaves the Service unchanged."""
    preview: str = ""
    """Name of the Enclave that waits for promotion; empty if none does."""
    actions: tuple[Action, ...] = ()
    """What to do, in order."""
    needs: tuple[Need, ...] = ()
    """What to look up."""
    retry_at: datetime | None = None
    """When to reconcile again, in UTC; None means on changes only."""
    frees_hostnames: bool = False
    """Whether the host names of spec are released too: nothing was ever created."""

    def keeping(self, names: frozenset[str]) -> "RolloutPlan":
        """Return the plan with more Enclaves that stay."""
        return replace(self, keep=self.keep | names)

    def with_actions(self, *actions: Action) -> "RolloutPlan":
        """Return the plan with further actions after its own."""
        return replace(self, actions=(*self.actions, *actions))

    def with_needs(self, *needs: Need) -> "RolloutPlan":
        """Return the plan with further lookups after its own."""
        return replace(self, needs=(*self.needs, *needs))

    def routing_to(self, name: str) -> "RolloutPlan":
        """Return the plan with the Service at an Enclave, unless it already moves the Service."""
        return replace(self, route=self.route or name)

    def retrying_at(self, at: datetime | None) -> "RolloutPlan":
        """Return the plan that reconciles again at a time, or earlier; None changes nothing."""
        return replace(self, retry_at=earliest(self.retry_at, at))


def earliest(*times: datetime | None) -> datetime | None:
    """Return the earliest of times; None counts for nothing."""
    return min((each for each in times if each is not None), default=None)


@dataclass(frozen=True, slots=True)
class FollowedRelease:
    """The release that an automatic update wants now."""

    tag: str | None = None
    """Desired tag instead of ``spec.tag``; None means ``spec.tag``."""
    latest: LatestRelease | None = None
    """What status records; None if nothing is followed."""
    pending: bool = False
    """Whether it is not known yet which of the two is later."""
    failure: Failed | None = None
    """Why it is not known; None if it was not looked up yet."""
    needs: tuple[NeedLatest, ...] = ()
    """What to look up."""
    recheck_at: datetime | None = None
    """When to look it up again, in UTC; None if nothing is followed."""
    found: Known[NewestRelease] | None = None
    """Result of the present lookup; None if there is none yet."""


def follow_release(observed: Observed, now: datetime) -> FollowedRelease:
    """Decide which release a Container follows.

    Returns
    -------
    FollowedRelease
        Empty where spec.autoUpdate is false; production only (the kind refuses it with debug).
        While stopped nothing is looked up.
    """
    spec = observed.container.spec
    if not spec.auto_update:
        return FollowedRelease()
    recorded = _recorded(observed)
    if spec.state is DesiredState.STOPPED:
        return FollowedRelease(_wanted(recorded), recorded)
    need, recheck_at = _need(observed, recorded, now)
    result = observed.results.get(need)
    if isinstance(result, Known) and isinstance(result.value, NewestRelease):
        latest = _later(recorded, result.value, need)
        found = Known(result.value, result.at)
        return FollowedRelease(_wanted(latest), latest, recheck_at=recheck_at, found=found)
    needs: tuple[NeedLatest, ...] = (need,)
    failed = result if isinstance(result, Failed) else None
    if failed is not None and failed.retry_at is not None and failed.retry_at > now:
        needs, recheck_at = (), min(recheck_at, failed.retry_at)
    if recorded is not None:
        return FollowedRelease(_wanted(recorded), recorded, needs=needs, recheck_at=recheck_at)
    if failed is not None and not failed.transient:
        # Admission of spec.tag reports what is wrong with the tag or the repository.
        return FollowedRelease(recheck_at=recheck_at)
    return FollowedRelease(pending=True, failure=failed, needs=needs, recheck_at=recheck_at)


def _recorded(observed: Observed) -> LatestRelease | None:
    """Return what status records about the very tag that spec has now."""
    latest = observed.container.status.latest_release
    if latest is None or latest.compared_to != observed.container.spec.tag:
        return None
    return latest


def _need(
    observed: Observed, recorded: LatestRelease | None, now: datetime
) -> tuple[NeedLatest, datetime]:
    """Return the lookup of this interval, and when the next one begins.

    Repositories have their intervals at different times, so that sources do not get the requests
    for all of them together.
    """
    spec = observed.container.spec
    seconds = max(1, floor(observed.settings.follow_interval.total_seconds()))
    offset = crc32(spec.repo.encode()) % seconds
    slot = floor((now.timestamp() + offset) / seconds)
    deployment = observed.deployment
    requested = ""
    if deployment is not None and spec.github_connected:
        requested = deployment.metadata.annotations.get(REQUESTED_AT_ANNOTATION, "")
    follows = recorded is not None and recorded.followed
    need = NeedLatest(
        repo=spec.repo, than=None if follows else spec.tag, slot=slot, request=requested
    )
    return need, datetime.fromtimestamp((slot + 1) * seconds - offset, UTC)


def _later(
    recorded: LatestRelease | None, found: NewestRelease, need: NeedLatest
) -> LatestRelease | None:
    """Return what to record of a result."""
    newest = found.newest
    if newest is None:
        return recorded
    order = release_order(newest.published_at, newest.tag)
    if recorded is not None and release_order(recorded.published_at, recorded.tag) > order:
        return recorded.model_copy(update={"request": need.request})
    followed = need.than is None or (
        newest.tag != need.than
        and found.than_published is not None
        and order > release_order(found.than_published, need.than)
    )
    compared = recorded.compared_to if recorded is not None else need.than or ""
    return newest.model_copy(
        update={"compared_to": compared, "followed": followed, "request": need.request}
    )


def _wanted(latest: LatestRelease | None) -> str | None:
    return latest.tag if latest is not None and latest.followed else None
