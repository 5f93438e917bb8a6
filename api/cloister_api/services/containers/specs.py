"""From a request body to the spec of a Container, checked by the contract's rules. Pure."""

from typing import Any

from pydantic import ValidationError

from cloister_api.errors import ApiError, problems_of_file
from cloister_api.schemas.containers import CreateContainerRequest, RelaunchRequest
from cloister_api.services.containers.refusals import to_wire
from cloister_crds.kinds.container import ContainerSpec
from cloister_crds.kinds.request import RequestRecord
from cloister_crds.problems import Problem

__all__ = ["changed_keys", "changed_spec", "restored", "spec_of", "spec_patch"]


def spec_of(body: CreateContainerRequest, *, replaces: str | None = None) -> ContainerSpec:
    """Build the spec that a body requests.

    Parameters
    ----------
    body
        The body.
    replaces
        Object name of the container that it replaces; None = none.

    Raises
    ------
    ApiError
        400 when it breaks a rule of the kind, naming each field.
    """
    given = body.model_dump(exclude={"variables", "replaces"})
    return checked({**given, "variables": variables_of(body.variables), "replaces": replaces})


def changed_spec(spec: ContainerSpec, body: RelaunchRequest) -> ContainerSpec:
    """Return the spec with what a body changes.

    Raises
    ------
    ApiError
        400 when it breaks a rule of the kind, naming each field.
    """
    update = body.model_dump(exclude={"variables"}, exclude_none=True)
    if body.variables is not None:
        update["variables"] = variables_of(body.variables)
    if body.custom_domain is not None:
        update["custom_domain"] = body.custom_domain or None
    return checked({**spec.model_dump(), **update})


def changed_keys(spec: ContainerSpec, body: RelaunchRequest) -> dict[str, Any]:
    """Return the keys of spec that a body changes, as a merge patch.

    Raises
    ------
    ApiError
        400 when the result breaks a rule of the kind.
    """
    return spec_patch(spec, changed_spec(spec, body))


def spec_patch(before: ContainerSpec, after: ContainerSpec) -> dict[str, Any]:
    """Return the merge patch from one spec to another."""
    old, new = before.wire(), after.wire()
    return {
        key: new.get(key) for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)
    }


def restored(request: RequestRecord, spec: ContainerSpec) -> dict[str, Any]:
    """Return the merge patch that restores an earlier request in a spec."""
    names = set(RequestRecord.model_fields) - {"repo"}
    earlier = request.model_dump(mode="json", by_alias=True, include=names)
    present = spec.model_dump(mode="json", by_alias=True, include=names)
    return {key: value for key, value in earlier.items() if value != present[key]}


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
        raise refused(error) from error


def refused(error: ValidationError) -> ApiError:
    """Translate the errors of the contract's model."""
    problems = []
    for found in error.errors(include_url=False, include_input=False):
        path = ".".join(str(part) for part in found["loc"][:1])
        problem = Problem(f"spec.{path}" if path else "", "Invalid", str(found["msg"]))
        problems.append(to_wire(problem))
    return problems_of_file(problems)
