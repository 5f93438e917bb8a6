"""Secrets of an organization: names in custom resources, values only in core Secrets."""

from secrets import token_hex

from cloister_api.auth.authenticator import Principal
from cloister_api.cache import ClusterCache
from cloister_api.errors import ApiError, bad_request, conflict, in_use, not_found
from cloister_api.records.resources import VALUE_ANNOTATION, secret_record
from cloister_api.schemas.resource_responses import SecretResponse
from cloister_api.schemas.resources import CreateSecretRequest
from cloister_api.services.containers.reader import ContainerReader
from cloister_api.services.core_secrets import CoreSecrets, CoreSecretType
from cloister_api.services.idempotency import CreateRequest, IdempotentRequests
from cloister_api.services.preconditions import (
    VersionedRecord,
    agreed,
    claim_version,
    delete_agreed,
    patch_agreed,
)
from cloister_clients.clock import Clock, utc_text
from cloister_clients.kube import KubeClient, NotFound
from cloister_clients.kube.kinds import of
from cloister_crds.config import secret_is_file
from cloister_crds.kinds import Secret
from cloister_crds.kinds.meta import ObjectMeta
from cloister_crds.kinds.secret import SecretRef, SecretSpec
from cloister_crds.lifecycle.admission.secret_bindings import bound_by
from cloister_crds.names import secret_object_name, secret_value_name

__all__ = ["Secrets"]

VALUE_KEY = "value"
"""Key of the value in a core Secret that the facade creates."""
FORM = CoreSecretType("secret")
"""Type of the core Secrets."""


