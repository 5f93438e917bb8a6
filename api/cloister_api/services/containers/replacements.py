"""Creates that replace another container (``replace_container_id``), and its deletion.

The operator lets the new one take over and terminates the enclaves of the old one. The old one is
deleted here, as the replacement was requested over REST: what was written with kubectl or from a
repository is deleted there.
"""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from functools import partial

from cloister_api.auth.authenticator import Principal
from cloister_api.auth.roles import RoleRight, require
from cloister_api.cache import CachedContainer
from cloister_api.errors import conflict
from cloister_api.services.containers.reader import ContainerReader
from cloister_api.services.infrastructure import Infrastructure
from cloister_clients.kube import Conflict, KubeError, NotFound
from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Container
from cloister_crds.kinds.container import ContainerPhase
from cloister_crds.kinds.meta import GROUP
from cloister_crds.lifecycle.replacement import has_taken_over, successor

logger = logging.getLogger(__name__)

REPLACES_ANNOTATION = f"{GROUP}/replaces-uid"
"""uid of the Container that the create replaces; no other one is ever deleted."""
PAUSE_SECONDS = 1.0
"""Shortest time between two checks of all containers."""
RETRY_SECONDS = 30.0
"""Longest time between two checks: a failed deletion is retried then."""


class Replacements:
    """Finds what a create replaces, and deletes it once the new container has taken over."""

    def __init__(self, base: Infrastructure, reader: ContainerReader) -> None:
        self._client, self._cache = base.client, base.cache
        self._reader = reader
        self._gitops = frozenset(base.settings.gitops_managers)

    async def replaced(
        self, principal: Principal, given: str | None, others: list[CachedContainer]
    ) -> CachedContainer | None:
        """Return the container that a create replaces.

        Parameters
        ----------
        given
            Its identifier; None if none is replaced.

        Raises
        ------
        ApiError
            403 for a role that may not delete it, 404 when the organization has no such container;
            409 when another one already replaces it, or a GitOps manager would bring it back.
        KubeError
            When the cluster does not respond.
        """
        if given is None:
            return None
        require(principal.role, RoleRight.ADMINISTER)
        held = await self._reader.get(principal, given, None)
        obstacle = self.obstacle(held, others)
        if obstacle is not None:
            raise conflict(f"replace_container_id: {obstacle}")
        return held

    def obstacle(self, held: CachedContainer, others: Iterable[CachedContainer]) -> str | None:
        """Return why a container cannot be replaced; None if it can."""
        name = held.container.display_name
        heir = successor(held.container, (other.container for other in others))
        if heir is not None:
            return (
                f"container {name} is being replaced by {heir.display_name} already; wait until it "
                "is gone, or replace that one"
            )
        for manager in sorted(held.managers & self._gitops):
            return (
                f"{manager} manages container {name} and would bring it back; replace it in its "
                "repository with spec.replaces"
            )
        return None

    async def run(self) -> None:
        """Delete replaced containers until cancelled; failed deletions are retried."""
        while True:
            version = self._cache.containers.version
            for held in self._due():
                await self._delete(held)
            await asyncio.sleep(PAUSE_SECONDS)
            changed = partial(self._changed_since, version)
            await self._cache.containers.until(changed, within=RETRY_SECONDS)

    def _changed_since(self, version: int) -> bool:
        return self._cache.containers.version != version

    def _due(self) -> list[CachedContainer]:
        """Return the containers whose successor serves."""
        due = []
        for entry in tuple(self._cache.containers.all()):
            heir = entry.value
            uid = heir.container.metadata.annotations.get(REPLACES_ANNOTATION)
            if uid is None or heir.going or not serves(heir.container):
                continue
            old = self._cache.containers.by_uid(uid)
            if old is not None and not old.value.going and old.namespace == entry.namespace:
                due.append(old.value)
        return due

    async def _delete(self, held: CachedContainer) -> None:
        meta = held.container.metadata
        logger.info("container %s/%s was replaced and is deleted", meta.namespace, meta.name)
        try:
            with suppress(NotFound, Conflict):
                await self._client.delete(
                    of(Container),
                    meta.name,
                    meta.namespace,
                    uid=meta.uid,
                    propagation="Background",
                )
        except KubeError as error:
            logger.warning("container %s/%s: %s", meta.namespace, meta.name, error)


def serves(container: Container) -> bool:
    """Return whether a successor is ready, so that its predecessor can be deleted."""
    return container.status.phase is ContainerPhase.READY and has_taken_over(container)
