"""Preconditions (If-Match; RFC 9110, 13.1.1) and idempotent creates."""

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

import msgspec

from cloister_api.auth.authenticator import Principal
from cloister_api.errors import changed_since, not_found
from cloister_api.ledger.audit import AuditTrail
from cloister_api.schemas.forms import ResponseBody
from cloister_api.services.infrastructure import Infrastructure
from cloister_clients.kube import Conflict, KubeClient, NotFound
from cloister_clients.kube.kinds import of
from cloister_crds.kinds.meta import GROUP, Record, Resource

T = TypeVar("T", bound=Resource)
Body = TypeVar("Body", bound=ResponseBody)

CHANGE_ANNOTATION = f"{GROUP}/last-change"
"""Token of the last change that consists of several writes."""


@dataclass(frozen=True, slots=True)
class VersionedRecord(Generic[Body]):
    """A record and its version."""

    record: Body
    """The record."""
    version: str
    """resourceVersion of its object: the ETag."""


def has_version(version: str, match: str | None) -> bool:
    """Return whether a version satisfies If-Match.

    Parameters
    ----------
    match
        The header: ``*``, or entity tags; a weak one matches nothing. None means any version.
    """
    if match is None or match.strip() == "*":
        return True
    return f'"{version}"' in (tag.strip() for tag in match.split(","))


def names_version(match: str | None) -> bool:
    """Return whether If-Match names versions, so that no other may be changed."""
    return match is not None and match.strip() != "*"


async def agreed(client: KubeClient, present: T, match: str | None, what: str) -> T:
    """Return an object in a version that satisfies If-Match.

    Parameters
    ----------
    present
        The object as the facade's cache has it, which may be stale.
    match
        The header If-Match; None means any version.

    Raises
    ------
    ApiError
        412 when it has none of the versions, 404 when it is gone.
    KubeError
        When the cluster does not respond.
    """
    if not names_version(match):
        return present
    meta, kind = present.metadata, type(present)
    try:
        live = kind.read(await client.get(of(kind), meta.name, meta.namespace))
    except NotFound as error:
        raise not_found(what) from error
    if live.metadata.uid != meta.uid or not has_version(live.metadata.resource_version, match):
        raise changed_since(what)
    return live


def precondition(present: Resource, match: str | None) -> dict[str, str]:
    """Return the metadata of a patch: this very object, and this version if If-Match names one.

    Parameters
    ----------
    present
        The object, from `agreed`.
    match
        The header If-Match; None means any version.
    """
    meta = {"uid": present.metadata.uid}
    if names_version(match):
        meta["resourceVersion"] = present.metadata.resource_version
    return meta


def change_token() -> dict[str, str]:
    """Return the annotation with which a change of a value is one of its object too.

    Times of changes are whole seconds: without it the second of two changes within one would leave
    the version as it was, and with it every client's ETag valid.
    """
    return {CHANGE_ANNOTATION: secrets.token_hex(8)}


async def claim_version(
    client: KubeClient, present: Resource, match: str | None, what: str
) -> None:
    """Consume the version that If-Match names, before a change that consists of several writes.

    Of two clients with the same ETag only one gets past this. Nothing is done without a version.

    Raises
    ------
    ApiError
        412 when it has another version by now, 404 when it is gone.
    KubeError
        When the cluster refuses or does not respond.
    """
    if not names_version(match):
        return
    patch = {"metadata": {**precondition(present, match), "annotations": change_token()}}
    await patch_agreed(client, present, patch, match, what)


async def patch_agreed(
    client: KubeClient, present: Resource, patch: dict[str, Any], match: str | None, what: str
) -> dict[str, Any]:
    """Patch an object, only in the version of If-Match if it names one.

    Parameters
    ----------
    present
        The object, from `agreed`.
    patch
        The changed keys, with `precondition`.
    match
        The header If-Match; None means any version.

    Returns
    -------
    dict[str, Any]
        The object after it.

    Raises
    ------
    ApiError
        412 when it has another version by now, 404 when it is gone.
    KubeError
        When the cluster refuses or does not respond.
    """
    meta = present.metadata
    try:
        return await client.merge_patch(of(type(present)), meta.name, patch, meta.namespace)
    except NotFound as error:
        raise not_found(what) from error
    except Conflict as error:
        # Without a version the conflict is about the uid: the object was replaced, so it is gone.
        raise (changed_since(what) if names_version(match) else not_found(what)) from error


async def delete_agreed(
    client: KubeClient, present: Resource, match: str | None, what: str
) -> None:
    """Delete an object, only in the version of If-Match if it names one.

    Raises
    ------
    ApiError
        412 when it has another version by now, 404 when it is gone.
    KubeError
        When the cluster refuses or does not respond.
    """
    meta = present.metadata
    version = meta.resource_version if names_version(match) else None
    try:
        await client.delete(
            of(type(present)), meta.name, meta.namespace, uid=meta.uid, resource_version=version
        )
    except NotFound as error:
        raise not_found(what) from error
    except Conflict as error:
        # Without a version the conflict is about the uid: the object was replaced, so it is gone.
        raise (changed_since(what) if version else not_found(what)) from error


R = TypeVar("R", bound=Record)

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
    """Idempotency-Key of the client; None if none was sent."""
    action: str
    """Action of the create in the audit trail, such as ``secret.create``."""

    @classmethod
    def of(
        cls, principal: Principal, body: Mapping[str, Any], retry_key: str | None, action: str
    ) -> "CreateRequest":
        """Compute the identity of a request.

        Parameters
        ----------
        body
            The body as JSON data, without what is secret in it.
        retry_key
            Idempotency-Key of the client; None if none was sent.
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

    def __init__(self, base: Infrastructure) -> None:
        self._client, self._audit, self._clock = base.client, base.audit, base.clock

    async def was_created_by(self, present: Record, request: CreateRequest) -> bool:
        """Return whether an object was created by an earlier attempt of a request."""
        if present.metadata.annotations.get(REQUEST_ANNOTATION) != request.digest:
            return False
        now = self._clock()
        age = now - (present.metadata.creation_timestamp or now)
        return await is_repeatable(self._audit, request, present.identifier, age)

    async def earlier(
        self, kind: type[R], name: str, namespace: str, request: CreateRequest
    ) -> R | None:
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
    request
        The request: with an Idempotency-Key always, without one until one was acknowledged.
    """
    if request.retry_key is not None:
        return True
    if age > RETRIED_WITHIN:
        return False
    return not await audit.contains(action=request.action, target=target, result=CREATED)
