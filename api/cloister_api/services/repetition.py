"""Creates that are sent again: whether an object is what an earlier try of the same request made.

The digest of the request stands in an annotation of the object. A client that got no answer, or one
that says so with an Idempotency-Key, is answered what it made; anybody else that the name is taken.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from cloister_api.ledger.audit import AuditTrail
from cloister_api.principal import Principal
from cloister_crds.kinds.meta import GROUP, ObjectMeta

__all__ = ["CREATED", "REQUEST_ANNOTATION", "Repetitions", "request_digest"]

REQUEST_ANNOTATION = f"{GROUP}/create-request"
"""Digest of the request that made an object; a repetition of it finds its own work."""
CREATED = "201"
"""Result in the audit trail of a create that was answered."""


class Repetitions:
    """Tells creates that are sent again from others."""

    def __init__(self, audit: AuditTrail) -> None:
        self._audit = audit

    async def made(
        self, meta: ObjectMeta, digest: str, retry_key: str | None, *, action: str, target: str
    ) -> bool:
        """Tell whether an object is what an earlier try of a request made.

        Parameters
        ----------
        meta
            Metadata of the object.
        digest
            Digest of the request (`request_digest`).
        retry_key
            Idempotency-Key of the client; None = none was sent, and then only a try that was not
            answered counts.
        action
            Word of the audit trail for the create, such as ``secret.create``.
        target
            Identifier of the object.
        """
        if meta.annotations.get(REQUEST_ANNOTATION) != digest:
            return False
        if retry_key is not None:
            return True
        return not await self._audit.contains(action=action, target=target, result=CREATED)


def request_digest(principal: Principal, body: Mapping[str, Any], retry_key: str | None) -> str:
    """Answer what a repetition of the same request has in common with it, and no other has.

    Parameters
    ----------
    principal
        Who asks.
    body
        The body as JSON data, without what is secret in it.
    retry_key
        Idempotency-Key of the client; None = none was sent.
    """
    content = msgspec.json.encode(body, order="deterministic")
    text = "\n".join((principal.key_id, retry_key or "")).encode()
    return hashlib.sha256(text + b"\n" + content).hexdigest()
