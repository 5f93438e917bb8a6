"""Reads containers.

Lists, one by its identifier, its status and Events, waits for a write in the cache.
"""

import logging
import re
from dataclasses import replace

from pydantic import ValidationError

from cloister_api.auth.authenticator import Principal
from cloister_api.cache import CachedContainer, CachedEnclave, project_container
from cloister_api.errors import ApiError, changed_since, not_found
from cloister_api.records.container import manager_records
from cloister_api.records.container_status import candidate_of, event_record, status_record
from cloister_api.schemas.container_responses import (
    ContainerStatusResponse,
    EventResponse,
    ManagerResponse,
    MeasuredInitdata,
    MeasurementResponse,
)
from cloister_api.services.containers.refusals import api_field
from cloister_api.services.infrastructure import Infrastructure
from cloister_api.services.preconditions import has_version, names_version
from cloister_clients.kube import NotFound
from cloister_clients.kube.kinds import CONFIG_MAP, EVENT, Object, of
from cloister_crds.kinds import Container, Enclave
from cloister_crds.measurement import Publication, published
from cloister_crds.names import config_map_name

MAX_EVENTS = 100
"""Most Events that are shown."""
MAX_READ = 1000
"""Most Events that are read to find the newest."""


class ContainerStatuses:
    """Reports how containers are."""

    def __init__(self, base: Infrastructure) -> None:
        self._client, self._cache = base.client, base.cache
        self._gitops = tuple(base.settings.gitops_managers)

    def of(self, held: CachedContainer) -> tuple[ContainerStatusResponse, str]:
        """Return how a container is, and the version of that.

        The version changes with the Container and each Enclave that is shown. No object has it, so
        it fits no If-Match.
        """
        status = held.container.status
        serving = self._enclave(held, status.active_enclave)
        candidate = self._enclave(held, candidate_of(status))
        shown = [each.version for each in (serving, candidate) if each is not None]
        record = status_record(held, serving, candidate, self.managers_of(held))
        return record, f'W/"{".".join([held.version, *shown])}"'

    def managers_of(self, held: CachedContainer) -> list[ManagerResponse]:
        """Return the GitOps tools that manage fields of a container, by name."""
        return manager_records(held.owners, self._gitops, api_field)

    def _enclave(self, held: CachedContainer, name: str) -> CachedEnclave | None:
        """Return the Enclave of a name, if it is the Container's; None if the cache has none."""
        meta = held.container.metadata
        entry = self._cache.enclaves.in_namespace(meta.namespace or "").get(name)
        if entry is None or entry.value.container_uid != meta.uid:
            return None
        return entry.value

    async def events(self, held: CachedContainer) -> list[EventResponse]:
        """Return the newest Events about a container, newest first.

        Raises
        ------
        KubeError
            When the cluster does not respond.
        """
        meta = held.container.metadata
        found: list[Object] = []
        async for page in self._client.list_pages(
            EVENT, meta.namespace, field_selector=f"regarding.uid={meta.uid}"
        ):
            found += page.items
            if len(found) >= MAX_READ:
                break
        records = sorted(map(event_record, found), key=lambda each: each.at, reverse=True)
        return records[:MAX_EVENTS]


class MeasurementReader:
    """Reads measurements."""

    def __init__(self, base: Infrastructure) -> None:
        self._client = base.client

    async def of(self, held: CachedContainer) -> MeasurementResponse:
        """Return the measurement of the active enclave of a container.

        The two objects are read from the server: both are immutable and too rarely requested to be
        cached.

        Raises
        ------
        ApiError
            404 without an active enclave, or when it is older than published measurements.
        KubeError
            When the cluster does not respond.
        """
        container = held.container
        name, namespace = container.status.active_enclave, container.metadata.namespace
        if not name:
            raise absent("no enclave is active; a measurement is published with each enclave")
        try:
            enclave = Enclave.read(await self._client.get(of(Enclave), name, namespace))
            kept = await self._client.get(CONFIG_MAP, config_map_name(name), namespace)
        except NotFound as gone:
            raise absent("the active enclave is gone; try again in a moment") from gone
        owners = {each["uid"] for each in kept["metadata"].get("ownerReferences") or ()}
        publication = published(kept.get("data") or {})
        ours = enclave.spec.container.uid == container.metadata.uid
        if publication is None or not ours or enclave.metadata.uid not in owners:
            raise absent(
                "the enclave was created before measurements were published; relaunch the container"
            )
        return measurement_record(enclave, publication)


def absent(reason: str) -> ApiError:
    """Build a 404 with the reason: the container itself exists."""
    return ApiError(404, "NOT_FOUND", f"measurement not found: {reason}")


def measurement_record(enclave: Enclave, publication: Publication) -> MeasurementResponse:
    """Return a measurement, and what a client needs to recompute it (docs/measurement.md)."""
    spec, initdata = enclave.spec, publication.initdata
    measured = None
    if initdata is not None:
        measured = MeasuredInitdata(digest=initdata.digest, toml=initdata.text.decode())
    return MeasurementResponse(
        repo=spec.repo,
        tag=spec.tag,
        commit=spec.commit,
        config_file=spec.config_file,
        digest=publication.digest,
        document=publication.document,
        documents=publication.documents,
        initdata=measured,
    )


logger = logging.getLogger(__name__)

