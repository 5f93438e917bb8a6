"""Core Secrets that the facade makes for values it was given: beside the object that names them.

Values go from the request into a core Secret and nowhere else: no log, event, error or audit row.
The object that names the value is made first and owns the core Secret, so that one goes with the
other; a create that was interrupted between the two is completed by its repetition.
"""

from base64 import b64encode
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from cloister_api.errors import conflict
from cloister_api.views import owners_of
from cloister_clients.kube import AlreadyExists, Conflict, KubeClient, NotFound
from cloister_clients.kube.kinds import SECRET
from cloister_crds.kinds.meta import Resource
from cloister_crds.names import MANAGED_BY, MANAGED_BY_LABEL

__all__ = ["CoreSecrets"]

OPAQUE = "Opaque"
"""Type of a core Secret without a form of its own."""


class CoreSecrets:
    """The core Secrets of all organizations, as far as the facade writes them."""

    def __init__(self, client: KubeClient, gitops_managers: Iterable[str]) -> None:
        self._client = client
        self._gitops = frozenset(gitops_managers)

    async def make(
        self, owner: Resource, name: str, values: Mapping[str, bytes], *, kind: str = OPAQUE
    ) -> bool:
        """Create the core Secret of a new object.

        Parameters
        ----------
        owner
            The object that names it; it goes with it.
        name
            Name of the core Secret.
        values
            Values by key.
        kind
            Type of the core Secret.

        Returns
        -------
        bool
            False when the object has one already: another request was faster.

        Raises
        ------
        ApiError
            409 when another program's core Secret has the name.
        KubeError
            When the cluster refuses or does not answer.
        """
        namespace = owner.metadata.namespace
        body = {
            "metadata": {
                "name": name,
                "labels": {MANAGED_BY_LABEL: MANAGED_BY},
                "ownerReferences": [owner.owner_reference()],
            },
            "type": kind,
            "data": encoded(values),
        }
        for _ in range(2):
            try:
                await self._client.create(SECRET, body, namespace)
            except AlreadyExists:
                if not await self._clear(owner, name):
                    return False
            else:
                return True
        return False

    async def _clear(self, owner: Resource, name: str) -> bool:
        """Take away what an earlier object of the name left; False = it is this object's own."""
        namespace = owner.metadata.namespace
        try:
            present = await self._client.get(SECRET, name, namespace)
        except NotFound:
            return True
        meta = present["metadata"]
        if owned_by(meta) == owner.metadata.uid:
            return False
        if meta.get("labels", {}).get(MANAGED_BY_LABEL) != MANAGED_BY:
            raise conflict(
                f"the namespace has a core Secret {name} of another program; ask the administrator"
            )
        with suppress(NotFound, Conflict):
            await self._client.delete(SECRET, name, namespace, uid=meta["uid"])
        return True

    async def write(
        self, owner: Resource, name: str, values: Mapping[str, bytes], *, kind: str = OPAQUE
    ) -> None:
        """Write values into the core Secret of an object, which is made where it is missing.

        Raises
        ------
        ApiError
            409 when a GitOps manager owns the values.
        KubeError
            When the cluster refuses or does not answer.
        """
        namespace = owner.metadata.namespace
        for _ in range(3):
            try:
                present = await self._client.get(SECRET, name, namespace)
            except NotFound:
                if await self.make(owner, name, values, kind=kind):
                    return
                continue
            for manager in sorted(self._gitops & managers_of(present, values)):
                raise conflict(
                    f"{manager} manages the core Secret {name} that holds this value; make the "
                    "change in its repository"
                )
            meta = {"uid": present["metadata"]["uid"]}
            patch: dict[str, Any] = {"metadata": meta, "data": encoded(values)}
            with suppress(NotFound, Conflict):
                await self._client.merge_patch(SECRET, name, patch, namespace)
                return
        raise conflict("the value is being changed by others; try again")

    async def drop(self, owner: Resource, name: str) -> None:
        """Delete the core Secret of an object that was deleted, where the object owned it.

        Raises
        ------
        KubeError
            When the cluster refuses or does not answer; the garbage collector then does it.
        """
        namespace = owner.metadata.namespace
        with suppress(NotFound, Conflict):
            present = await self._client.get(SECRET, name, namespace)
            if owned_by(present["metadata"]) == owner.metadata.uid:
                uid = present["metadata"]["uid"]
                await self._client.delete(SECRET, name, namespace, uid=uid)


def encoded(values: Mapping[str, bytes]) -> dict[str, str]:
    """Write values as the API server takes them."""
    return {key: b64encode(value).decode() for key, value in values.items()}


def owned_by(meta: Mapping[str, Any]) -> str:
    """Answer the uid of the object that a core Secret belongs to; empty = none."""
    owners = meta.get("ownerReferences") or ()
    return next((str(each["uid"]) for each in owners if each.get("controller")), "")


def managers_of(present: Mapping[str, Any], keys: Iterable[str]) -> frozenset[str]:
    """Answer who manages values of a core Secret, in either of the two ways to write them."""
    owners = [owners_of(present, part) for part in ("data", "stringData")]
    return frozenset().union(*(each.get(key, ()) for each in owners for key in keys))
