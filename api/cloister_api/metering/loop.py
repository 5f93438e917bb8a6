"""The loop that meters run time. It is level-triggered, so that nothing can be missed.

It checks every Enclave with the finalizer of metering, writes the run time that the ledger lacks,
and removes the finalizer of deleted ones once the ledger has all of it. An Enclave without the
finalizer was created before metering was turned on, and is not metered. The process may be killed
at any moment: the next iteration finds what was not committed.
"""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy.exc import SQLAlchemyError

from cloister_api.cache import CachedEnclave, ClusterCache
from cloister_api.ledger.leases import Lease
from cloister_api.metering.store import PAGE, MeteringStore, ServedEnclave, due_until, unfit
from cloister_clients.clock import Clock
from cloister_clients.kube import Conflict, KubeClient, KubeError, NotFound
from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Enclave
from cloister_crds.lifecycle.metering import FINALIZER

logger = logging.getLogger(__name__)

EVERY = 2.0
"""Seconds between two iterations. One reads only memory unless something is due."""


class Metering:
    """Meters active enclaves periodically."""

    def __init__(
        self,
        client: KubeClient,
        cache: ClusterCache,
        store: MeteringStore,
        lease: Lease,
        clock: Clock,
    ) -> None:
        """Prepare the loop.

        Parameters
        ----------
        client
            Client whose user may remove finalizers of Enclaves.
        cache
            Custom resources in memory.
        """
        self._client = client
        self._cache = cache
        self._store = store
        self._lease = lease
        self._clock = clock
        self._known: dict[str, tuple[int, bool]] = {}
        self._unfit: set[str] = set()
        self.completed_at = time.monotonic()
        """When an iteration last succeeded, by the monotonic clock; another facade that meters
        counts as success. Read by the metrics' thread."""

    async def run(self) -> None:
        """Meter until cancelled."""
        while True:
            try:
                await self.meter()
                self.completed_at = time.monotonic()
            except SQLAlchemyError:  # Enclaves wait; the next iteration retries
                logger.exception("run time is not metered: the ledger does not respond")
            except KubeError as error:
                logger.warning("a metered Enclave keeps its finalizer for now: %s", error)
            await asyncio.sleep(EVERY)

    async def meter(self) -> None:
        """Write the run time that is due, and remove the finalizers of metered Enclaves.

        Finalizers of what is metered are removed whatever failed before.

        Raises
        ------
        SQLAlchemyError
            When the ledger does not respond.
        KubeError
            When the cluster does not respond.
        """
        if not self._cache.ready or not await self._lease.hold(self._clock()):
            # Another facade writes now, so that this state may become stale.
            self._known.clear()
            return
        now = micros(self._clock())
        enclaves = [entry.value for entry in self._cache.enclaves.all()]
        present = {enclave.uid for enclave in enclaves}
        self._known = {uid: state for uid, state in self._known.items() if uid in present}
        organizations = {
            entry.value.spec.namespace: entry.value.identifier
            for entry in self._cache.organizations.all()
        }
        served = (
            self._served(enclave, enclave.promoted_at, organizations)
            for enclave in enclaves
            if enclave.promoted_at is not None and FINALIZER in enclave.finalizers
        )
        due = [one for one in served if self._is_due(one, now) and self._fits(one)]
        self._unfit &= present
        try:
            for first in range(0, len(due), PAGE):
                self._known |= await self._store.meter(due[first : first + PAGE], now)
        finally:
            await self._remove_finalizers([each for each in enclaves if self._is_over(each)])

    def _served(
        self, enclave: CachedEnclave, begin: datetime, organizations: Mapping[str, str]
    ) -> ServedEnclave:
        """Return what is metered of an Enclave."""
        container = self._cache.containers.by_uid(enclave.container_uid)
        return ServedEnclave(
            enclave=enclave.uid,
            organization=organizations.get(enclave.namespace, ""),
            container=container.value.id if container else enclave.container_uid,
            name=enclave.container,
            cpus=enclave.cpus,
            memory_mb=enclave.memory_mb,
            gpus=enclave.gpus,
            begin=micros(begin),
            end=micros(enclave.demoted_at) if enclave.demoted_at else None,
        )

    def _is_due(self, served: ServedEnclave, now: int) -> bool:
        """Return whether the ledger may lack something of an enclave."""
        known = self._known.get(served.enclave)
        if known is None:
            return True
        until, closed = known
        return not closed and (served.end is not None or due_until(served, now) > until)

    def _is_over(self, enclave: CachedEnclave) -> bool:
        """Return whether a deleted Enclave waits only for the finalizer, with all of it metered."""
        if not enclave.deleting or FINALIZER not in enclave.finalizers:
            return False
        return enclave.promoted_at is None or self._known.get(enclave.uid, (0, False))[1]

    def _fits(self, served: ServedEnclave) -> bool:
        """Return whether the ledger has room for an enclave's values; say once which it has not."""
        problem = unfit(served)
        if problem and served.enclave not in self._unfit:
            self._unfit.add(served.enclave)
            logger.error(
                "run time of Enclave %s of organization %s is not metered: %s",
                served.enclave,
                served.organization,
                problem,
            )
        return not problem

    async def _remove_finalizers(self, enclaves: Sequence[CachedEnclave]) -> None:
        """Remove the finalizers of metered Enclaves; one that fails keeps no other's.

        Raises
        ------
        KubeError
            When the cluster refused one.
        """
        failed: KubeError | None = None
        for enclave in enclaves:
            try:
                await self._remove_finalizer(enclave)
            except KubeError as error:
                failed = error
        if failed is not None:
            raise failed

    async def _remove_finalizer(self, enclave: CachedEnclave) -> None:
        """Remove the finalizer, unless the Enclave has changed since it was checked."""
        others = [each for each in enclave.finalizers if each != FINALIZER]
        patch = {"metadata": {"resourceVersion": enclave.version, "finalizers": others}}
        try:
            await self._client.merge_patch(of(Enclave), enclave.name, patch, enclave.namespace)
        except (Conflict, NotFound):
            logger.debug("Enclave %s/%s has changed", enclave.namespace, enclave.name)


def micros(at: datetime) -> int:
    """Return a time in Unix microseconds."""
    return round(at.timestamp() * 1_000_000)
