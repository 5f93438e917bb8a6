"""The sign-in by the OpenID provider, and the bounded number of those in progress."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from hmac import compare_digest
from typing import Any

import httpx

from cloister_api.ledger.keys.key_material import KeySealer
from cloister_api.sessions.provider.attempt import (
    SignInAttempt,
    code_of,
    new_attempt,
    opened,
    says_enough,
    sealed,
    user_of,
)
from cloister_api.sessions.provider.client import ProviderClient, Tokens
from cloister_api.sessions.provider.id_token import (
    authenticated_at,
    check_claims,
    claims_of,
    header_of,
    key_for,
)
from cloister_api.sessions.provider.metadata import authorization_address
from cloister_api.sessions.provider.refusal import RefusalReason, SignInRefused
from cloister_api.sessions.provider.settings import CALLBACK, OpenIdSettings
from cloister_clients.clock import Clock


class SignInSlots:
    """The sign-ins that wait.

    Where there is no room, the one that has waited longest gives way, of the address that has the
    most: a sign-in that the provider completes takes a moment, and a client that sends many
    displaces their own.

    Parameters
    ----------
    most
        How many may wait.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: dict[asyncio.Timeout, str] = {}

    @asynccontextmanager
    async def enter(self, address: str) -> AsyncIterator[None]:
        """Count a sign-in while the block runs.

        Raises
        ------
        SignInRefused
            When it gave way to another one.
        """
        if len(self._waiting) >= self._most:
            self._displace()
        slot = asyncio.timeout(None)
        try:
            async with slot:
                self._waiting[slot] = address
                try:
                    yield
                finally:
                    self._waiting.pop(slot, None)
        except TimeoutError as error:
            if not slot.expired():
                raise
            raise SignInRefused(
                RefusalReason.BUSY, f"{self._most} sign-ins wait for the provider"
            ) from error

    def _displace(self) -> None:
        """End the oldest of the address that has the most."""
        waiting = Counter(self._waiting.values())
        most = max(waiting.values())
        oldest = next(each for each, address in self._waiting.items() if waiting[address] == most)
        del self._waiting[oldest]
        oldest.reschedule(asyncio.get_running_loop().time())


AT_ONCE = 64
"""Sign-ins that may wait for the provider concurrently, by replica."""


@dataclass(frozen=True, slots=True)
class BegunSignIn:
    """A sign-in that has begun."""

    address: str
    """Where the browser is sent."""
    cookie: str
    """Value of the cookie that binds it to this browser."""


@dataclass(frozen=True, slots=True)
class SignedIn:
    """Somebody for whom the provider vouches."""

    user: str
    """User, as Organizations name their members."""
    subject: str
    """Subject at the provider."""
    authenticated_at: datetime | None
    """When they last proved at the provider who they are, in UTC; None if it does not say."""
    next: str
    """Path of the page to go to."""


class ProviderSignIn:
    """Signs people in.

    Parameters
    ----------
    settings
        The provider as the settings name it.
    """

    def __init__(
        self,
        settings: OpenIdSettings,
        address: str,
        client: ProviderClient,
        material: KeySealer,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._redirect = f"{address}{CALLBACK}"
        self._client = client
        self._material = material
        self._clock = clock
        self._slots = SignInSlots(AT_ONCE)

    async def begin(self, path: str, max_age: int | None, sender: str = "") -> BegunSignIn:
        """Begin a sign-in.

        Parameters
        ----------
        path
            Page to go to afterwards; what is not of this dashboard becomes `/`.
        max_age
            Seconds since the person last proved who they are, at most; None means any.

        Raises
        ------
        SignInRefused
            When the provider cannot be used at present.
        """
        async with self._slots.enter(sender):
            metadata = await self._client.metadata()
        attempt = new_attempt(path, self._clock(), max_age)
        address = authorization_address(metadata, self._settings, attempt, self._redirect)
        return BegunSignIn(address, sealed(attempt, self._material))

    async def finish(
        self, parameters: Sequence[tuple[str, str]], cookie: str, sender: str = ""
    ) -> SignedIn:
        """Finish a sign-in.

        Parameters
        ----------
        parameters
            Names and values of the query with which the provider sent the browser back.
        cookie
            Value of the cookie that binds the sign-in to this browser; empty if it sent none.

        Raises
        ------
        SignInRefused
            When nobody is signed in by it.
        """
        attempt = opened(cookie, self._material, self._clock())
        async with self._slots.enter(sender):
            metadata = await self._client.metadata()
            code = code_of(
                parameters,
                attempt,
                issuer=self._settings.issuer,
                names_issuer=metadata.names_issuer,
            )
            tokens = await self._client.exchange(
                code, verifier=attempt.verifier, redirect=self._redirect
            )
            return await self._believed(tokens, attempt)

    async def sign_out_address(self, sender: str = "") -> str | None:
        """Return where people end their session at the provider; None if unknown.

        No ID token is kept that could be sent along, so the provider asks the person.
        """
        with suppress(SignInRefused):
            async with self._slots.enter(sender):
                address = (await self._client.metadata()).end_session_endpoint
                if address is not None:
                    query = {"client_id": self._settings.client_id}
                    return str(httpx.URL(address).copy_merge_params(query))
        return None

    async def _believed(self, tokens: Tokens, attempt: SignInAttempt) -> SignedIn:
        """Return whom the provider vouches for."""
        header = header_of(tokens.id_token)
        key = key_for(header, await self._client.keys())
        if key is None:
            key = key_for(header, await self._client.keys(unknown=True))
        if key is None:
            raise SignInRefused(RefusalReason.UNTRUSTED, "the ID token names a key that is unknown")
        claims = claims_of(tokens.id_token, header, key)
        now = self._clock()
        subject = check_claims(
            claims,
            attempt,
            issuer=self._settings.issuer,
            client_id=self._settings.client_id,
            now=now,
        )
        try:
            proven = authenticated_at(claims, attempt, now)
            named = await self._naming(claims, subject, tokens)
            user = user_of(named, self._settings)
        except SignInRefused as error:
            raise SignInRefused(error.reason, error.detail, subject=subject) from error
        return SignedIn(user, subject, proven, attempt.next)

    async def _naming(self, claims: dict[str, Any], subject: str, tokens: Tokens) -> dict[str, Any]:
        """Return the claims that name the user: the ID token's, else those of UserInfo."""
        if says_enough(claims, self._settings.username_claim):
            return claims
        more = await self._client.user_info(tokens)
        if not more:
            return claims
        other = more.get("sub")
        if not isinstance(other, str) or not compare_digest(other.encode(), subject.encode()):
            raise SignInRefused(RefusalReason.UNTRUSTED, "UserInfo is of another subject")
        return more
