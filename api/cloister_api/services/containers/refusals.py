"""What may be done to a container now (spec 22.1), and the API's errors for what may not. Pure."""

from collections.abc import Collection, Iterable
from dataclasses import replace

from cloister_api.auth.authenticator import Principal
from cloister_api.cache import CachedContainer, ClusterCache
from cloister_api.errors import (
    ApiError,
    conflict,
    forbidden,
    payment_required,
    problems_of_file,
    unavailable,
)
from cloister_api.records.container import shown_state
from cloister_api.schemas.containers import api_name
from cloister_api.schemas.vocabulary import in_api_words
from cloister_crds.kinds import Container, Organization
from cloister_crds.kinds.container import ContainerSpec
from cloister_crds.lifecycle.actions import ApiAction, refusal
from cloister_crds.lifecycle.admission.limits import billing_of, counted
from cloister_crds.lifecycle.admission.validation import RequestFacts
from cloister_crds.lifecycle.state.reasons import is_transient
from cloister_crds.problems import Problem, Severity

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
    """Return why an organization may not make a request at all; None if it may.

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


def refused_change(
    problems: Iterable[Problem], *, retry_after: float | None = None
) -> ApiError | None:
    """Return why a request is refused; None if it is not.

    Parameters
    ----------
    retry_after
        Seconds after which the remote host that did not respond can be queried again; None if
        unknown.

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


def forbid(held: CachedContainer, action: ApiAction) -> None:
    """Refuse an action in a state.

    Raises
    ------
    ApiError
        409 that names action and state.
    """
    where = shown_state(held.container)
    resources = held.container.status.resources
    message = refusal(
        action,
        where.phase,
        where.update.status if where.update is not None else None,
        gpus=resources.gpus if resources is not None else 0,
        deleting=held.going,
    )
    if message is not None:
        raise conflict(message)


def managed_keys(
    held: CachedContainer, keys: Iterable[str], managers: Collection[str]
) -> dict[str, list[str]]:
    """Return which of the changed keys of spec the GitOps managers own that own some."""
    owned = {
        manager: sorted(key for key in keys if manager in held.owners.get(key, ()))
        for manager in sorted(managers)
    }
    return {manager: own for manager, own in owned.items() if own}


def refuse_managed(held: CachedContainer, keys: Iterable[str], managers: Collection[str]) -> None:
    """Refuse to change fields that a GitOps manager would revert.

    Takes what `managed_keys` takes.

    Raises
    ------
    ApiError
        409 that names the manager and the fields.
    """
    for manager, owned in managed_keys(held, keys, managers).items():
        fields = ", ".join(map(api_field, owned))
        raise conflict(
            f"{manager} manages {fields} of this container; make the change in its repository"
        )


def facts_of_create(
    cache: ClusterCache,
    principal: Principal,
    name: str,
    spec: ContainerSpec,
    replaced: CachedContainer | None,
) -> RequestFacts:
    """Return the facts of a create, without the release.

    Parameters
    ----------
    cache
        Custom resources in memory.
    spec
        Its spec.
    replaced
        The container that it replaces, which does not count; None if there is none.
    """
    others = (held.container for held in cache.containers_of(principal.namespace))
    counting = counted(others, cache.running_of(principal.namespace))
    old = replaced.container.metadata.uid if replaced is not None else None
    return _facts(cache, principal, name, spec, rank=sum(uid != old for _, uid in counting))


def facts_of_change(
    cache: ClusterCache, principal: Principal, container: Container, spec: ContainerSpec
) -> RequestFacts:
    """Return the facts of a relaunch or start, without the release; it is within the limit already.

    Parameters
    ----------
    cache
        Custom resources in memory.
    """
    return _facts(cache, principal, container.display_name, spec, rank=None)


def _facts(
    cache: ClusterCache, principal: Principal, name: str, spec: ContainerSpec, *, rank: int | None
) -> RequestFacts:
    return RequestFacts(
        name=name,
        spec=spec,
        organization=principal.organization,
        hosts=cache.host_list(),
        secrets=cache.secrets_of(principal.namespace),
        ssh_keys=cache.ssh_keys_of(principal.namespace),
        domains=cache.domains_of(principal.namespace),
        repositories=cache.repositories,
        rank=rank,
    )
