"""Who fits under an organization's limit of containers. Asked by the operator and by the facade.

The order is that of creation, so that a later create never pushes an earlier one out. It is known
to the second here; the facade lets the API server's order of writes tell when it creates.
"""

from collections.abc import Iterable
from datetime import UTC, datetime

from cloister_crds.kinds.container import Container
from cloister_crds.kinds.organization import Billing, Organization
from cloister_crds.lifecycle.replacement import predecessor

__all__ = ["Place", "billing_of", "counted", "place_of", "rank"]

Place = tuple[datetime, str]
"""Where a Container stands in the order: when it was created, and its uid."""

_LAST = datetime.max.replace(tzinfo=UTC)
"""Place of what the server has not given a time yet."""


def counted(containers: Iterable[Container]) -> tuple[Container, ...]:
    """Return the Containers of an organization that count, in the order in which they count.

    Stopped ones count; one that another Container takes over from (``spec.replaces``) does not, and
    one that is being deleted does not either.
    """
    everything = tuple(containers)
    replaced = _replaced(everything)
    return tuple(sorted((each for each in everything if _counts(each, replaced)), key=_place))


def rank(container: Container, places: Iterable[Place], related: Iterable[Container]) -> int | None:
    """Return the place of a Container among those that count.

    Parameters
    ----------
    container
        The Container.
    places
        Places of all Containers of the organization's namespace that are not being deleted.
    related
        Those of them that ``spec.replaces`` of any one ties together; more do no harm.

    Returns
    -------
    int | None
        From 0; it fits while this is smaller than ``spec.limits.containers`` of the Organization.
        None when it does not count.
    """
    replaced = _replaced(tuple(related))
    if not _counts(container, replaced):
        return None
    own = _place(container)
    return sum(each < own and each[1] not in replaced for each in places)


def _replaced(containers: tuple[Container, ...]) -> frozenset[str]:
    """Return the uids of those that another one takes over from."""
    heirs = (
        each
        for each in containers
        if each.spec.replaces is not None and each.metadata.deletion_timestamp is None
    )
    olds = (predecessor(each, containers) for each in heirs)
    return frozenset(old.metadata.uid for old in olds if old is not None)


def _counts(container: Container, replaced: frozenset[str]) -> bool:
    metadata = container.metadata
    return metadata.uid not in replaced and metadata.deletion_timestamp is None


def _place(container: Container) -> Place:
    return place_of(container.metadata.creation_timestamp, container.metadata.uid)


def place_of(created: datetime | None, uid: str) -> Place:
    """Return the place of an object.

    Parameters
    ----------
    created
        When it was created; None = the server has not said so yet.
    uid
        Its uid.
    """
    return (created or _LAST, uid)


def billing_of(organization: Organization) -> Billing:
    """Return what an organization pays for.

    Parameters
    ----------
    organization
        The Organization; where it has a customerID, what the payment processor said of this
        customer wins. What it said of another one, before the customerID was changed, does not.
    """
    told, customer = organization.status.billing, organization.spec.billing.customer_id
    if customer is not None and told is not None and told.customer_id == customer:
        return told
    return organization.spec.billing
