"""What secrets, SSH keys, domains and registry credentials have in common."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from cloister_api.auth.authenticator import Principal
from cloister_api.cache import CachedContainer
from cloister_api.errors import ApiError, bad_request, in_use, not_found
from cloister_api.records.resources import users_of
from cloister_api.schemas.forms import ContainerUser, ResponseBody
from cloister_api.services.containers.reader import ContainerReader
from cloister_api.services.core_secrets import CoreSecrets
from cloister_api.services.infrastructure import Infrastructure
from cloister_api.services.preconditions import (
    CreateRequest,
    IdempotentRequests,
    VersionedRecord,
    agreed,
    delete_agreed,
)
from cloister_api.services.quotas import exists, require_place
from cloister_clients.kube import AlreadyExists, Invalid, Reflector
from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Container, RegistryCredential, Secret
from cloister_crds.kinds.meta import Record

T = TypeVar("T", bound=Record)
Body = TypeVar("Body", bound=ResponseBody)


class OwnedResources(Generic[T]):
    """Resources of a kind, which the facade writes and waits for."""

    def __init__(self, base: Infrastructure, kept: Reflector[T]) -> None:
        self._client, self._cache, self._clock = base.client, base.cache, base.clock
        self._kept = kept
        self._core = CoreSecrets(base)
        self._write_wait = base.settings.write_wait_seconds

    async def _remove(self, present: T, match: str | None, what: str) -> None:
        """Delete an object and the value that the facade created for it, and wait for the cache."""
        await delete_agreed(self._client, present, match, what)
        if isinstance(present, (Secret, RegistryCredential)):
            await self._core.delete_owned(present, present.spec.secret_ref.name)
        uid, version = present.metadata.uid, present.metadata.resource_version
        # A list right after it could otherwise show what is new: its creation, then its deletion.
        await self._kept.reached(version, within=self._write_wait)
        await self._kept.until(lambda: self._kept.by_uid(uid) is None, within=self._write_wait)


class NamedResources(OwnedResources[T], ABC, Generic[T, Body]):
    """Resources of a kind that containers use."""

    what: str
    """The kind in messages, in lower case where the word has it."""

    def __init__(
        self,
        base: Infrastructure,
        reader: ContainerReader,
        kept: Reflector[T],
        record: Callable[[T, Sequence[ContainerUser]], Body],
    ) -> None:
        super().__init__(base, kept)
        self._reader = reader
        self._record_of = record
        self._idempotency = IdempotentRequests(base)
        self._default_limits = base.installation.default_limits

    def _name(self, one: T) -> str:
        """Return the name that people know."""
        return one.metadata.name

    @abstractmethod
    def _uses(self, one: T, containers: Iterable[Container]) -> Iterable[Container]:
        """Return the containers that use an object."""

    def all(self, principal: Principal) -> list[Body]:
        """Return the records of all, by name."""
        return [self._record(each) for each in sorted(self._held(principal), key=self._order)]

    def _order(self, one: T) -> tuple[str, ...]:
        return (self._name(one),)

    def _held(self, principal: Principal) -> list[T]:
        """Return the objects that are not being deleted."""
        entries = self._kept.in_namespace(principal.namespace).values()
        return [each.value for each in entries if not each.value.metadata.deletion_timestamp]

    def _named(self, principal: Principal, name: str) -> T:
        """Return the object of a name, or raise a 404."""
        for each in self._held(principal):
            if self._name(each) == name:
                return each
        raise not_found(self.what)

    async def _create(
        self,
        principal: Principal,
        new: T,
        request: CreateRequest,
        *,
        field: str,
        most: int,
        taken: ApiError,
    ) -> T:
        """Create an object, or return what an earlier attempt of the request made.

        Parameters
        ----------
        field
            Field of the request that a refusal of the cluster is about.
        most
            How many an organization may have.
        taken
            The refusal when something else has the name.
        """
        kind, name, namespace = type(new), new.metadata.name, principal.namespace
        if not await exists(self._client, self._kept, kind, name, namespace):
            require_place(f"{self.what}s", len(self._kept.in_namespace(namespace)), most)
            try:
                return kind.read(await self._client.create(of(kind), new.manifest()))
            except AlreadyExists:
                pass
            except Invalid as error:
                raise bad_request(field, error.message) from error
        made = await self._idempotency.earlier(kind, name, namespace, request)
        if made is None:
            raise taken
        return made

    async def delete(self, principal: Principal, name: str, match: str | None) -> None:
        """Delete what no container uses.

        Parameters
        ----------
        match
            Header If-Match; None means any version.

        Raises
        ------
        ApiError
            404 when there is none; 409 that names the containers which use it; 412 when it has
            another version.
        KubeError
            When the cluster refuses or does not respond.
        """
        present = await agreed(self._client, self._named(principal, name), match, self.what)
        users = self._users(present, await self._reader.list_now(principal.namespace))
        if users:
            raise in_use(f"{self.what} {self._name(present)}", users)
        await self._remove(present, match, self.what)

    def _users(self, one: T, held: Iterable[CachedContainer]) -> list[ContainerUser]:
        return users_of(self._uses(one, (each.container for each in held)))

    def _record(self, one: T) -> Body:
        held = self._cache.containers_of(one.metadata.namespace or "")
        return self._record_of(one, self._users(one, held))

    def _recorded(self, one: T) -> VersionedRecord[Body]:
        return VersionedRecord(self._record(one), one.metadata.resource_version)

    async def _shown(self, written: T) -> VersionedRecord[Body]:
        """Wait until the cache shows a write, and return what was written."""
        await self._kept.reached(written.metadata.resource_version, within=self._write_wait)
        return self._recorded(written)
