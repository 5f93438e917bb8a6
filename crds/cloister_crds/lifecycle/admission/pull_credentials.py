"""The credentials with which an organization's images are looked up and pulled."""

from collections.abc import Iterable

from cloister_crds.kinds.organization import Organization
from cloister_crds.kinds.registrycredential import RegistryCredential
from cloister_crds.lifecycle.state.observed import SecretRefKey

__all__ = ["pull_credentials"]


def pull_credentials(
    organization: Organization | None, credentials: Iterable[RegistryCredential]
) -> tuple[SecretRefKey, ...]:
    """Return the keys of core Secrets with the credentials that an organization may use.

    Parameters
    ----------
    organization
        The Organization; without the entitlement privateRegistries it may use none.
    credentials
        All RegistryCredentials of its namespace.

    Returns
    -------
    tuple[SecretRefKey, ...]
        Ordered by registry, which is the name of each.
    """
    if organization is None or not organization.spec.entitlements.private_registries:
        return ()
    return tuple(
        sorted(
            SecretRefKey(
                name=each.spec.registry.value,
                secret=each.spec.secret_ref.name,
                key=each.spec.secret_ref.key,
            )
            for each in credentials
        )
    )
