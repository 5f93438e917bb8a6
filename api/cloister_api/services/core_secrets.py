"""Core Secrets that the facade creates for values, next to the object that references them.

Values go from the request into a core Secret and nowhere else: no log, event, error or audit row.
The value is written first, into a core Secret without an owner; then the object that references it
is created, so that it is never visible without its value; then it becomes the owner of the core
Secret, which is garbage-collected with it. An interrupted create leaves an orphaned core Secret,
which the operator deletes (`cloister_operator.reconcile.orphans`).
"""

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from contextlib import suppress
from hmac import compare_digest
from typing import Any, TypeVar

from cloister_api.cache import owners_of
from cloister_api.errors import conflict
from cloister_api.services.infrastructure import Infrastructure
from cloister_clients.kube import (
    AlreadyExists,
    Conflict,
    KubeError,
    NotFound,
    Unavailable,
)
from cloister_clients.kube.kinds import SECRET, of
from cloister_crds.kinds import RegistryCredential, Secret
from cloister_crds.kinds.meta import Resource
from cloister_crds.names import MANAGED_BY, MANAGED_BY_LABEL, VALUE_LABEL

T = TypeVar("T", Secret, RegistryCredential)

OPAQUE = "Opaque"
"""Type of a core Secret without a format of its own."""
ATTEMPTS = 3
"""How often a write is retried after a conflict with a concurrent one."""


class CoreSecretType:
    """What a core Secret is for, and its type."""

    def __init__(self, purpose: str, kind: str = OPAQUE) -> None:
        self.purpose = purpose
        """Value of its label."""
        self.kind = kind
        """Its type."""


class CoreSecrets:
    """The core Secrets of all organizations, as far as the facade writes them."""

    def __init__(self, base: Infrastructure) -> None:
        self._client = base.client
        self._gitops = frozenset(base.settings.gitops_managers)

    async def create_with_owner(
        self, owner: T, values: Mapping[str, bytes], form: CoreSecretType
    ) -> T | None:
        """Create a core Secret, then the object that references it, then make that its owner.

        Parameters
        ----------
        owner
            The object, which does not exist yet.

        Returns
        -------
        Secret | RegistryCredential | None
            The object, or the one of its name that was created concurrently and references this
            very value; None when the name or the value is another one's, and then nothing is left.

        Raises
        ------
        ApiError
            409 when another program's core Secret has the name, or others keep writing.
        KubeError
            When the cluster refuses or does not respond. If the object may exist nevertheless, the
            value stays, and the operator deletes it if it is an orphan.
        """
        namespace, name = owner.metadata.namespace or "", owner.spec.secret_ref.name
        uid = await self.create_ownerless(namespace, name, values, form)
        if uid is None:
            return None
        try:
            made = await self._create_owner(owner)
        except Unavailable:
            raise
        except KubeError:
            await self._take_back(namespace, name, uid)
            raise
        if made is None:
            await self._take_back(namespace, name, uid)
            return None
        await self.adopt(made, name, uid)
        return made

    async def _create_owner(self, owner: T) -> T | None:
        """Create an object, or return the existing one that references the same value."""
        kind = type(owner)
        try:
            return kind.read(await self._client.create(of(kind), owner.manifest()))
        except AlreadyExists:
            meta = owner.metadata
            try:
                found = kind.read(await self._client.get(of(kind), meta.name, meta.namespace))
            except NotFound:
                return None
            return found if found.spec.secret_ref == owner.spec.secret_ref else None

    async def create_ownerless(
        self, namespace: str, name: str, values: Mapping[str, bytes], form: CoreSecretType
    ) -> str | None:
        """Create the core Secret of an object that does not exist yet.

        An orphan of an earlier attempt is replaced by a new object, so that an operator that is
        about to delete the orphan cannot delete the new one.

        Returns
        -------
        str | None
            Its uid; None when there is one that belongs to an object.

        Raises
        ------
        ApiError
            409 when another program's core Secret has the name, or others keep writing.
        KubeError
            When the cluster refuses or does not respond.
        """
        for _ in range(ATTEMPTS):
            try:
                made = await self._client.create(SECRET, body_of(name, values, form), namespace)
            except AlreadyExists:
                present = await self._present(namespace, name)
                if present is None:
                    continue
                refuse_foreign(present)
                if owned_by(present["metadata"]):
                    return None
                await self._delete(present)
            else:
                return str(made["metadata"]["uid"])
        raise conflict("the value is being changed by others; try again")

    async def adopt(self, owner: Resource, name: str, uid: str) -> None:
        """Make an object the owner of the core Secret that it references.

        Raises
        ------
        KubeError
            When the cluster refuses or does not respond.
        """
        meta = {"uid": uid, "ownerReferences": [owner.owner_reference()]}
        # Gone or replaced: a concurrent write of the same value was faster.
        with suppress(NotFound, Conflict):
            await self._client.merge_patch(
                SECRET, name, {"metadata": meta}, owner.metadata.namespace
            )

    async def adopt_equal(self, owner: Resource, name: str, values: Mapping[str, bytes]) -> bool:
        """Complete an interrupted create; return whether it had these very values.

        Raises
        ------
        KubeError
            When the cluster refuses or does not respond.
        """
        present = await self._present(owner.metadata.namespace, name)
        if present is None:
            return False
        data = present.get("data") or {}
        equal = data.keys() == values.keys() and all(
            compare_digest(b64decode(data[key]), value) for key, value in values.items()
        )
        if equal and not owned_by(present["metadata"]):
            await self.adopt(owner, name, present["metadata"]["uid"])
        return equal

    async def write(
        self, owner: Resource, name: str, values: Mapping[str, bytes], form: CoreSecretType
    ) -> None:
        """Write values into the core Secret of an object, which is created if it is missing.

        Raises
        ------
        ApiError
            409 when a GitOps manager owns the values.
        KubeError
            When the cluster refuses or does not respond.
        """
        namespace = owner.metadata.namespace
        for _ in range(ATTEMPTS):
            present = await self._present(namespace, name)
            if present is None:
                body = body_of(name, values, form)
                body["metadata"]["ownerReferences"] = [owner.owner_reference()]
                with suppress(AlreadyExists):
                    await self._client.create(SECRET, body, namespace)
                    return
                continue
            for manager in sorted(self._gitops & managers_of(present, values)):
                raise conflict(
                    f"{manager} manages the core Secret {name} that holds this value; make the "
                    "change in its repository"
                )
            meta: dict[str, Any] = {"uid": present["metadata"]["uid"]}
            if VALUE_LABEL in labels_of(present) and not owned_by(present["metadata"]):
                # The create was interrupted before it made the object its owner.
                meta["ownerReferences"] = [owner.owner_reference()]
            patch: dict[str, Any] = {"metadata": meta, "data": encoded(values)}
            with suppress(NotFound, Conflict):
                await self._client.merge_patch(SECRET, name, patch, namespace)
                return
        raise conflict("the value is being changed by others; try again")

    async def delete_orphan(self, namespace: str, name: str) -> None:
        """Delete the core Secret that a deleted object left behind.

        Raises
        ------
        ApiError
            409 when another program's core Secret has the name.
        KubeError
            When the cluster refuses or does not respond.
        """
        present = await self._present(namespace, name)
        if present is not None:
            refuse_foreign(present)
            await self._delete(present)

    async def delete_owned(self, owner: Resource, name: str) -> None:
        """Delete the core Secret of a deleted object, if the facade created it for that.

        Raises
        ------
        KubeError
            When the cluster refuses or does not respond; the garbage collector does it then.
        """
        present = await self._present(owner.metadata.namespace, name)
        if present is None:
            return
        meta = present["metadata"]
        holder = owned_by(meta)
        if VALUE_LABEL in labels_of(present) and holder in ("", owner.metadata.uid):
            await self._delete(present)

    async def _present(self, namespace: str | None, name: str) -> dict[str, Any] | None:
        try:
            return await self._client.get(SECRET, name, namespace)
        except NotFound:
            return None

    async def _delete(self, present: Mapping[str, Any]) -> None:
        meta = present["metadata"]
        await self._take_back(meta["namespace"], meta["name"], meta["uid"])

    async def _take_back(self, namespace: str, name: str, uid: str) -> None:
        with suppress(NotFound, Conflict):
            await self._client.delete(SECRET, name, namespace, uid=uid)


