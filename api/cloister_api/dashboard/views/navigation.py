"""Which pages an organization has, and how its pages link to them."""

from dataclasses import dataclass

from cloister_crds.kinds.organization import Role

__all__ = ["GROUPS", "NavigationGroup", "NavigationLink", "Place", "navigation_of"]


@dataclass(frozen=True, slots=True)
class Place:
    """A page of every organization."""

    title: str
    """Its title."""
    path: str
    """Last part of its address."""
    for_admins: bool = False
    """Whether members do not see it."""


GROUPS: tuple[tuple[str, tuple[Place, ...]], ...] = (
    ("Run", (Place("Containers", "containers"), Place("Deployments", "deployments"))),
    (
        "Configure",
        (
            Place("Secrets", "secrets"),
            Place("SSH keys", "ssh-keys"),
            Place("Domains", "domains"),
            Place("Registries", "registries"),
        ),
    ),
    (
        "Inference",
        (Place("API keys", "api-keys"), Place("Usage", "usage"), Place("Models", "models")),
    ),
    (
        "Organization",
        (
            Place("Billing", "billing"),
            Place("Admin keys", "admin-keys", for_admins=True),
            Place("Members", "members"),
            Place("Audit", "audit", for_admins=True),
            Place("Hosts", "hosts"),
            Place("Settings", "settings"),
        ),
    ),
)
"""Pages by group, in the order of the navigation."""


@dataclass(frozen=True, slots=True)
class NavigationLink:
    """A link of the navigation."""

    title: str
    """Title of the page."""
    address: str
    """Its path."""
    current: bool
    """Whether the present page is it, or one below it."""


@dataclass(frozen=True, slots=True)
class NavigationGroup:
    """Links that belong together."""

    title: str
    """Title."""
    links: tuple[NavigationLink, ...]
    """Links."""


def navigation_of(slug: str, role: Role, path: str) -> list[NavigationGroup]:
    """Return the links that somebody sees.

    Parameters
    ----------
    slug
        Slug of the organization.
    role
        Role in it.
    path
        Path of the present page.
    """
    groups = []
    for title, places in GROUPS:
        links = tuple(
            NavigationLink(each.title, address, path == address or path.startswith(f"{address}/"))
            for each in places
            if role is Role.ADMIN or not each.for_admins
            for address in (f"/o/{slug}/{each.path}",)
        )
        if links:
            groups.append(NavigationGroup(title, links))
    return groups
