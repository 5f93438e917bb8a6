"""Who fits under an organization's limit of containers. Asked by the operator and by the facade.

The order is that of creation, so that a later create never pushes an earlier one out, and both
sides come to the same answer from the same list.
"""

from collections.abc import Iterable
from datetime import UTC, datetime

from cloister_crds.kinds.container import Container
from cloister_crds.kinds.organization import Billing, Organization

__all__ = ["billing_of", "counted", "rank"]

_LAST = datetime.max.replace(tzinfo=UTC)
"""Place of what the server has not given a time yet."""


def counted(containers: Iterable[Container]) -> tuple[Container, ...]:
    """Answer the Containers of an organization that count, in the order in which they count.

    Stopped ones count; one that another Container takes over from (``spec.replaces``) does not, and
    one that is being deleted does not either.

    Parameters
    ----------
    containers
        All Containers of the organization's namespace.
    """
    everything = tuple(containers)
    replaced = _replaced(everything)
    return tuple(sorted((each for each in everything if _counts(each, replaced)), key=_place))


def rank(container: Container, containers: Iterable[Container]) -> int | None:
    """Answer the place of a Container among those that count.

    Parameters
    ----------
    container
        The Container.
    containers
        All Containers of the organization's namespace.

    Returns
    -------
    int | None
        From 0; it fits while this is smaller than ``spec.limits.containers`` of the Organization.
        None when it does not count.
    """
    everything = tuple(containers)
    replaced = _replaced(everything)
    if not _counts(container, replaced):
        return None
    own = _place(container)
    return sum(_place(each) < own and _counts(each, replaced) for each in everything)


def _replaced(containers: tuple[Container, ...]) -> frozenset[str]:
    return frozenset(each.spec.replaces for each in containers if each.spec.replaces)


def _counts(container: Container, replaced: frozenset[str]) -> bool:
    metadata = container.metadata
    return metadata.name not in replaced and metadata.deletion_timestamp is None


def _place(container: Container) -> tuple[datetime, str]:
    metadata = container.metadata
    return (metadata.creation_timestamp or _LAST, metadata.uid)


def billing_of(organization: Organization) -> Billing:
    """Answer what an organization pays for.

    Parameters
    ----------
    organization
        The Organization; where it has a customerID, what the payment processor said wins.
    """
    told = organization.status.billing
    if organization.spec.billing.customer_id is not None and told is not None:
        return told
    return organization.spec.billing
