"""Creates that are sent again: whether an object is what an earlier try of the same request made.

The digest of the request stands in an annotation of the object, or in the row of an API key. A
client that got no answer, or one that says so with an Idempotency-Key, is answered what it made;
anybody else that the name is taken.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from cloister_api.auth.authenticator import Principal
from cloister_api.ledger.audit import AuditTrail
from cloister_clients.kube import KubeClient, NotFound
from cloister_clients.kube.kinds import of
from cloister_crds.kinds.meta import GROUP, ObjectMeta, Resource

__all__ = ["CREATED", "CreateRequest", "IdempotentRequests", "is_repeatable"]

T = TypeVar("T", bound=Resource)

REQUEST_ANNOTATION = f"{GROUP}/create-request"
"""Digest of the request that made an object; a repetition of it finds its own work."""
CREATED = "201"
"""Result in the audit trail of a create that was answered."""


@dataclass(frozen=True, slots=True)
class CreateRequest:
    """A request for a create, as far as repetitions of it are the same."""

    digest: str
    """What a repetition of the same request has in common with it, and no other has."""
    retry_key: str | None
    """Idempotency-Key of the client; None = none was sent."""
    action: str
    """Word of the audit trail for the create, such as ``secret.create``."""

    @classmethod
    def of(
        cls, principal: Principal, body: Mapping[str, Any], retry_key: str | None, action: str
    ) -> "CreateRequest":
        """Tell a request from all others.

        Parameters
        ----------
        principal
            Who sends the request.
        body
            The body as JSON data, without what is secret in it.
        retry_key
            Idempotency-Key of the client; None = none was sent.
        action
            Word of the audit trail for the create.
        """
        content = msgspec.json.encode(body, order="deterministic")
        text = "\n".join((principal.key_id, retry_key or "")).encode()
        return cls(hashlib.sha256(text + b"\n" + content).hexdigest(), retry_key, action)

    @property
    def annotations(self) -> dict[str, str]:
        """What the object carries that this request makes."""
        return {REQUEST_ANNOTATION: self.digest}


class IdempotentRequests:
    """Tells creates that are sent again from others."""

    def __init__(self, client: KubeClient, audit: AuditTrail) -> None:
        self._client = client
        self._audit = audit

    async def made(self, meta: ObjectMeta, request: CreateRequest) -> bool:
        """Return whether an object is what an earlier try of a request made.

        Parameters
        ----------
        meta
            Metadata of the object.
        request
            The request.
        """
        if meta.annotations.get(REQUEST_ANNOTATION) != request.digest:
            return False
        return await is_repeatable(self._audit, request, meta.identifier)

    async def earlier(
        self, kind: type[T], name: str, namespace: str, request: CreateRequest
    ) -> T | None:
        """Return the object of a name if an earlier try of a request made it; None = it is not so.

        Raises
        ------
        KubeError
            When the cluster does not respond.
        """
        try:
            present = kind.read(await self._client.get(of(kind), name, namespace))
        except NotFound:
            return None
        meta = present.metadata
        if meta.deletion_timestamp is not None or not await self.made(meta, request):
            return None
        return present


async def is_repeatable(audit: AuditTrail, request: CreateRequest, target: str) -> bool:
    """Return whether a request may be answered what an earlier try of the same one made.

    Parameters
    ----------
    audit
        Knows which tries were answered.
    request
        The request. With an Idempotency-Key it may always, without one while none was answered.
    target
        Identifier of what was made.
    """
    if request.retry_key is not None:
        return True
    return not await audit.contains(action=request.action, target=target, result=CREATED)
