"""Who fits under an organization's limit of containers. Asked by the operator and by the facade.

The order is that of creation, so that a later create never pushes an earlier one out, and both
sides come to the same answer from the same list.
"""

from collections.abc import Iterable

from cloister_crds.kinds.container import Container
from cloister_crds.kinds.organization import Billing, Organization

__all__ = ["billing_of", "counted", "rank"]


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
    replaced = {each.spec.replaces for each in everything if each.spec.replaces}
    return tuple(
        sorted(
            (
                each
                for each in everything
                if each.metadata.name not in replaced and each.metadata.deletion_timestamp is None
            ),
            key=lambda each: (
                each.metadata.creation_timestamp.timestamp()
                if each.metadata.creation_timestamp
                else float("inf"),
                each.metadata.uid,
            ),
        )
    )


def rank(container: Container, containers: Iterable[Container]) -> int | None:
    """Answer the place of a Container among those that count.

    Parameters
    ----------
    container
        The Container.
    containers
        All Containers of the organization's namespace, it included.

    Returns
    -------
    int | None
        From 0; it fits while this is smaller than ``spec.limits.containers`` of the Organization.
        None when it does not count.
    """
    for place, each in enumerate(counted(containers)):
        if each.metadata.uid == container.metadata.uid:
            return place
    return None


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