def body_of(name: str, values: Mapping[str, bytes], form: CoreSecretType) -> dict[str, Any]:
    """Build a core Secret as it is sent to the server."""
    labels = {MANAGED_BY_LABEL: MANAGED_BY, VALUE_LABEL: form.purpose}
    return {
        "metadata": {"name": name, "labels": labels},
        "type": form.kind,
        "data": encoded(values),
    }


def refuse_foreign(present: Mapping[str, Any]) -> None:
    """Refuse to change what another program created.

    Raises
    ------
    ApiError
        409.
    """
    if labels_of(present).get(MANAGED_BY_LABEL) != MANAGED_BY:
        name = present["metadata"]["name"]
        raise conflict(
            f"the namespace has a core Secret {name} of another program; ask the administrator"
        )


def labels_of(present: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the labels of an object."""
    return present["metadata"].get("labels") or {}


def encoded(values: Mapping[str, bytes]) -> dict[str, str]:
    """Encode values as the API server expects them."""
    return {key: b64encode(value).decode() for key, value in values.items()}


def owned_by(meta: Mapping[str, Any]) -> str:
    """Return the uid of the object that a core Secret belongs to; empty if there is none."""
    owners = meta.get("ownerReferences") or ()
    return next((str(each["uid"]) for each in owners if each.get("controller")), "")


def managers_of(present: Mapping[str, Any], keys: Iterable[str]) -> frozenset[str]:
    """Return the field managers of values of a core Secret, in ``data`` or ``stringData``."""
    owners = [owners_of(present, part) for part in ("data", "stringData")]
    return frozenset().union(*(each.get(key, ()) for each in owners for key in keys))
