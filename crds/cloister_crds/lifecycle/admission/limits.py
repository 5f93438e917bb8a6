"""An organization's limit of containers: which Containers count, in which order.

The order is that of creation, so that a later create never pushes an earlier one out. Times have a
resolution of a second; for its own creates the facade uses the API server's order of writes.
"""

from collections.abc import Iterable
from datetime import UTC, datetime

from cloister_crds.kinds.container import Container
from cloister_crds.kinds.organization import Billing, Organization
from cloister_crds.lifecycle.replacement import predecessor

__all__ = ["Place", "billing_of", "counted", "place_of", "rank"]

Place = tuple[datetime, str]
"""A Container's place in the order: when it was created, and its uid."""

_LAST = datetime.max.replace(tzinfo=UTC)
"""Creation time of what has none from the server yet."""


def counted(containers: Iterable[Container]) -> tuple[Container, ...]:
    """Return the Containers of an organization that count, in the order in which they count.

    Stopped ones count; one that is being replaced (``spec.replaces``) or deleted does not.
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
        Those of them that are connected by ``spec.replaces``; more do no harm.

    Returns
    -------
    int | None
        From 0; it is within the limit while this is smaller than ``spec.limits.containers`` of the
        Organization. None when it does not count.
    """
    replaced = _replaced(tuple(related))
    if not _counts(container, replaced):
        return None
    own = _place(container)
    return sum(each < own and each[1] not in replaced for each in places)


def _replaced(containers: tuple[Container, ...]) -> frozenset[str]:
    """Return the uids of those that another one replaces."""
    replacing = (
        each
        for each in containers
        if each.spec.replaces is not None and each.metadata.deletion_timestamp is None
    )
    olds = (predecessor(each, containers) for each in replacing)
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
        When it was created; None = the server has not set it yet.
    uid
        Its uid.
    """
    return (created or _LAST, uid)


def billing_of(organization: Organization) -> Billing:
    """Return what an organization pays for.

    With a customerID, what the payment processor reported for this customer wins; what it reported
    for another one, before the customerID was changed, does not.
    """
    reported, customer = organization.status.billing, organization.spec.billing.customer_id
    if customer is not None and reported is not None and reported.customer_id == customer:
        return reported
    return organization.spec.billing
