"""Following later releases: which tag an automatic update wants, and when to ask for the newest.

What was found last stands in ``status.latestRelease``, so that neither a restart of the operator
nor a source that does not answer changes what is wanted. A release that was withdrawn is not gone
back from: only a later one moves the container.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from math import floor
from zlib import crc32

from cloister_crds.kinds.container import LatestRelease
from cloister_crds.kinds.meta import REQUESTED_AT_ANNOTATION
from cloister_crds.lifecycle.state.observed import (
    Failed,
    Known,
    NeedLatest,
    NewestRelease,
    Observed,
)

__all__ = ["Following", "follow"]


@dataclass(frozen=True, slots=True)
class Following:
    """What following comes to now."""

    tag: str | None = None
    """Tag that is wanted instead of ``spec.tag``; None = ``spec.tag``."""
    latest: LatestRelease | None = None
    """What status is to remember; None = nothing is followed."""
    waits: bool = False
    """Whether it is not known yet which of the two is later."""
    trouble: Failed | None = None
    """Why it is not known; None = it was not answered yet."""
    needs: tuple[NeedLatest, ...] = ()
    """What is to be asked."""
    look_at: datetime | None = None
    """When to ask again, in UTC; None = nothing is followed."""


def follow(observed: Observed, now: datetime) -> Following:
    """Decide which release a Container follows.

    Parameters
    ----------
    observed
        What was observed.
    now
        The present, in UTC.

    Returns
    -------
    Following
        Nothing of all that where spec.autoUpdate is false; production only (the kind refuses it
        with debug).
    """
    spec = observed.container.spec
    if not spec.auto_update:
        return Following()
    remembered = _remembered(observed)
    need, look_at = _need(observed, remembered, now)
    answer = observed.answers.get(need)
    if isinstance(answer, Known) and isinstance(answer.value, NewestRelease):
        latest = _later(remembered, answer.value, need)
        return Following(tag=_wanted(latest), latest=latest, look_at=look_at)
    needs: tuple[NeedLatest, ...] = (need,)
    failed = answer if isinstance(answer, Failed) else None
    if failed is not None and failed.retry_at is not None and failed.retry_at > now:
        needs, look_at = (), min(look_at, failed.retry_at)
    if remembered is not None:
        return Following(_wanted(remembered), remembered, needs=needs, look_at=look_at)
    if failed is not None and not failed.transient:
        # What is wrong with spec.tag or the repository is told by the admission of spec.tag.
        return Following(look_at=look_at)
    return Following(waits=True, trouble=failed, needs=needs, look_at=look_at)


def _remembered(observed: Observed) -> LatestRelease | None:
    """Answer what status remembers about the very tag that spec has now."""
    latest = observed.container.status.latest_release
    if latest is None or latest.compared_to != observed.container.spec.tag:
        return None
    return latest


def _need(
    observed: Observed, remembered: LatestRelease | None, now: datetime
) -> tuple[NeedLatest, datetime]:
    """Answer the question of this interval, and when the next one begins.

    Repositories have their intervals at different times, so that sources are not asked for all of
    them at once.
    """
    spec = observed.container.spec
    seconds = max(1, floor(observed.settings.follow_interval.total_seconds()))
    offset = crc32(spec.repo.encode()) % seconds
    slot = floor((now.timestamp() + offset) / seconds)
    deployment = observed.deployment
    asked = ""
    if deployment is not None and spec.github_connected:
        asked = deployment.metadata.annotations.get(REQUESTED_AT_ANNOTATION, "")
    follows = remembered is not None and remembered.followed
    need = NeedLatest(repo=spec.repo, than=None if follows else spec.tag, slot=slot, request=asked)
    return need, datetime.fromtimestamp((slot + 1) * seconds - offset, UTC)


def _later(
    remembered: LatestRelease | None, found: NewestRelease, need: NeedLatest
) -> LatestRelease | None:
    """Answer what is to be remembered of an answer."""
    newest = found.newest
    if newest is None:
        return remembered
    if remembered is not None and remembered.published_at > newest.published_at:
        return remembered.model_copy(update={"request": need.request})
    followed = need.than is None or (
        newest.tag != need.than
        and found.than_published is not None
        and newest.published_at > found.than_published
    )
    compared = remembered.compared_to if remembered is not None else need.than or ""
    return newest.model_copy(
        update={"compared_to": compared, "followed": followed, "request": need.request}
    )


def _wanted(latest: LatestRelease | None) -> str | None:
    return latest.tag if latest is not None and latest.followed else None
