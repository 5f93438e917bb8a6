"""Credentials of an organization in core Secrets of its namespace."""

from base64 import b64decode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cloister_clients.kube import KubeClient, NotFound
from cloister_clients.kube.kinds import SECRET
from cloister_clients.registry.credentials import Credentials, PrivateRegistry, credentials_in
from cloister_clients.registry.errors import CredentialsInvalid
from cloister_clients.registry.reference import parse_reference
from cloister_crds.lifecycle.state.observed import SecretRefKey

__all__ = ["StoredCredentials", "fitting_credentials", "stored_credentials"]


@dataclass(frozen=True, slots=True)
class StoredCredentials:
    """Credentials and where they were read."""

    place: SecretRefKey
    """The core Secret; its `name` is the registry."""
    version: str
    """resourceVersion of the core Secret."""
    credentials: Credentials
    """The credentials."""


async def stored_credentials(
    client: KubeClient,
    namespace: str,
    places: Iterable[SecretRefKey],
    further: Mapping[PrivateRegistry, tuple[str, ...]],
) -> tuple[StoredCredentials, ...]:
    """Read an organization's credentials.

    Parameters
    ----------
    client
        Client of the cluster.
    namespace
        Namespace of the organization.
    places
        Where they lie.
    further
        Hosts beside the registries' own that they may be for.

    Returns
    -------
    tuple[StoredCredentials, ...]
        Those that can be used; what is wrong with the others is in the conditions of their
        RegistryCredential.

    Raises
    ------
    KubeError
        When the cluster does not respond.
    """
    found: list[StoredCredentials] = []
    for place in places:
        registry = PrivateRegistry(place.name)
        try:
            body = await client.get(SECRET, place.secret, namespace)
            document = b64decode((body.get("data") or {}).get(place.key) or "")
            usable = credentials_in(registry, document, further.get(registry, ()))
        except (NotFound, CredentialsInvalid):
            continue
        version = str(body["metadata"]["resourceVersion"])
        found += [StoredCredentials(place, version, each) for each in usable]
    return tuple(found)


def fitting_credentials(
    image: str, stored: Iterable[StoredCredentials]
) -> StoredCredentials | None:
    """Choose the credentials that may be sent for an image; None when none may.

    Raises
    ------
    ReferenceInvalid
        When the text is not a reference.
    """
    registry = parse_reference(image).registry
    return next((each for each in stored if each.credentials.fit(registry)), None)
