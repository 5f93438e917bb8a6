"""Idempotent creates: whether an object was created by an earlier attempt of the same request.

The digest of the request is in an annotation of the object, or in the row of an API key. A client
that got no response, or that sends an idempotency key (the header Idempotency-Key), gets the object
of its earlier attempt; for any other client the name is taken.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import msgspec

from cloister_api.auth.authenticator import Principal
from cloister_api.ledger.audit import AuditTrail
from cloister_clients.clock import Clock
from cloister_clients.kube import KubeClient, NotFound
from cloister_clients.kube.kinds import of
from cloister_crds.kinds.meta import GROUP, Record

__all__ = ["CREATED", "CreateRequest", "IdempotentRequests", "is_repeatable"]

T = TypeVar("T", bound=Record)

REQUEST_ANNOTATION = f"{GROUP}/create-request"
"""Digest of the request that created an object, by which a retry finds it."""
CREATED = "201"
"""Result in the audit trail of a create that was acknowledged."""
RETRIED_WITHIN = timedelta(days=1)
"""For how long a create without an Idempotency-Key may be a retry. The audit trail, which says
whether it was acknowledged, is kept for longer."""


@dataclass(frozen=True, slots=True)
class CreateRequest:
    """Identity of a request for a create."""

    digest: str
    """Digest that retries of the request share, and no other request has."""
    retry_key: str | None
    """Idempotency-Key of the client; None = none was sent."""
    action: str
    """Action of the create in the audit trail, such as ``secret.create``."""

    @classmethod
    def of(
        cls, principal: Principal, body: Mapping[str, Any], retry_key: str | None, action: str
    ) -> "CreateRequest":
        """Compute the identity of a request.

        Parameters
        ----------
        principal
            Who sends the request.
        body
            The body as JSON data, without what is secret in it.
        retry_key
            Idempotency-Key of the client; None = none was sent.
        action
            Action of the create in the audit trail.
        """
        content = msgspec.json.encode(body, order="deterministic")
        text = "\n".join((principal.caller, retry_key or "")).encode()
        return cls(hashlib.sha256(text + b"\n" + content).hexdigest(), retry_key, action)

    @property
    def annotations(self) -> dict[str, str]:
        """Annotations of the object that this request creates."""
        return {REQUEST_ANNOTATION: self.digest}


class IdempotentRequests:
    """Recognizes retries of creates."""

    def __init__(self, client: KubeClient, audit: AuditTrail, clock: Clock) -> None:
        self._client = client
        self._audit = audit
        self._clock = clock

    async def was_created_by(self, present: Record, request: CreateRequest) -> bool:
        """Return whether an object was created by an earlier attempt of a request.

        Parameters
        ----------
        present
            The object.
        request
            The request.
        """
        if present.metadata.annotations.get(REQUEST_ANNOTATION) != request.digest:
            return False
        now = self._clock()
        age = now - (present.metadata.creation_timestamp or now)
        return await is_repeatable(self._audit, request, present.identifier, age)

    async def earlier(
        self, kind: type[T], name: str, namespace: str, request: CreateRequest
    ) -> T | None:
        """Return the object of a name if an earlier attempt of a request created it; else None.

        Raises
        ------
        KubeError
            When the cluster does not respond.
        """
        try:
            present = kind.read(await self._client.get(of(kind), name, namespace))
        except NotFound:
            return None
        if present.metadata.deletion_timestamp is not None:
            return None
        if not await self.was_created_by(present, request):
            return None
        return present


async def is_repeatable(
    audit: AuditTrail, request: CreateRequest, target: str, age: timedelta
) -> bool:
    """Return whether a request may get the object of an earlier attempt.

    Parameters
    ----------
    audit
        Records which attempts were acknowledged.
    request
        The request: with an Idempotency-Key always, without one until one was acknowledged.
    target
        Identifier of the created object.
    age
        How long ago it was created.
    """
    if request.retry_key is not None:
        return True
    if age > RETRIED_WITHIN:
        return False
    return not await audit.contains(action=request.action, target=target, result=CREATED)
