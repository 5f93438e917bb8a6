"""From the problems that the contract's rules find to the error of the API. Pure."""

from collections.abc import Iterable
from dataclasses import replace

from cloister_api.errors import ApiError, forbidden, payment_required, problems_of_file, unavailable
from cloister_api.schemas.containers import api_name
from cloister_api.schemas.vocabulary import in_api_words
from cloister_crds.kinds import Organization
from cloister_crds.kinds.container import ContainerSpec
from cloister_crds.lifecycle.admission.limits import billing_of
from cloister_crds.lifecycle.state.reasons import is_transient
from cloister_crds.problems import Problem, Severity

__all__ = ["api_field", "denial", "refusal", "require_subscription", "to_wire"]

API_FIELDS = {
    **{
        f"spec.{spelling}": api_name(name)
        for name, field in ContainerSpec.model_fields.items()
        for spelling in (name, field.alias or name)
    },
    "host": api_name("host"),
    "metadata.namespace": "",
}
"""Fields of a Container as the model and as the wire has them, and its Host -> fields of bodies."""


def api_field(key: str) -> str:
    """Return the name in the API of a key of a Container's spec."""
    return API_FIELDS.get(f"spec.{key}", key)


def to_wire(problem: Problem) -> Problem:
    """Return the problem with the names that fields have in the API.

    Parameters
    ----------
    problem
        A problem of a Container's spec, of its Host or of its file; the latter stays as it is.
    """
    message = in_api_words(problem.message)
    for path, name in API_FIELDS.items():
        rest = problem.field.removeprefix(path)
        if problem.field.startswith(path) and rest[:1] in {"", "[", "."}:
            index = rest if rest.startswith("[") else ""
            return replace(problem, field=f"{name}{index}", message=message)
    return replace(problem, message=message)


def require_subscription(organization: Organization) -> None:
    """Refuse a deployment before anything else about it is judged (spec 20.12).

    Raises
    ------
    ApiError
        402 without an active container subscription.
    """
    if not billing_of(organization).container_subscription:
        raise payment_required()


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


def refusal(problems: Iterable[Problem], *, retry_after: float | None = None) -> ApiError | None:
    """Return why a request is refused; None = it is not.

    Parameters
    ----------
    problems
        Problems that the rules found, warnings included.
    retry_after
        Seconds after which whoever did not respond wants to be asked again; None = it did not say.

    Returns
    -------
    ApiError or None
        A denial before 400; 503 where nothing is wrong but what the operator would wait for too
        (a transient reason).
    """
    problems = tuple(problems)
    denied = denial(problems)
    if denied is not None:
        return denied
    errors = [to_wire(each) for each in problems if each.severity is Severity.ERROR]
    if not errors:
        return None
    if all(is_transient(each.code) for each in errors):
        message = "; ".join(f"{each.field}: {each.message}" for each in errors)
        return unavailable(message, retry_after=retry_after)
    return problems_of_file(errors)