UUID = re.compile(r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
TOKEN_WAIT = 0.5
"""Seconds that a read waits for the version of a write at another replica."""


class ContainerReader:
    """Reads containers."""

    def __init__(self, base: Infrastructure) -> None:
        self._client, self._cache = base.client, base.cache
        self._write_wait = base.settings.write_wait_seconds

    async def all(self, principal: Principal, token: str | None) -> list[CachedContainer]:
        """Return the containers of the organization, oldest first.

        Parameters
        ----------
        token
            Version that must be reached (X-Consistency-Token); None means whatever the cache has.

        Raises
        ------
        KubeError
            When the cache lags behind the version and the cluster does not respond.
        """
        if await self.reached(token):
            return self.known(principal)
        return await self.list_now(principal.namespace)

    def known(self, principal: Principal) -> list[CachedContainer]:
        """Return the cached containers of the organization, oldest first."""
        return self._cache.containers_of(principal.namespace)

    async def reached(self, token: str | None) -> bool:
        """Return whether the cache has a version, after waiting for it a moment.

        Parameters
        ----------
        token
            The version (X-Consistency-Token); None means whatever the cache has.

        Raises
        ------
        ApiError
            400 when this installation never issued it.
        """
        if token is None:
            return True
        if not token.isascii() or not token.isdigit():
            raise ApiError(
                400, "BAD_REQUEST", "X-Consistency-Token was not issued by this installation"
            )
        return await self._cache.containers.reached(token, within=TOKEN_WAIT)

    async def list_now(self, namespace: str, at: str | None = None) -> list[CachedContainer]:
        """Return the containers of a namespace as the server has them.

        Parameters
        ----------
        at
            resourceVersion of the write right after which they are listed; None means now.

        Raises
        ------
        KubeError
            When the cluster does not respond.
        """
        page = await self._client.list(of(Container), namespace, at=at)
        return [held for held in map(readable, page.items) if held is not None]

    async def get(
        self, principal: Principal, given: str, token: str | None, match: str | None = None
    ) -> CachedContainer:
        """Return one container of the organization.

        Parameters
        ----------
        given
            Its identifier; any text from the path.
        token
            Version that must be reached; None means whatever the cache has.
        match
            Header If-Match: versions that it may have; None means any.

        Raises
        ------
        ApiError
            404 when there is none, or it is of another organization; 412 when it has none of the
            versions.
        KubeError
            When the cache lacks it, or If-Match names versions, and the cluster does not respond.
        """
        if not UUID.match(given):
            raise not_found("container")
        found = await self._found(principal.namespace, given, token)
        if not names_version(match):
            return found
        # Whatever is decided from here on, refusals too, is of the version that the client names:
        # the cache may still show it after another client's write.
        meta = found.container.metadata
        try:
            live = await self.now(principal.namespace, meta.name)
        except NotFound as error:
            raise not_found("container") from error
        if live.container.metadata.uid != meta.uid:
            raise not_found("container")
        if not has_version(live.version, match):
            raise changed_since()
        return replace(live, pinned=True)

    async def now(self, namespace: str, name: str) -> CachedContainer:
        """Return a container as the server has it.

        Raises
        ------
        NotFound
            When there is none.
        KubeError
            When the cluster does not respond.
        """
        return project_container(await self._client.get(of(Container), name, namespace))

    async def until_shown(self, held: CachedContainer) -> None:
        """Wait until the cache shows a write.

        Parameters
        ----------
        held
            The object in the server's response to the write.
        """
        await self._cache.containers.reached(held.version, within=self._write_wait)

    async def until_deployment_shown(self, namespace: str, repo: str) -> None:
        """Wait until the cache shows the Deployment of a repository, which a record names."""
        await self._cache.deployments.until(
            lambda: self._cache.deployment_of(namespace, repo) is not None,
            within=self._write_wait,
        )

    async def until_switched(self, held: CachedContainer, *, within: float) -> CachedContainer:
        """Wait until an accepted update serves, and return the container as it is then.

        Parameters
        ----------
        within
            Seconds to wait at most; then the container is returned as it is.
        """
        uid = held.container.metadata.uid
        promoted = held.container.spec.promote

        def over() -> bool:
            entry = self._cache.containers.by_uid(uid)
            update = entry.value.container.status.update if entry is not None else None
            return update is None or update.revision != promoted

        await self._cache.containers.until(over, within=within)
        entry = self._cache.containers.by_uid(uid)
        return entry.value if entry is not None else held

    async def until_deleted(self, uid: str) -> None:
        """Wait until the cache shows that a container was deleted."""

        def left() -> bool:
            entry = self._cache.containers.by_uid(uid)
            return entry is None or entry.value.going

        await self._cache.containers.until(left, within=self._write_wait)

    async def _found(self, namespace: str, given: str, token: str | None) -> CachedContainer:
        """Return a container of a namespace from the cache, else from the server.

        Raises
        ------
        ApiError
            404 when there is none.
        """
        held = self._cached(namespace, given) if await self.reached(token) else None
        if held is not None:
            return held
        for held in await self.list_now(namespace):
            if held.id == given:
                return held
        raise not_found("container")

    def _cached(self, namespace: str, given: str) -> CachedContainer | None:
        entry = self._cache.containers.by_uid(given)
        if entry is not None and entry.namespace == namespace and entry.value.id == given:
            return entry.value
        for other in self._cache.containers.in_namespace(namespace).values():
            if other.value.id == given:
                return other.value
        return None


def readable(item: Object) -> CachedContainer | None:
    """Return the container; None after logging one that cannot be read, so that others are."""
    try:
        return project_container(item)
    except ValidationError:
        logger.exception("container %s cannot be read", item["metadata"]["name"])
        return None
