"""SSH keys of an organization, for its debug containers."""

from pydantic import ValidationError

from cloister_api.auth.authenticator import Principal
from cloister_api.cache import CachedContainer
from cloister_api.errors import bad_request, broken_rule, conflict, in_use, not_found
from cloister_api.records.resources import key_record, users_of
from cloister_api.schemas.forms import ContainerUser
from cloister_api.schemas.resources import CreateSshKeyRequest, SshKeyResponse
from cloister_api.services.containers.reader import ContainerReader
from cloister_api.services.infrastructure import Infrastructure
from cloister_api.services.preconditions import (
    CreateRequest,
    IdempotentRequests,
    VersionedRecord,
    agreed,
    delete_agreed,
)
from cloister_api.services.quotas import exists, limits_of, require_place
from cloister_clients.kube import AlreadyExists, Invalid
from cloister_clients.kube.kinds import of
from cloister_crds.kinds import SSHKey
from cloister_crds.kinds.meta import ObjectMeta
from cloister_crds.kinds.sshkey import SSHKeySpec
from cloister_crds.lifecycle.admission.keys import key_error, named_by


class SSHKeys:
    """The SSH keys of all organizations."""

    def __init__(self, base: Infrastructure, reader: ContainerReader) -> None:
        self._client, self._cache = base.client, base.cache
        self._reader = reader
        self._idempotency = IdempotentRequests(base)
        self._default_limits = base.installation.default_limits
        self._write_wait = base.settings.write_wait_seconds

    def all(self, principal: Principal) -> list[SshKeyResponse]:
        """Return the records of all keys, by name."""
        entries = self._cache.ssh_keys.in_namespace(principal.namespace)
        keys = (entries[name].value for name in sorted(entries))
        held = self._cache.containers_of(principal.namespace)
        return [
            key_record(key, users_by_name(key.metadata.name, held))
            for key in keys
            if key.metadata.deletion_timestamp is None
        ]

    async def create(
        self, principal: Principal, body: CreateSshKeyRequest, retry_key: str | None
    ) -> VersionedRecord[SshKeyResponse]:
        """Register a key; idempotent for retries of the same request.

        Parameters
        ----------
        retry_key
            Idempotency-Key of the client; None if none was sent.

        Raises
        ------
        ApiError
            409 when the name is taken; 400 when the text is not a supported public key; 403
            when the limit is reached.
        KubeError
            When the cluster refuses or does not respond.
        """
        try:
            spec = SSHKeySpec(public_key=body.public_key.strip())
        except ValidationError as error:
            raise broken_rule("public_key", error) from error
        if (reason := key_error(spec.public_key)) is not None:
            raise bad_request("public_key", f"public_key {reason}")
        request = CreateRequest.of(principal, body.model_dump(), retry_key, "ssh-key.create")
        namespace = principal.namespace
        meta = ObjectMeta(name=body.name, namespace=namespace, annotations=request.annotations)
        manifest = SSHKey(metadata=meta, spec=spec).manifest()
        if await exists(self._client, self._cache.ssh_keys, SSHKey, body.name, namespace):
            made = await self._earlier(body.name, namespace, request)
        else:
            used = self._cache.ssh_keys_of(namespace)
            require_place(
                "SSH keys", len(used), limits_of(principal, self._default_limits).ssh_keys
            )
            try:
                made = SSHKey.read(await self._client.create(of(SSHKey), manifest))
            except AlreadyExists:
                made = await self._earlier(body.name, namespace, request)
            except Invalid as error:
                raise bad_request("public_key", error.message) from error
        version = made.metadata.resource_version
        await self._cache.ssh_keys.reached(version, within=self._write_wait)
        users = users_by_name(body.name, self._cache.containers_of(namespace))
        return VersionedRecord(key_record(made, users), version)

    async def _earlier(self, name: str, namespace: str, request: CreateRequest) -> SSHKey:
        """Return what an earlier attempt of the same create made.

        Raises
        ------
        ApiError
            409 when another request created it.
        """
        made = await self._idempotency.earlier(SSHKey, name, namespace, request)
        if made is None:
            raise conflict(f"name: an SSH key named {name} exists already; choose another name")
        return made

    async def delete(self, principal: Principal, name: str, match: str | None) -> None:
        """Delete a key that no container uses.

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
        entry = self._cache.ssh_keys.get(name, principal.namespace)
        if entry is None or entry.value.metadata.deletion_timestamp is not None:
            raise not_found("SSH key")
        key = await agreed(self._client, entry.value, match, "SSH key")
        users = users_by_name(name, await self._reader.list_now(principal.namespace))
        if users:
            raise in_use(f"SSH key {name}", users)
        uid = key.metadata.uid
        await delete_agreed(self._client, key, match, "SSH key")
        await self._cache.ssh_keys.until(
            lambda: self._cache.ssh_keys.by_uid(uid) is None, within=self._write_wait
        )


def users_by_name(name: str, held: list[CachedContainer]) -> list[ContainerUser]:
    """Return the containers that use a key."""
    return users_of(named_by(name, (one.container for one in held)))
