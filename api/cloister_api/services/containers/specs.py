"""From a request to the spec of a Container: of a new one, and the keys an action writes."""

from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError

from cloister_api.errors import ApiError, conflict, problems_of_file, words_of
from cloister_api.schemas.containers import (
    ContainerChanges,
    CreateContainerRequest,
    RelaunchRequest,
)
from cloister_api.services.containers.refusals import to_wire
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
from cloister_crds.problems import Problem

DEBUG_ALONE: dict[str, Any] = {"ssh_keys": (), "disable_confidential": False}
"""What only debug containers have, as others have it."""


class SpecRefusedError(ApiError):
    """400: a spec breaks rules of the kind.

    Parameters
    ----------
    problems
        What it breaks, by the fields of the API; at least one.
    """

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        refused = problems_of_file(problems)
        super().__init__(refused.status, refused.code, refused.message)
        self.details = refused.details
        self.problems = problems
        """What it breaks."""


def spec_of(body: CreateContainerRequest, *, replaces: str | None = None) -> ContainerSpec:
    """Build the spec that a body requests.

    Parameters
    ----------
    replaces
        Object name of the container that it replaces; None if there is none.

    Raises
    ------
    ApiError
        400 when it breaks a rule of the kind, naming each field.
    """
    given = body.model_dump(exclude={"variables", "replaces"})
    return checked({**given, "variables": variables_of(body.variables), "replaces": replaces})


def changed_spec(spec: ContainerSpec, body: ContainerChanges) -> ContainerSpec:
    """Return the spec with what a body changes.

    A container that is no longer a debug one loses what only debug containers have, unless the body
    requests it.

    Raises
    ------
    ApiError
        400 when it breaks a rule of the kind, naming each field.
    """
    fields = set(ContainerSpec.model_fields) - {"variables", "name", "replaces"}
    update = body.model_dump(include=fields, exclude_none=True)
    if body.variables is not None:
        update["variables"] = variables_of(body.variables)
    if body.custom_domain is not None:
        update["custom_domain"] = body.custom_domain or None
    if body.host is not None:
        update["host"] = body.host or None
    dropped = DEBUG_ALONE if body.debug is False else {}
    return checked({**spec.model_dump(), **dropped, **update})


def spec_patch(before: ContainerSpec, after: ContainerSpec) -> dict[str, Any]:
    """Return the merge patch from one spec to another."""
    old, new = before.wire(), after.wire()
    return {
        key: new.get(key) for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)
    }


def variables_of(values: dict[str, str]) -> list[dict[str, str]]:
    """Return variables as spec lists them."""
    return [{"name": name, "value": value} for name, value in values.items()]


def checked(data: dict[str, Any]) -> ContainerSpec:
    """Build the spec.

    Raises
    ------
    ApiError
        400 when it breaks a rule of the kind, naming each field.
    """
    try:
        return ContainerSpec.model_validate(data)
    except ValidationError as error:
        raise SpecRefusedError(problems_of(error)) from error


def problems_of(error: ValidationError) -> tuple[Problem, ...]:
    """Translate the errors of the contract's model."""
    problems = []
    for found in error.errors(include_url=False, include_input=False):
        path = ".".join(str(part) for part in found["loc"][:1])
        problem = Problem(f"spec.{path}" if path else "", "Invalid", words_of(found))
        problems.append(to_wire(problem))
    return tuple(problems)


def before_update(container: Container, enclaves: Iterable[Enclave]) -> RequestRecord | None:
    """Return the request that serves, or as far as it is known last served, before an update.

    Parameters
    ----------
    enclaves
        Its enclaves; empty if no update is in progress.

    Returns
    -------
    RequestRecord or None
        None if there is no update that was not accepted, or nothing has served yet.
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
    earlier
        What served before an update that this ends; None if no update ends.

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
    earlier
        What served before an update that this ends; None if no update ends.

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
        # Else the later release would be deployed immediately (spec 22.12).
        changed["auto_update"] = False
    return spec_patch(before, after.model_copy(update=changed))


def cancelling(container: Container, earlier: RequestRecord) -> dict[str, Any]:
    """Return the merge patch that ends an update."""
    staging = {"staging": _staging_before(container), "relaunch_staging": None}
    restored_spec = with_request(container.spec, earlier).model_copy(update=staging)
    patch = spec_patch(container.spec, restored_spec)
    # Otherwise the cancelled release would be deployed again immediately.
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
