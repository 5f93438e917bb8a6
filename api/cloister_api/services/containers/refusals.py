"""From the problems that the contract's rules find to the error of the API. Pure."""

from collections.abc import Iterable
from dataclasses import replace

from cloister_api.errors import ApiError, forbidden, payment_required, problems_of_file, unavailable
from cloister_api.schemas.containers import api_name
from cloister_crds.kinds.container import ContainerSpec
from cloister_crds.lifecycle.state.observed import Failed
from cloister_crds.problems import Problem, Severity

__all__ = ["denial", "refusal", "to_wire"]

API_FIELDS = {
    **{
        f"spec.{field.alias or name}": api_name(name)
        for name, field in ContainerSpec.model_fields.items()
    },
    "host": api_name("host"),
    "metadata.namespace": "",
}
"""Fields of a Container, and its Host -> fields of the API's bodies."""


def to_wire(problem: Problem) -> Problem:
    """Return the problem with the name that the field has in the API.

    Parameters
    ----------
    problem
        A problem of a Container's spec, of its Host or of its file; the latter stays as it is.
    """
    for path, name in API_FIELDS.items():
        rest = problem.field.removeprefix(path)
        if problem.field.startswith(path) and rest[:1] in {"", "[", "."}:
            index = rest if rest.startswith("[") else ""
            return replace(problem, field=f"{name}{index}")
    return problem


def denial(problems: Iterable[Problem]) -> ApiError | None:
    """Return why an organization may not make a request at all; None = it may.

    Parameters
    ----------
    problems
        Problems that the rules found, warnings included.

    Returns
    -------
    ApiError or None
        402 before 403 (spec 20.12).
    """
    errors = [to_wire(each) for each in problems if each.severity is Severity.ERROR]
    if any(each.code == "SubscriptionRequired" for each in errors):
        return payment_required()
    for each in errors:
        if each.code in {"EntitlementRequired", "LimitReached", "OrganizationDeleting"}:
            return forbidden(each.message)
    return None


def refusal(problems: Iterable[Problem], images: Iterable[Failed] = ()) -> ApiError | None:
    """Return why a request is refused; None = it is not.

    Parameters
    ----------
    problems
        Problems that the rules found, warnings included.
    images
        Images that cannot be pulled.

    Returns
    -------
    ApiError or None
        A denial before 400; an image whose registry does not respond now is 503, unless there are
        other problems.
    """
    problems = tuple(problems)
    denied = denial(problems)
    if denied is not None:
        return denied
    errors = [to_wire(each) for each in problems if each.severity is Severity.ERROR]
    if not errors:
        return None
    codes = {each.code for each in errors}
    transient = {each.reason for each in images if each.transient}
    if codes <= transient:
        return unavailable(f"{errors[0].field}: {errors[0].message}")
    return problems_of_file(errors)
