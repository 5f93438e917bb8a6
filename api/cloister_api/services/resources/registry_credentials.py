"""Credentials of an organization for private registries, stored only in core Secrets."""

from cloister_api.auth.authenticator import Principal
from cloister_api.errors import ApiError, changed_since, conflict, forbidden, not_found
from cloister_api.records.resources import VALUE_ANNOTATION, registry_record
from cloister_api.schemas.forms import Detail
from cloister_api.schemas.resources import (
    PutRegistryCredentialsRequest,
    RegistryCredentialsResponse,
    RegistryStatusResponse,
)
from cloister_api.services.core_secrets import CoreSecretType
from cloister_api.services.infrastructure import Infrastructure
from cloister_api.services.preconditions import (
    VersionedRecord,
    agreed,
    change_token,
    claim_version,
    has_version,
    patch_agreed,
)
from cloister_api.services.resources.named import OwnedResources
from cloister_clients.clock import utc_text
from cloister_clients.kube import NotFound
from cloister_clients.kube.kinds import of
from cloister_clients.registry import (
    CredentialsInvalid,
    PrivateRegistry,
    credentials_from,
    docker_config,
)
from cloister_crds.kinds import RegistryCredential
from cloister_crds.kinds.meta import ObjectMeta
from cloister_crds.kinds.registrycredential import RegistryCredentialSpec, RegistryName
from cloister_crds.kinds.secret import SecretRef
from cloister_crds.names import registry_secret_name

CONFIG_KEY = ".dockerconfigjson"
"""Key in a core Secret of the type below (Kubernetes, "Docker config Secrets")."""
FORM = CoreSecretType("registry", "kubernetes.io/dockerconfigjson")
"""Type of the core Secrets."""
ATTEMPTS = 3
"""How often a put is retried after a conflict with a concurrent write."""
WHAT = "registry credentials"


class RegistryCredentials(OwnedResources[RegistryCredential]):
    """The registry credentials of all organizations."""

    def __init__(self, base: Infrastructure) -> None:
        super().__init__(base, base.cache.registry_credentials)

    def all(self, principal: Principal) -> RegistryCredentialsResponse:
        """Return the status of each registry.

        Raises
        ------
        ApiError
            403 without the entitlement.
        """
        require_entitlement(principal)
        return RegistryCredentialsResponse(
            **{
                registry.value: registry_record(self._present(principal, registry))
                for registry in RegistryName
            }
        )

    async def put(
        self,
        principal: Principal,
        name: str,
        body: PutRegistryCredentialsRequest,
        match: str | None,
    ) -> VersionedRecord[RegistryStatusResponse]:
        """Create or replace credentials.

        Parameters
        ----------
        match
            Header If-Match; None means any version, or none.

        Raises
        ------
        ApiError
            403 without the entitlement, 404 for another registry, 400 for invalid credentials,
            409 when a GitOps manager owns them, 412 when they have another version.
        KubeError
            When the cluster refuses or does not respond.
        """
        require_entitlement(principal)
        registry = registry_named(name)
        try:
            given = body.model_dump(exclude_none=True)
            credentials = credentials_from(PrivateRegistry(registry.value), given)
        except CredentialsInvalid as error:
            details = [Detail(field, "Invalid", text) for field, text in error.problems]
            raise ApiError(400, "BAD_REQUEST", str(error), details) from error
        values = {CONFIG_KEY: docker_config([credentials])}
        written = await self._put(principal, registry, values, match)
        version = written.metadata.resource_version
        await self._kept.reached(version, within=self._write_wait)
        known = {"username": credentials.username or None, "expired": False}
        return VersionedRecord(registry_record(written).model_copy(update=known), version)

    async def _put(
        self,
        principal: Principal,
        registry: RegistryName,
        values: dict[str, bytes],
        match: str | None,
    ) -> RegistryCredential:
        """Write the value first, so that new credentials are never visible without it."""
        namespace, secret = principal.namespace, registry_secret_name(registry.value)
        for _ in range(ATTEMPTS):
            present = await self._live(principal, registry)
            if present is not None:
                return await self._replace(present, values, match)
            if match is not None:
                raise changed_since(WHAT)
            new = self._new(namespace, registry, secret)
            made = await self._core.create_with_owner(new, values, FORM)
            if made is not None:
                return made
            # An orphan of deleted credentials, unless another request has just created some.
            if await self._live(principal, registry) is None:
                await self._core.delete_orphan(namespace, secret)
        raise conflict("the credentials are being changed by others; try again")

    async def _replace(
        self, present: RegistryCredential, values: dict[str, bytes], match: str | None
    ) -> RegistryCredential:
        """Replace the value of existing credentials."""
        meta = present.metadata
        if not has_version(meta.resource_version, match):
            raise changed_since(WHAT)
        await claim_version(self._client, present, match, WHAT)
        await self._core.write(present, present.spec.secret_ref.name, values, FORM)
        told = {VALUE_ANNOTATION: self._now(), **change_token()}
        patch = {"metadata": {"uid": meta.uid, "annotations": told}}
        return RegistryCredential.read(await patch_agreed(self._client, present, patch, None, WHAT))

    def _new(self, namespace: str, registry: RegistryName, secret: str) -> RegistryCredential:
        """Build the object of a registry."""
        return RegistryCredential(
            metadata=ObjectMeta(
                name=registry.value,
                namespace=namespace,
                annotations={VALUE_ANNOTATION: self._now()},
            ),
            spec=RegistryCredentialSpec(
                registry=registry, secret_ref=SecretRef(name=secret, key=CONFIG_KEY)
            ),
        )

    async def _live(
        self, principal: Principal, registry: RegistryName
    ) -> RegistryCredential | None:
        """Return the object of a registry as the server has it; None if there is none."""
        try:
            found = await self._client.get(
                of(RegistryCredential), registry.value, principal.namespace
            )
        except NotFound:
            return None
        return RegistryCredential.read(found)

    def _now(self) -> str:
        return utc_text(self._clock(), "seconds")

    async def delete(self, principal: Principal, name: str, match: str | None) -> None:
        """Delete the credentials of a registry; running containers keep running.

        Parameters
        ----------
        match
            Header If-Match; None means any version.

        Raises
        ------
        ApiError
            403 without the entitlement, 404 when there are none, 412 when they have another
            version.
        KubeError
            When the cluster refuses or does not respond.
        """
        require_entitlement(principal)
        registry = registry_named(name)
        what = f"credentials for {registry.value}"
        found = self._present(principal, registry)
        if found is None:
            raise not_found(what)
        await self._remove(await agreed(self._client, found, match, what), match, what)

    def _present(self, principal: Principal, registry: RegistryName) -> RegistryCredential | None:
        entry = self._kept.get(registry.value, principal.namespace)
        if entry is None or entry.value.metadata.deletion_timestamp is not None:
            return None
        return entry.value


def require_entitlement(principal: Principal) -> None:
    """Refuse an organization that may not use private registries (spec 8.17, 20.12).

    Raises
    ------
    ApiError
        403.
    """
    if not principal.organization.spec.entitlements.private_registries:
        raise forbidden(
            "private registries are not enabled for the organization; ask the administrator for "
            "the entitlement privateRegistries"
        )


def registry_named(name: str) -> RegistryName:
    """Return the registry of a path.

    Raises
    ------
    ApiError
        404 for any other name.
    """
    try:
        return RegistryName(name)
    except ValueError as error:
        raise not_found("registry (there are ghcr, gcr and dockerhub)") from error
