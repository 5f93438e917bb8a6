"""Secrets of an organization: names in custom resources, values only in core Secrets."""

from collections.abc import Iterable
from secrets import token_hex

from typing_extensions import override

from cloister_api.auth.authenticator import Principal
from cloister_api.errors import ApiError, bad_request, conflict, not_found
from cloister_api.records.resources import VALUE_ANNOTATION, secret_record
from cloister_api.schemas.resources import CreateSecretRequest, SecretResponse
from cloister_api.services.containers.reader import ContainerReader
from cloister_api.services.core_secrets import CoreSecretType
from cloister_api.services.infrastructure import Infrastructure
from cloister_api.services.preconditions import (
    CreateRequest,
    VersionedRecord,
    agreed,
    change_token,
    claim_version,
    patch_agreed,
)
from cloister_api.services.quotas import exists, limits_of, require_place
from cloister_api.services.resources.named import NamedResources
from cloister_clients.clock import utc_text
from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Container, Secret
from cloister_crds.kinds.meta import ObjectMeta
from cloister_crds.kinds.secret import SecretRef, SecretSpec
from cloister_crds.lifecycle.admission.secrets import bound_by, excludes, value_error
from cloister_crds.names import secret_object_name, secret_value_name

VALUE_KEY = "value"
"""Key of the value in a core Secret that the facade creates."""
FORM = CoreSecretType("secret")
"""Type of the core Secrets."""


class Secrets(NamedResources[Secret, SecretResponse]):
    """The secrets of all organizations."""

    what = "secret"

    def __init__(self, base: Infrastructure, reader: ContainerReader) -> None:
        super().__init__(base, reader, base.cache.secrets, secret_record)

    @override
    def _name(self, one: Secret) -> str:
        return one.spec.name

    @override
    def _order(self, one: Secret) -> tuple[str, ...]:
        return (one.spec.name, one.spec.repo or "")

    @override
    def _uses(self, one: Secret, containers: Iterable[Container]) -> Iterable[Container]:
        return bound_by(one, containers, self._cache.repositories)

    def one(self, principal: Principal, name: str) -> VersionedRecord[SecretResponse]:
        """Return the record of a secret.

        Raises
        ------
        ApiError
            404 when there is none.
        """
        return self._recorded(self._named(principal, name))

    async def create(
        self, principal: Principal, body: CreateSecretRequest, retry_key: str | None
    ) -> VersionedRecord[SecretResponse]:
        """Create a secret with its value; idempotent for retries of the same request.

        Parameters
        ----------
        retry_key
            Idempotency-Key of the client; None if none was sent.

        Raises
        ------
        ApiError
            409 when the name is taken; 400 when the value cannot be a variable; 403 when the limit
            is reached.
        KubeError
            When the cluster refuses or does not respond.
        """
        check_value(body.name, body.value)
        repositories = self._cache.repositories
        repo = repositories.key(body.repo) if body.repo is not None else None
        name = secret_object_name(body.name, repo)
        for other in self._cache.secrets_of(principal.namespace):
            if other.metadata.name != name and excludes(
                other.spec, body.name, body.repo, repositories
            ):
                raise name_taken(body.name, other.spec.repo)
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
        if not await exists(self._client, self._cache.secrets, Secret, name, principal.namespace):
            used = self._cache.secrets_of(principal.namespace)
            most = limits_of(principal, self._default_limits).secrets
            require_place("secrets", len(used), most)
            made = await self._core.create_with_owner(secret, values, FORM)
            if made is not None:
                await self._yield_to_earlier(made, body)
                return await self._shown(made)
        # An interrupted attempt may have left its value without owner; another value is not a
        # retry.
        earlier = await self._idempotency.earlier(Secret, name, principal.namespace, request)
        if earlier is None or not await self._core.adopt_equal(
            earlier, earlier.spec.secret_ref.name, values
        ):
            raise name_taken(body.name, body.repo)
        return await self._shown(earlier)

    async def _yield_to_earlier(self, made: Secret, body: CreateSecretRequest) -> None:
        """Delete a created secret again if one that excludes it was there before.

        Secrets of the organization and of repositories have objects of different names. Those that
        existed when the server accepted this one are compared: its writes have a total order, so
        that of concurrent creates one remains.

        Raises
        ------
        ApiError
            409 when there is one.
        KubeError
            When the cluster refuses or does not respond.
        """
        own = made.metadata
        page = await self._client.list(of(Secret), own.namespace, at=own.resource_version)
        for item in page.items:
            other = Secret.read(item).spec
            differs = item["metadata"]["uid"] != own.uid
            if differs and excludes(other, body.name, body.repo, self._cache.repositories):
                await self._remove(made, None, self.what)
                raise name_taken(other.name, other.repo)

    async def update(
        self, principal: Principal, name: str, value: str, match: str | None
    ) -> VersionedRecord[SecretResponse]:
        """Write a new value; containers get it at their next deploy.

        Parameters
        ----------
        match
            Header If-Match; None means any version.

        Raises
        ------
        ApiError
            404 when there is none; 400 when the value cannot be a variable; 409 when a GitOps
            manager owns it; 412 when it has another version.
        KubeError
            When the cluster refuses or does not respond.
        """
        secret = await agreed(self._client, self._named(principal, name), match, "secret")
        check_value(secret.spec.name, value)
        await claim_version(self._client, secret, match, "secret")
        reference = secret.spec.secret_ref
        await self._core.write(secret, reference.name, {reference.key: value.encode()}, FORM)
        told = {VALUE_ANNOTATION: utc_text(self._clock(), "seconds"), **change_token()}
        patch = {"metadata": {"uid": secret.metadata.uid, "annotations": told}}
        item = await patch_agreed(self._client, secret, patch, None, "secret")
        return await self._shown(Secret.read(item))

    @override
    def _named(self, principal: Principal, name: str) -> Secret:
        """Return the secret of a name, or of an identifier.

        Raises
        ------
        ApiError
            404 when there is none, 409 when several repositories have one of that name.
        """
        held = self._held(principal)
        found = [one for one in held if one.spec.name == name]
        found = found or [one for one in held if one.identifier == name]
        if not found:
            raise not_found("secret")
        if len(found) > 1:
            addresses = (
                f"{one.spec.repo or 'the organization'}: /api/secrets/{one.identifier}"
                for one in found
            )
            raise conflict(
                f"{len(found)} secrets have the name {name}; send the request to the one that is "
                f"meant: {', '.join(sorted(addresses))}"
            )
        return found[0]


def check_value(name: str, value: str) -> None:
    """Refuse a value that cannot be an environment variable.

    Raises
    ------
    ApiError
        400.
    """
    error = value_error(name, value.encode())
    if error is not None:
        raise bad_request("value", f"value {error}")


def name_taken(name: str, repo: str | None) -> ApiError:
    """Build a 409: a secret of the organization (None) or of a repository has the name."""
    return conflict(
        f"name: there is a secret named {name} of {repo or 'the organization'} already; change its "
        "value with PUT, or choose another name"
    )
