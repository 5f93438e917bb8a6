"""What may be done to a container by its state (spec 22.1), and by who manages its fields. Pure."""

from collections.abc import Collection, Iterable

from cloister_api.cache import CachedContainer
from cloister_api.errors import conflict
from cloister_api.records.container import shown_state
from cloister_api.services.containers.refusals import api_field
from cloister_crds.lifecycle.actions import ApiAction, refusal

__all__ = ["forbid", "managed_keys", "refuse_managed"]


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
    """Return which of the changed keys of spec the GitOps managers own that own some.

    Parameters
    ----------
    held
        The container.
    keys
        The changed keys.
    managers
        The GitOps managers.
    """
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
