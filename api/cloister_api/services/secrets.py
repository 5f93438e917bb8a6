"""Secrets of an organization: names in custom resources, values in core Secrets alone."""

from typing import Any

from cloister_api.errors import ApiError, bad_request, conflict, in_use, not_found
from cloister_api.principal import Principal
from cloister_api.resource_records import VALUE_ANNOTATION, secret_record
from cloister_api.schemas.resources import SecretCreate
from cloister_api.services.core_secrets import CoreSecrets
from cloister_api.services.reading import Reading
from cloister_api.views import Views
from cloister_clients.clock import Clock
from cloister_clients.kube import AlreadyExists, KubeClient, NotFound
from cloister_clients.kube.kinds import of
from cloister_crds.config import secret_is_file
from cloister_crds.kinds import Secret
from cloister_crds.kinds.meta import ObjectMeta
from cloister_crds.kinds.secret import SecretRef, SecretSpec
from cloister_crds.lifecycle.bindings import bound_by
from cloister_crds.names import secret_object_name, secret_value_name

__all__ = ["Secrets"]

VALUE_KEY = "value"
"""Key of the value in a core Secret that the facade makes."""


class Secrets:
    """The secrets of all organizations."""

    def __init__(
        self,
        *,
        client: KubeClient,
        views: Views,
        reading: Reading,
        core: CoreSecrets,
        clock: Clock,
        write_wait: float,
    ) -> None:
        self._client = client
        self._views = views
        self._reading = reading
        self._core = core
        self._clock = clock
        self._write_wait = write_wait

    def all(self, principal: Principal) -> list[dict[str, Any]]:
        """Answer the records of all secrets, by name."""
        held = sorted(
            self._views.secrets_of(principal.namespace),
            key=lambda one: (one.spec.name, one.spec.repo or ""),
        )
        return [self._record(principal, one) for one in held if not going(one)]

    def one(self, principal: Principal, name: str) -> dict[str, Any]:
        """Answer the record of a secret.

        Raises
        ------
        ApiError
            404 when there is none.
        """
        return self._record(principal, self._named(principal, name))

    async def create(self, principal: Principal, body: SecretCreate) -> dict[str, Any]:
        """Create a secret with its value.

        Raises
        ------
        ApiError
            409 when the name is taken; 400 when the value cannot stand where the name puts it.
        KubeError
            When the cluster refuses or does not answer.
        """
        fits(body.name, body.value)
        others = self._views.secrets_of(principal.namespace)
        name = secret_object_name(body.name)
        for other in others:
            if other.spec.name == body.name and other.metadata.name != name:
                raise taken(body.name)
        secret = Secret(
            metadata=ObjectMeta(name=name, namespace=principal.namespace),
            spec=SecretSpec(
                name=body.name,
                repo=body.repo,
                secret_ref=SecretRef(name=secret_value_name(name), key=VALUE_KEY),
            ),
        )
        try:
            item = await self._client.create(of(Secret), secret.manifest())
        except AlreadyExists as error:
            item = await self._interrupted(principal, secret, error)
        made = Secret.read(item)
        values = {VALUE_KEY: body.value.encode()}
        if not await self._core.make(made, made.spec.secret_ref.name, values):
            raise taken(body.name)
        await self._seen(item)
        return self._record(principal, made)

    async def _interrupted(
        self, principal: Principal, secret: Secret, error: AlreadyExists
    ) -> dict[str, Any]:
        """Answer the object of an earlier try of the same create that ended before its value.

        Raises
        ------
        ApiError
            409 when it is another one; one that has its value is told apart by the core Secret.
        """
        name = secret.metadata.name
        try:
            item = await self._client.get(of(Secret), name, principal.namespace)
        except NotFound:
            raise taken(secret.spec.name) from error
        present = Secret.read(item)
        if present.spec != secret.spec or going(present):
            raise taken(secret.spec.name) from error
        return item

    async def update(self, principal: Principal, name: str, value: str) -> dict[str, Any]:
        """Write a new value; containers get it at their next deploy.

        Raises
        ------
        ApiError
            404 when there is none; 409 when a GitOps manager owns the value.
        KubeError
            When the cluster refuses or does not answer.
        """
        secret = self._named(principal, name)
        fits(name, value)
        reference = secret.spec.secret_ref
        await self._core.write(secret, reference.name, {reference.key: value.encode()})
        now = self._clock().isoformat(timespec="seconds").replace("+00:00", "Z")
        patch = {"metadata": {"uid": secret.metadata.uid, "annotations": {VALUE_ANNOTATION: now}}}
        try:
            item = await self._client.merge_patch(
                of(Secret), secret.metadata.name, patch, principal.namespace
            )
        except NotFound as error:
            raise not_found("secret") from error
        await self._seen(item)
        return self._record(principal, Secret.read(item))

    async def delete(self, principal: Principal, name: str) -> None:
        """Delete a secret that no container uses, and its value where the facade made it.

        Raises
        ------
        ApiError
            404 when there is none; 409 that names the containers which use it.
        KubeError
            When the cluster refuses or does not answer.
        """
        secret = self._named(principal, name)
        held = await self._reading.list_now(principal.namespace)
        users = bound_by(secret, (one.container for one in held))
        if users:
            raise in_use(f"secret {name}", users)
        meta = secret.metadata
        await self._client.delete(of(Secret), meta.name, principal.namespace, uid=meta.uid)
        await self._core.drop(secret, secret.spec.secret_ref.name)
        await self._views.secrets.until(
            lambda: self._views.secrets.by_uid(meta.uid) is None, within=self._write_wait
        )

    def _named(self, principal: Principal, name: str) -> Secret:
        """Answer the secret of a name.

        Raises
        ------
        ApiError
            404 when there is none, 409 when several repositories have one of that name.
        """
        found = [
            one
            for one in self._views.secrets_of(principal.namespace)
            if one.spec.name == name and not going(one)
        ]
        if not found:
            raise not_found("secret")
        if len(found) > 1:
            repos = ", ".join(sorted(one.spec.repo or "the organization" for one in found))
            raise conflict(f"several secrets have the name {name} ({repos}); use kubectl get csec")
        return found[0]

    def _record(self, principal: Principal, secret: Secret) -> dict[str, Any]:
        held = self._views.containers_of(principal.namespace)
        return secret_record(secret, bound_by(secret, (one.container for one in held)))

    async def _seen(self, item: dict[str, Any]) -> None:
        version = item["metadata"]["resourceVersion"]
        await self._views.secrets.reached(version, within=self._write_wait)


def going(secret: Secret) -> bool:
    """Tell whether a secret was deleted and only waits for its end."""
    return secret.metadata.deletion_timestamp is not None


def fits(name: str, value: str) -> None:
    """Refuse a value that cannot stand in an environment.

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


def taken(name: str) -> ApiError:
    """409: the name is taken."""
    return conflict(
        f"name: a secret named {name} exists already; PUT /api/secrets/{name} changes its value"
    )
