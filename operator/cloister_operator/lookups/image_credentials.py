"""Credentials for image look-ups, and what registries said of them.

What a registry said is kept by the version of the core Secret, in memory: `reconcile.credential`
writes it into the status, which outlives the process.
"""

from collections.abc import Callable, Mapping

from cloister_clients.kube import KubeClient
from cloister_clients.registry import (
    Platform,
    PrivateRegistry,
    RegistryClient,
    RegistryUnauthorized,
    ResolvedImage,
)
from cloister_clients.registry.stored import (
    StoredCredentials,
    fitting_credentials,
    stored_credentials,
)
from cloister_crds.lifecycle.state.observed import NeedImage
from cloister_operator.workqueue.keys import Key

__all__ = ["ImageLookup"]


class ImageLookup:
    """Looks images up with an organization's credentials."""

    def __init__(
        self,
        client: KubeClient,
        registry: RegistryClient,
        *,
        further: Mapping[PrivateRegistry, tuple[str, ...]],
        wake: Callable[[Key], None],
    ) -> None:
        self._client = client
        self._registry = registry
        self._further = further
        self._wake = wake
        self._refused: dict[tuple[str, str], tuple[str, bool]] = {}

    async def resolve(self, need: NeedImage, platform: Platform) -> ResolvedImage:
        """Find an image.

        Raises
        ------
        RegistryError
            When it cannot be had.
        KubeError
            When the credentials cannot be read.
        """
        places = need.credentials
        stored = await stored_credentials(self._client, need.namespace, places, self._further)
        chosen = fitting_credentials(need.image, stored)
        credentials = chosen.credentials if chosen is not None else None
        try:
            found = await self._registry.resolve(
                need.image, platform=platform, credentials=credentials
            )
        except RegistryUnauthorized:
            self._note(need.namespace, chosen, refused=True)
            raise
        self._note(need.namespace, chosen, refused=False)
        return found

    def refused(self, namespace: str, secret: str, version: str) -> bool | None:
        """Tell whether a registry refused the credentials of a core Secret.

        Parameters
        ----------
        namespace
            Its namespace.
        secret
            Its name.
        version
            Its resourceVersion.

        Returns
        -------
        bool | None
            None when that version was not used yet by this process.
        """
        known = self._refused.get((namespace, secret))
        return known[1] if known is not None and known[0] == version else None

    def _note(self, namespace: str, chosen: StoredCredentials | None, *, refused: bool) -> None:
        """Remember what a registry said, and have the status written when that is new."""
        if chosen is None:
            return
        place, said = (namespace, chosen.place.secret), (chosen.version, refused)
        if self._refused.get(place) != said:
            self._refused[place] = said
            self._wake(Key("RegistryCredential", namespace, chosen.place.name))
