"""From a request body to the spec of a Container, checked by the contract's rules. Pure."""

from typing import Any

from pydantic import ValidationError

from cloister_api.errors import ApiError, problems_of_file, words_of
from cloister_api.schemas.containers import ContainerChanges, CreateContainerRequest
from cloister_api.services.containers.refusals import to_wire
from cloister_crds.kinds.container import ContainerSpec
from cloister_crds.problems import Problem

__all__ = [
    "SpecRefusedError",
    "changed_spec",
    "checked",
    "spec_of",
    "spec_patch",
]

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


def changed_spec(spec: ContainerSpec, body: ContainerChanges) -> ContainerSpec:
    """Return the spec with what a body changes.

    A container that is no longer a debug one loses what only debug containers have, unless the body
    asks for it.

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
