"""Whether the tag of the present release has moved since its commit was deployed. Pure.

Nothing is looked up for it: lookups that are made anyway report where the tag points, and the
condition keeps what the last one found.
"""

from datetime import datetime

from cloister_crds.kinds.meta import ConditionStatus
from cloister_crds.lifecycle.kept_request import moved_tag_message
from cloister_crds.lifecycle.state.conditions import ConditionUpdate, condition
from cloister_crds.lifecycle.state.observed import Known, ReleaseFacts
from cloister_operator.rollout.admission import release_need
from cloister_operator.rollout.rollout_state import RolloutState

__all__ = ["moved_tag_condition"]


def moved_tag_condition(state: RolloutState, tag: str, commit: str) -> list[ConditionUpdate]:
    """Return the condition TagMoved; empty while the tag points to the commit, or nothing served.

    Parameters
    ----------
    state
        The state of the rollout.
    tag
        Tag that serves or last served.
    commit
        Its commit; empty = nothing has served.
    """
    if not commit:
        return []
    target = _target(state, tag)
    if target is None:
        known = condition(state.status.conditions, "TagMoved")
        same = (tag, commit) == (state.status.current_tag, state.status.current_commit)
        if known is None or not same:
            return []
        holds = known.status is ConditionStatus.TRUE
        return [ConditionUpdate(known.type, holds, known.reason, known.message)]
    if target == commit:
        return []
    text = moved_tag_message(state.wanted.repo, tag, commit=commit, target=target)
    return [ConditionUpdate("TagMoved", status=True, reason="TagMoved", message=text)]


def _target(state: RolloutState, tag: str) -> str | None:
    """Return the commit that a tag points to by the latest lookup; None = none reports it."""
    found: list[tuple[datetime, str]] = []
    result = state.observed.results.get(release_need(state))
    if isinstance(result, Known) and isinstance(result.value, ReleaseFacts):
        release = result.value
        if release.tag == tag:
            found.append((result.at, release.tag_commit or release.commit))
    followed = state.followed_release.found
    if followed is not None:
        newest, than = followed.value.newest, followed.value.than_commit
        if newest is not None and newest.tag == tag:
            found.append((followed.at, newest.commit))
        elif than and state.container.spec.tag == tag:
            found.append((followed.at, than))
    return max(found)[1] if found else None
