"""Which keys of spec an action on a container writes. Pure.

What a body leaves out keeps its current value (spec 22.3). That of the release is what serves or
last served; see `cloister_crds.lifecycle.kept_request`.
"""

from collections.abc import Iterable
from typing import Any

from cloister_api.errors import conflict
from cloister_api.schemas.containers import RelaunchRequest
from cloister_api.services.containers.specs import changed_spec, spec_patch
from cloister_crds.kinds import Container, Enclave
from cloister_crds.kinds.container import ContainerSpec, DesiredState
from cloister_crds.kinds.request import RequestRecord
from cloister_crds.lifecycle.kept_request import (
    followed_tag,
    pinned_commit,
    release_before,
    requested,
)
from cloister_crds.lifecycle.request import is_made_for, record, with_request
from cloister_crds.lifecycle.state.observed import ReleaseFacts
from cloister_crds.lifecycle.state.release_order import release_order

__all__ = [
    "before_update",
    "cancelling",
    "deployed_spec",
    "deploying",
    "no_longer_followed",
    "written_spec",
]


def before_update(container: Container, enclaves: Iterable[Enclave]) -> RequestRecord | None:
    """Return the request that serves, or as far as it is known last served, before an update.

    Parameters
    ----------
    container
        The container.
    enclaves
        Its enclaves; empty where no update is in progress beside what serves.

    Returns
    -------
    RequestRecord or None
        None = there is no update that was not accepted, or nothing has served yet.
    """
    status, wanted = container.status, requested(container)
    if not status.active_enclave:
        return release_before(status, wanted)
    for enclave in enclaves:
        if enclave.metadata.name == status.active_enclave:
            return None if is_made_for(enclave.spec, wanted) else enclave.spec.request
    return None


def written_spec(
    container: Container, body: RelaunchRequest, earlier: RequestRecord | None
) -> ContainerSpec:
    """Return the spec that a relaunch or start writes, but for commit and state.

    While releases are followed, the tag of spec stays. Where an update ends, staging is what it was
    before that.

    Raises
    ------
    ApiError
        400 when it breaks a rule of the kind, naming each field.
    """
    spec = container.spec
    base = with_request(spec, earlier or requested(container))
    if spec.auto_update:
        base = base.model_copy(update={"tag": spec.tag, "commit": spec.commit})
    staging = _staging_before(container) if earlier is not None else spec.staging
    return changed_spec(
        base.model_copy(update={"staging": staging, "relaunch_staging": None}), body
    )


def deployed_spec(
    container: Container, body: RelaunchRequest, earlier: RequestRecord | None
) -> ContainerSpec:
    """Return the spec that is checked: with staging of this update, and the release to deploy.

    Without a tag in the body that is the present one: the tag that is followed or requested, at the
    commit that serves or last served. A tag in the body is deployed at whichever commit it points
    to.

    Parameters
    ----------
    container
        The container.
    body
        What the request changes.
    earlier
        What served before an update that this ends; None = no update ends.

    Raises
    ------
    ApiError
        400 when it breaks a rule of the kind, naming each field.
    """
    spec = written_spec(container, body, earlier)
    once = spec.relaunch_staging
    update: dict[str, Any] = {"staging": spec.staging if once is None else once}
    if body.tag:
        update["commit"] = None
    else:
        asked = requested(container) if spec.auto_update else record(spec)
        update |= {"tag": asked.tag, "commit": pinned_commit(container.status, asked)}
    return spec.model_copy(update=update)


def deploying(
    container: Container,
    body: RelaunchRequest,
    earlier: RequestRecord | None,
    release: ReleaseFacts,
) -> dict[str, Any]:
    """Return the merge patch of a relaunch or start, without its new text of ``relaunch``.

    Parameters
    ----------
    container
        The container as it is now.
    body
        What the request changes.
    earlier
        What served before an update that this ends; None = no update ends.
    release
        The release that was checked.

    Raises
    ------
    ApiError
        400 when it breaks a rule of the kind, 409 when another release would be deployed now.
    """
    checked = deployed_spec(container, body, earlier)
    if checked.tag != release.tag or checked.commit not in {None, release.commit}:
        raise conflict("the container was changed at the same moment; try again")
    before, after = container.spec, written_spec(container, body, earlier)
    changed: dict[str, Any] = {"state": DesiredState.RUNNING}
    if after.tag == release.tag:
        changed["commit"] = release.commit
    latest = container.status.latest_release
    named = release_order(release.published, release.tag)
    if (
        body.tag
        and before.auto_update
        and latest
        and named < release_order(latest.published_at, latest.tag)
    ):
        # Else the later release would be deployed at once (spec 22.12).
        changed["auto_update"] = False
    return spec_patch(before, after.model_copy(update=changed))


def cancelling(container: Container, earlier: RequestRecord) -> dict[str, Any]:
    """Return the merge patch that ends an update.

    Parameters
    ----------
    container
        The container as it is now.
    earlier
        The request that is restored.
    """
    staging = {"staging": _staging_before(container), "relaunch_staging": None}
    restored_spec = with_request(container.spec, earlier).model_copy(update=staging)
    patch = spec_patch(container.spec, restored_spec)
    # Otherwise the cancelled release would be deployed again at once.
    return {**patch, "autoUpdate": False} if _is_automatic(container, earlier) else patch


def _staging_before(container: Container) -> bool | None:
    """Return ``spec.staging`` as it was before the update in progress."""
    present, before = container.spec.staging, container.status.own_staging
    return present if present is None or before is None else before


def no_longer_followed(container: Container) -> dict[str, Any]:
    """Return the merge patch that makes the present release that of spec, and follows none."""
    spec, status = container.spec, container.status
    tag, commit = status.current_tag, status.current_commit
    if not commit and status.latest_release is not None:
        tag, commit = status.latest_release.tag, status.latest_release.commit
    changed: dict[str, Any] = {"auto_update": False}
    if requested(container).tag != spec.tag != tag:
        changed |= {"tag": tag, "commit": commit}
    return spec_patch(spec, spec.model_copy(update=changed))


def _is_automatic(container: Container, earlier: RequestRecord) -> bool:
    """Return whether the pending update was made because the container follows releases."""
    update, followed = container.status.update, followed_tag(container)
    return update is not None and followed is not None and update.tag == followed != earlier.tag
