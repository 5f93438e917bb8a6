"""Credentials of an organization for private registries; they lie in core Secrets alone."""

from typing import Any

from cloister_api.errors import bad_request, forbidden, not_found
from cloister_api.principal import Principal
from cloister_api.resource_records import VALUE_ANNOTATION, registry_record
from cloister_api.schemas.resources import RegistryLogin
from cloister_api.services.core_secrets import CoreSecrets
from cloister_api.views import Views
from cloister_clients.clock import Clock
from cloister_clients.kube import AlreadyExists, KubeClient, NotFound
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

__all__ = ["RegistryCredentials"]

CONFIG_KEY = ".dockerconfigjson"
"""Key in a core Secret of the type below (Kubernetes, "Docker config Secrets")."""
CONFIG_TYPE = "kubernetes.io/dockerconfigjson"


class RegistryCredentials:
    """The registry credentials of all organizations."""

    def __init__(
        self,
        *,
        client: KubeClient,
        views: Views,
        core: CoreSecrets,
        clock: Clock,
        write_wait: float,
    ) -> None:
        self._client = client
        self._views = views
        self._core = core
        self._clock = clock
        self._write_wait = write_wait

    def all(self, principal: Principal) -> dict[str, Any]:
        """Answer the status of each registry.

        Raises
        ------
        ApiError
            403 without the entitlement.
        """
        entitled(principal)
        return {
            registry.value: registry_record(self._present(principal, registry))
            for registry in RegistryName
        }

    async def put(self, principal: Principal, name: str, body: RegistryLogin) -> dict[str, Any]:
        """Create credentials, or replace those that are there.

        Raises
        ------
        ApiError
            403 without the entitlement, 404 for another registry, 400 for what are no credentials,
            409 when a GitOps manager owns them.
        KubeError
            When the cluster refuses or does not answer.
        """
        entitled(principal)
        registry = registry_named(name)
        try:
            given = body.model_dump(exclude_none=True)
            credentials = credentials_from(PrivateRegistry(registry.value), given)
        except CredentialsInvalid as error:
            field = str(error).split(" ", 1)[0]
            raise bad_request(
                field if field in {"username", "token", "key"} else "", str(error)
            ) from error
        present = await self._made(principal, registry)
        values = {CONFIG_KEY: docker_config([credentials])}
        secret = present.spec.secret_ref.name
        await self._core.write(present, secret, values, kind=CONFIG_TYPE)
        now = self._clock().isoformat(timespec="seconds").replace("+00:00", "Z")
        patch = {"metadata": {"uid": present.metadata.uid, "annotations": {VALUE_ANNOTATION: now}}}
        item = await self._client.merge_patch(
            of(RegistryCredential), registry.value, patch, principal.namespace
        )
        await self._views.registry_credentials.reached(
            item["metadata"]["resourceVersion"], within=self._write_wait
        )
        record = registry_record(RegistryCredential.read(item))
        return {**record, "username": credentials.username, "expired": False}

    async def _made(self, principal: Principal, registry: RegistryName) -> RegistryCredential:
        """Answer the object of a registry, which is made where it is missing."""
        secret = registry_secret_name(registry.value)
        credential = RegistryCredential(
            metadata=ObjectMeta(name=registry.value, namespace=principal.namespace),
            spec=RegistryCredentialSpec(
                registry=registry, secret_ref=SecretRef(name=secret, key=CONFIG_KEY)
            ),
        )
        kind = of(RegistryCredential)
        try:
            return RegistryCredential.read(await self._client.create(kind, credential.manifest()))
        except AlreadyExists:
            found = await self._client.get(kind, registry.value, principal.namespace)
            return RegistryCredential.read(found)

    async def delete(self, principal: Principal, name: str) -> None:
        """Delete the credentials of a registry; what runs goes on.

        Raises
        ------
        ApiError
            403 without the entitlement, 404 when there are none.
        KubeError
            When the cluster refuses or does not answer.
        """
        entitled(principal)
        registry = registry_named(name)
        present = self._present(principal, registry)
        if present is None:
            raise not_found(f"credentials for {registry.value}")
        uid = present.metadata.uid
        try:
            await self._client.delete(
                of(RegistryCredential), registry.value, principal.namespace, uid=uid
            )
        except NotFound as error:
            raise not_found(f"credentials for {registry.value}") from error
        await self._core.drop(present, present.spec.secret_ref.name)
        await self._views.registry_credentials.until(
            lambda: self._views.registry_credentials.by_uid(uid) is None, within=self._write_wait
        )

    def _present(self, principal: Principal, registry: RegistryName) -> RegistryCredential | None:
        entry = self._views.registry_credentials.get(registry.value, principal.namespace)
        if entry is None or entry.value.metadata.deletion_timestamp is not None:
            return None
        return entry.value


def entitled(principal: Principal) -> None:
    """Refuse an organization that may not use private registries (spec, "Containers").

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
    """Answer the registry of a path.

    Raises
    ------
    ApiError
        404 for any other word.
    """
    try:
        return RegistryName(name)
    except ValueError as error:
        raise not_found("registry (there are ghcr, gcr and dockerhub)") from error
