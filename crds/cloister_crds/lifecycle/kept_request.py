"""The present release of a Container, and what counts instead of the request in spec.

What serves, or last served, is the present release. Nothing that names no other release changes it:
when a stop ends an update that was not accepted, the next start brings back what served; when
automatic updates are switched off, the followed release continues. The facade then writes that into
spec. The operator never writes spec: it remembers it in ``status.keptRequest``, so that the same
manifest change has the same effect.
"""

from cloister_crds.kinds.container import (
    Container,
    ContainerPhase,
    ContainerSpec,
    ContainerStatus,
    DesiredState,
    KeptRequest,
)
from cloister_crds.kinds.request import RequestRecord
from cloister_crds.lifecycle.request import (
    SPEC_FIELDS,
    differing_fields,
    record,
    same,
    with_request,
)
from cloister_crds.lifecycle.state.observed import ReleaseFacts

__all__ = [
    "followed_tag",
    "is_in_force",
    "is_present_release",
    "kept_request",
    "moved_tag",
    "moved_tag_message",
    "pinned_commit",
    "release_before",
    "request_instead",
    "requested",
    "requested_spec",
]

MOST_BYTES = 262_144
"""Most bytes of variables that are kept: with spec's own they must fit into one object of etcd."""

_RELEASE = frozenset({"tag", "commit"})
_STOPPED = {ContainerPhase.STOPPING, ContainerPhase.STOPPED}


def followed_tag(container: Container) -> str | None:
    """Return the followed tag of status instead of ``spec.tag``; None means ``spec.tag``."""
    latest = container.status.latest_release
    if latest is None or not latest.followed or latest.compared_to != container.spec.tag:
        return None
    return latest.tag if container.spec.auto_update else None


def requested(container: Container) -> RequestRecord:
    """Return the desired request, as far as status and spec define it."""
    asked = record(container.spec, followed_tag=followed_tag(container))
    return request_instead(container.status.kept_request, asked)


def requested_spec(container: Container) -> ContainerSpec:
    """Return spec with what is kept instead of it; a followed release is not part of it."""
    spec, kept = container.spec, container.status.kept_request
    return spec if kept is None else with_request(spec, request_instead(kept, record(spec)))


def is_in_force(kept: KeptRequest, asked: RequestRecord) -> bool:
    """Return whether a kept request changes what spec requests."""
    return not same(request_instead(kept, asked), asked)


def request_instead(kept: KeptRequest | None, asked: RequestRecord) -> RequestRecord:
    """Return the request that counts.

    Parameters
    ----------
    kept
        What is kept; None if there is nothing.
    asked
        The request in spec, with the tag that is followed.
    """
    if kept is None:
        return asked
    changed = differing_fields(asked, kept.instead_of)
    if changed & _RELEASE:
        return asked
    fields = {name: getattr(kept.request, name) for name in SPEC_FIELDS - changed}
    return asked.model_copy(update=fields)


def release_before(status: ContainerStatus, request: RequestRecord) -> RequestRecord | None:
    """Return a request with the last served release; None if it is that one, or none served."""
    tag, commit = status.current_tag, status.current_commit
    if not commit or (tag == request.tag and request.commit in {None, commit}):
        return None
    pin = commit if request.commit else None
    return request.model_copy(update={"tag": tag, "commit": pin})


def pinned_commit(status: ContainerStatus, request: RequestRecord) -> str | None:
    """Return the commit that a request is for; None means whichever the tag points to.

    A request of the present tag that pins no commit keeps the present one: only a request that
    names another tag or commit changes the release.
    """
    if request.commit is None and request.tag == status.current_tag:
        return status.current_commit or None
    return request.commit


def is_present_release(status: ContainerStatus, tag: str, commit: str | None) -> bool:
    """Return whether a tag and a commit are the release that serves or last served."""
    return bool(commit) and (tag, commit) == (status.current_tag, status.current_commit)


def moved_tag_message(repo: str, tag: str, *, commit: str, target: str) -> str:
    """Return the warning that a tag moved: from a commit that is kept to a target."""
    return (
        f"Tag {tag} of {repo} points to commit {target}. The container keeps commit {commit}, "
        "which was deployed from this tag. Check who moved the tag. To deploy the other commit, "
        "set spec.commit to it."
    )


def moved_tag(release: ReleaseFacts) -> str:
    """Return the warning that the tag of a kept commit moved; empty if it did not."""
    target = release.tag_commit or release.commit
    if target == release.commit:
        return ""
    return moved_tag_message(release.repo, release.tag, commit=release.commit, target=target)


def kept_request(
    container: Container, asked: RequestRecord, serving: RequestRecord | None
) -> KeptRequest | None:
    """Decide what is kept instead of the request in spec.

    Parameters
    ----------
    container
        The Container, with its status before this decision.
    asked
        The request in spec, with the tag that is followed.
    serving
        The request of the Enclave that serves; None if none does.
    """
    status = container.status
    known = status.kept_request
    wanted = request_instead(known, asked)
    ended = _before_the_ended_update(container, wanted, serving)
    if ended is not None:
        return _kept(ended, asked, update_ended=True)
    followed = _followed_before(container, asked, serving)
    if followed is not None:
        return _kept(followed, asked, update_ended=False)
    return known if known is not None and is_in_force(known, asked) else None


def _kept(request: RequestRecord, instead_of: RequestRecord, *, update_ended: bool) -> KeptRequest:
    """Build what is kept; variables that are too large for another copy stay as spec has them."""
    both = (request, instead_of)
    if any(sum(len(v.value.encode()) for v in each.variables) > MOST_BYTES for each in both):
        request, instead_of = (each.model_copy(update={"variables": ()}) for each in both)
    return KeptRequest(request=request, instead_of=instead_of, update_ended=update_ended)


def _before_the_ended_update(
    container: Container, wanted: RequestRecord, serving: RequestRecord | None
) -> RequestRecord | None:
    """Return what comes back after a stop that ends an update; None if this is not such a stop.

    Only what was requested before the stop was seen is ended: a stop that names another release
    lets the next start deploy that one.
    """
    status = container.status
    stops = container.spec.state is DesiredState.STOPPED and status.phase not in _STOPPED
    if not stops or status.requested_tag != wanted.tag:
        return None
    if serving is None:
        return release_before(status, wanted)
    return serving if status.update is not None and not same(serving, wanted) else None


def _followed_before(
    container: Container, asked: RequestRecord, serving: RequestRecord | None
) -> RequestRecord | None:
    """Return what was followed until now; None if nothing was, or it is what spec requests."""
    status, latest = container.status, container.status.latest_release
    if container.spec.auto_update or latest is None or not latest.followed:
        return None
    if latest.compared_to != container.spec.tag:
        return None
    if serving is not None:
        tag, commit = serving.tag, serving.commit
    else:
        tag, commit = (status.current_tag if status.current_commit else latest.tag), None
    if tag == asked.tag:
        return None
    return asked.model_copy(update={"tag": tag, "commit": commit})
