"""Regular API keys: list, create, change, delete (spec 9, 25).

The caller is the user who created the admin key: keys of that user are shown in full, those of
others masked. Any administrator changes and deletes any key of the organization, by its full value
or by its number, which all of them see.
"""

import re
from typing import Any

from cloister_api.auth.authenticator import Principal
from cloister_api.errors import ApiError, bad_request, not_found
from cloister_api.ledger.keys.api_keys import ApiKey, ApiKeys
from cloister_api.ledger.keys.key_material import REGULAR_PREFIX, KeySealer, masked, well_formed
from cloister_api.records.container import moment_text
from cloister_api.schemas.accounts import ApiKeyResponse
from cloister_api.schemas.keys import (
    ChangeApiKeyRequest,
    CreateApiKeyRequest,
    UpdateApiKeyRequest,
    compact,
)
from cloister_api.services.infrastructure import Infrastructure
from cloister_api.services.preconditions import CreateRequest
from cloister_api.services.quotas import limits_of, require_place
from cloister_clients.clock import utc_text
from cloister_crds.lifecycle.admission.limits import billing_of

NUMBER = re.compile("[1-9][0-9]{0,17}")
"""Numbers of keys, all of which the database can compare."""


class ApiKeyService:
    """Management of regular keys by administrators."""

    def __init__(self, base: Infrastructure, material: KeySealer) -> None:
        self._keys = ApiKeys(base.engine, material)
        self._material = material
        self._clock = base.clock
        self._default_limits = base.installation.default_limits

    async def all(
        self, principal: Principal, *, after: int = 0, limit: int | None = None
    ) -> list[ApiKeyResponse]:
        """Return the records of keys of the organization, oldest first.

        Parameters
        ----------
        limit
            Keys at most; None means all.

        Raises
        ------
        MaterialError
            When values were sealed with other key material.
        """
        organization_id = principal.organization_id
        listed = await self._keys.of_organization(organization_id, after=after, limit=limit)
        numbers = [key.id for key in listed]
        own = await self._keys.values(organization_id, principal.user, numbers)
        return [key_record(key, own.get(key.id)) for key in listed]

    async def create(
        self, principal: Principal, body: CreateApiKeyRequest, retry_key: str | None
    ) -> tuple[int, ApiKeyResponse]:
        """Create a key; with an Idempotency-Key once, without one at each call.

        Parameters
        ----------
        retry_key
            Idempotency-Key of the client; None if none was sent.

        Returns
        -------
        tuple
            Its number, and its record with the full value.

        Raises
        ------
        ApiError
            402 without token billing, 400 when it would be expired, 403 when the limit is reached.
        """
        metadata = compact(body.metadata)
        content = {**body.model_dump(mode="json", exclude={"metadata"}), "metadata": metadata}
        digest = None
        # A retry is recognised before limits and billing, which may have changed since.
        if retry_key is not None:
            digest = CreateRequest.of(principal, content, retry_key, "api_key.create").digest
            earlier = await self._keys.made_by(digest, principal.organization_id)
            if earlier is not None:
                key, value = earlier
                return key.id, key_record(key, value)
        if not billing_of(principal.organization).token_billing:
            raise ApiError(
                402,
                "PAYMENT_REQUIRED",
                "the organization has no active token billing; subscribe, then try again",
            )
        now = self._clock()
        if body.expires_at is not None and body.expires_at <= now:
            raise bad_request("expires_at", "expires_at is in the past; name a later time")
        used = await self._keys.count(principal.organization_id)
        require_place("API keys", used, limits_of(principal, self._default_limits).api_keys)
        key, value = await self._keys.create(
            organization=principal.slug,
            organization_id=principal.organization_id,
            user=principal.user,
            name=body.name,
            now=now,
            expires_at=body.expires_at,
            max_tokens=body.max_tokens or None,
            metadata=metadata,
            request=digest,
        )
        return key.id, key_record(key, value)

    async def find(self, principal: Principal, value: str) -> ApiKey:
        """Return the key of the organization with a full value.

        Raises
        ------
        ApiError
            404 when it is masked, deleted, an admin key, another organization's, or not a key.
        """
        key = None
        if well_formed(value, REGULAR_PREFIX):
            index = self._material.index(value)
            key = await self._keys.find(index, principal.organization_id)
        if key is None:
            # The value must not be in a response, and not in a log.
            raise not_found("API key")
        return key

    async def numbered(self, principal: Principal, number: str) -> ApiKey:
        """Return the key of the organization with a number; any text from the path.

        Raises
        ------
        ApiError
            404 when it is deleted, another organization's, or no number of a key.
        """
        key = None
        if NUMBER.fullmatch(number):
            key = await self._keys.numbered(int(number), principal.organization_id)
        if key is None:
            raise not_found("API key")
        return key

    async def record(self, principal: Principal, number: int) -> ApiKeyResponse:
        """Return the record of a key.

        Raises
        ------
        ApiError
            404 when it was deleted meanwhile.
        MaterialError
            When values were sealed with other key material.
        """
        key = await self.numbered(principal, str(number))
        own = await self._keys.values(principal.organization_id, principal.user, [number])
        return key_record(key, own.get(key.id))

    async def update(self, key: ApiKey, body: UpdateApiKeyRequest | ChangeApiKeyRequest) -> None:
        """Change a key's name or cap, or switch it off or on.

        Raises
        ------
        ApiError
            404 when it was deleted meanwhile.
        """
        values: dict[str, Any] = {}
        if body.name is not None:
            values["name"] = body.name
        if body.max_tokens is not None:
            values["max_tokens"] = body.max_tokens or None
        if isinstance(body, ChangeApiKeyRequest) and body.disabled is not None:
            values["disabled"] = body.disabled
        if not values:
            return
        if not await self._keys.change(key.id, **values):
            raise not_found("API key")

    async def delete(self, key: ApiKey) -> None:
        """Delete a key permanently.

        Raises
        ------
        ApiError
            404 when it was deleted meanwhile.
        """
        if not await self._keys.delete(key.id, now=self._clock()):
            raise not_found("API key")


def veiled(record: ApiKeyResponse) -> ApiKeyResponse:
    """Return a record without the value, which only a form shows to a session."""
    return record.model_copy(update={"key": masked(record.key)})


def key_record(key: ApiKey, value: str | None) -> ApiKeyResponse:
    """Return the record of a key (spec 9.1).

    Parameters
    ----------
    value
        Its value for its creator; None for anyone else.
    """
    return ApiKeyResponse(
        key=masked(key.shown) if value is None else value,
        id=key.id,
        name=key.name,
        disabled=key.disabled,
        expires_at=moment_text(key.expires_at),
        max_tokens=key.max_tokens,
        metadata=key.metadata,
        tokens_used=key.input_tokens + key.output_tokens,
        input_tokens_used=key.input_tokens,
        output_tokens_used=key.output_tokens,
        request_count=key.requests,
        is_owner=value is not None,
        created_by=key.created_by,
        created_at=utc_text(key.created_at),
        last_used_at=moment_text(key.last_used_at),
    )
