"""Which GitOps tools manage which fields of an object."""

from collections.abc import Callable, Iterable, Mapping

from cloister_api.schemas.status_responses import ManagerResponse

__all__ = ["manager_records"]


def manager_records(
    owners: Mapping[str, frozenset[str]],
    gitops_managers: Iterable[str],
    name_of: Callable[[str], str] = str,
) -> list[ManagerResponse]:
    """Return the tools that manage fields, by name.

    Parameters
    ----------
    owners
        Wire names of the fields of spec -> managers that set them.
    gitops_managers
        Field managers whose fields the API leaves alone.
    name_of
        Name in the API of a field. Default the wire name.
    """
    found = {
        manager: sorted({name_of(field) for field, by in owners.items() if manager in by})
        for manager in sorted(gitops_managers)
    }
    return [
        ManagerResponse(manager=manager, fields=fields)
        for manager, fields in found.items()
        if fields
    ]