class Secrets:
    """The secrets of all organizations."""

    def __init__(
        self,
        *,
        client: KubeClient,
        cache: ClusterCache,
        reader: ContainerReader,
        core: CoreSecrets,
        idempotency: IdempotentRequests,
        clock: Clock,
        write_wait: float,
    ) -> None:
        self._client = client
        self._cache = cache
        self._reader = reader
        self._core = core
        self._idempotency = idempotency
        self._clock = clock
        self._write_wait = write_wait

    def all(self, principal: Principal) -> list[SecretResponse]:
        """Return the records of all secrets, by name."""
        held = sorted(
            self._cache.secrets_of(principal.namespace),
            key=lambda one: (one.spec.name, one.spec.repo or ""),
        )
        return [self._record(principal, one) for one in held if not going(one)]

    def one(self, principal: Principal, name: str) -> VersionedRecord[SecretResponse]:
        """Return the record of a secret.

        Raises
        ------
        ApiError
            404 when there is none.
        """
        return self._recorded(principal, self._named(principal, name))

    async def create(
        self, principal: Principal, body: CreateSecretRequest, retry_key: str | None
    ) -> VersionedRecord[SecretResponse]:
        """Create a secret with its value; idempotent for retries of the same request.

        Parameters
        ----------
        principal
            Who sends the request.
        body
            The request body.
        retry_key
            Idempotency-Key of the client; None = none was sent.

        Raises
        ------
        ApiError
            409 when the name is taken; 400 when the value cannot be a variable.
        KubeError
            When the cluster refuses or does not respond.
        """
        check_value(body.name, body.value)
        others = self._cache.secrets_of(principal.namespace)
        name = secret_object_name(body.name)
        for other in others:
            if other.spec.name == body.name and other.metadata.name != name:
                raise name_taken(body.name)
        content = body.model_dump(exclude={"value"})
        request = CreateRequest.of(principal, content, retry_key, "secret.create")
        core = secret_value_name(name, token_hex(8))
        secret = Secret(
            metadata=ObjectMeta(
                name=name, namespace=principal.namespace, annotations=request.annotations
            ),
            spec=SecretSpec(
                name=body.name, repo=body.repo, secret_ref=SecretRef(name=core, key=VALUE_KEY)
            ),
        )
        values = {VALUE_KEY: body.value.encode()}
        if not await self._exists(name, principal.namespace):
            made = await self._core.create_with_owner(secret, values, FORM)
            if made is not None:
                return await self._shown(principal, made)
        # An interrupted attempt may have left its value without owner; another value is no retry.
        earlier = await self._idempotency.earlier(Secret, name, principal.namespace, request)
        if earlier is None or not await self._core.adopt_equal(
            earlier, earlier.spec.secret_ref.name, values
        ):
            raise name_taken(body.name)
        return await self._shown(principal, earlier)

    async def _exists(self, name: str, namespace: str) -> bool:
        """Return whether a secret exists: the cache may still show a just deleted one."""
        if self._cache.secrets.get(name, namespace) is None:
            return False
        try:
            await self._client.get(of(Secret), name, namespace)
        except NotFound:
            return False
        return True

    async def update(
        self, principal: Principal, name: str, value: str, match: str | None
    ) -> VersionedRecord[SecretResponse]:
        """Write a new value; containers get it at their next deploy.

        Parameters
        ----------
        principal
            Who sends the request.
        name
            Which secret.
        value
            The new value.
        match
            Header If-Match; None = any version.

        Raises
        ------
        ApiError
            404 when there is none; 409 when a GitOps manager owns the value; 412 when it has
            another version.
        KubeError
            When the cluster refuses or does not respond.
        """
        secret = await agreed(self._client, self._named(principal, name), match, "secret")
        check_value(name, value)
        await claim_version(self._client, secret, match, "secret")
        reference = secret.spec.secret_ref
        await self._core.write(secret, reference.name, {reference.key: value.encode()}, FORM)
        now = utc_text(self._clock(), "seconds")
        patch = {"metadata": {"uid": secret.metadata.uid, "annotations": {VALUE_ANNOTATION: now}}}
        item = await patch_agreed(self._client, secret, patch, None, "secret")
        return await self._shown(principal, Secret.read(item))

    async def delete(self, principal: Principal, name: str, match: str | None) -> None:
        """Delete a secret that no container uses, and its value if the facade created it.

        Parameters
        ----------
        principal
            Who sends the request.
        name
            Which secret.
        match
            Header If-Match; None = any version.

        Raises
        ------
        ApiError
            404 when there is none; 409 that names the containers which use it; 412 when it has
            another version.
        KubeError
            When the cluster refuses or does not respond.
        """
        secret = await agreed(self._client, self._named(principal, name), match, "secret")
        held = await self._reader.list_now(principal.namespace)
        users = bound_by(secret, (one.container for one in held))
        if users:
            raise in_use(f"secret {name}", users)
        await delete_agreed(self._client, secret, match, "secret")
        await self._core.delete_owned(secret, secret.spec.secret_ref.name)
        uid = secret.metadata.uid
        await self._cache.secrets.until(
            lambda: self._cache.secrets.by_uid(uid) is None, within=self._write_wait
        )

    def _named(self, principal: Principal, name: str) -> Secret:
        """Return the secret of a name.

        Raises
        ------
        ApiError
            404 when there is none, 409 when several repositories have one of that name.
        """
        found = [
            one
            for one in self._cache.secrets_of(principal.namespace)
            if one.spec.name == name and not going(one)
        ]
        if not found:
            raise not_found("secret")
        if len(found) > 1:
            repos = ", ".join(sorted(one.spec.repo or "the organization" for one in found))
            raise conflict(f"several secrets have the name {name} ({repos}); use kubectl get csec")
        return found[0]

    def _record(self, principal: Principal, secret: Secret) -> SecretResponse:
        held = self._cache.containers_of(principal.namespace)
        return secret_record(secret, bound_by(secret, (one.container for one in held)))

    def _recorded(self, principal: Principal, secret: Secret) -> VersionedRecord[SecretResponse]:
        return VersionedRecord(self._record(principal, secret), secret.metadata.resource_version)

    async def _shown(
        self, principal: Principal, written: Secret
    ) -> VersionedRecord[SecretResponse]:
        """Wait until the cache shows a write, and return the written secret."""
        version = written.metadata.resource_version
        await self._cache.secrets.reached(version, within=self._write_wait)
        return self._recorded(principal, written)


def going(secret: Secret) -> bool:
    """Return whether a secret is being deleted."""
    return secret.metadata.deletion_timestamp is not None


def check_value(name: str, value: str) -> None:
    """Refuse a value that cannot be an environment variable.

    Raises
    ------
    ApiError
        400.
    """
    if not secret_is_file(name) and "\x00" in value:
        raise bad_request(
            "value",
            f"value: {name} becomes an environment variable, which cannot hold the character NUL; "
            "give the secret a kebab-case name to have it as a file",
        )


def name_taken(name: str) -> ApiError:
    """Build a 409: the name is taken."""
    return conflict(
        f"name: a secret named {name} exists already; PUT /api/secrets/{name} changes its value"
    )
