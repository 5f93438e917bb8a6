"""Lookups of images with an organization's credentials, and which of these a registry refused.

A refusal is remembered by the version of the core Secret; `reconcile.registry_credential` writes it
into the status, which outlives the process.
"""

from collections.abc import Callable, Mapping

from cachetools import LRUCache

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

_REMEMBERED = 4096
"""Core Secrets of which it is remembered whether a registry refused them; status has it too."""


class ImageLookup:
    """Looks images up, with an organization's credentials where they fit."""

    def __init__(
        self,
        client: KubeClient,
        registry: RegistryClient,
        *,
        further: Mapping[PrivateRegistry, tuple[str, ...]],
        enqueue: Callable[[Key], None],
    ) -> None:
        self._client = client
        self._registry = registry
        self._further = further
        self._enqueue = enqueue
        self._refused: LRUCache[tuple[str, str], tuple[str, bool]] = LRUCache(_REMEMBERED)

    async def resolve(self, need: NeedImage, platform: Platform) -> ResolvedImage:
        """Resolve an image.

        Raises
        ------
        RegistryError
            When the registry does not have it, refuses, or cannot be reached.
        KubeError
            When the credentials cannot be read.
        """
        stored = await stored_credentials(
            self._client, need.namespace, need.credentials, self._further
        )
        chosen = fitting_credentials(need.image, stored)
        credentials = chosen.credentials if chosen is not None else None
        try:
            found = await self._registry.resolve(
                need.image, platform=platform, credentials=credentials
            )
        except RegistryUnauthorized:
            self._remember(need.namespace, chosen, refused=True)
            raise
        self._remember(need.namespace, chosen, refused=False)
        return found

    def refused(self, namespace: str, secret: str, version: str) -> bool | None:
        """Return whether a registry refused the credentials in a version of a core Secret.

        None = this process has not used that version yet.
        """
        known = self._refused.get((namespace, secret))
        return known[1] if known is not None and known[0] == version else None

    def _remember(self, namespace: str, chosen: StoredCredentials | None, *, refused: bool) -> None:
        """Remember whether a registry refused, and have the status written when that changed."""
        if chosen is None:
            return
        place, outcome = (namespace, chosen.place.secret), (chosen.version, refused)
        if self._refused.get(place) != outcome:
            self._refused[place] = outcome
            self._enqueue(Key("RegistryCredential", namespace, chosen.place.name))
