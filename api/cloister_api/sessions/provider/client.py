"""Requests to the provider: its documents, the exchange of a code, further claims."""

import asyncio
import base64
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Generic, TypeVar
from urllib.parse import quote_plus, urlencode

import httpx

from cloister_api.sessions.provider.metadata import (
    ProviderMetadata,
    discovery_address,
    metadata_of,
)
from cloister_api.sessions.provider.refusal import RefusalReason, SignInRefused
from cloister_api.sessions.provider.settings import OpenIdSettings, read_client_secret
from cloister_clients.address_guard import AddressRefused
from cloister_clients.clock import Clock
from cloister_clients.foreign_json import parse_json
from cloister_clients.outbound import (
    HttpResponse,
    ResponseTooLarge,
    fetch,
    guarded_client,
    trust,
)
from cloister_clients.settings import SettingsError

KEPT = timedelta(hours=1)
"""How long the discovery document and the keys are kept."""
FAILED_FOR = timedelta(seconds=5)
"""How long a document that could not be had is not asked for again."""
KEYS_EVERY = timedelta(minutes=1)
"""How often the keys are read at most for keys that are unknown."""
LARGEST = 256 * 1024
"""Largest response that is read, in bytes."""
MOST_VALUES = 5000
"""Most values of a response that are read."""
OK, SERVER_ERROR = 200, 500
FORM = "application/x-www-form-urlencoded"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Tokens:
    """What a code was exchanged for; it is kept until the end of the request, and no longer."""

    id_token: str = field(repr=False)
    """ID token."""
    access_token: str | None = field(repr=False)
    """What UserInfo is read with; None if the provider sent none."""


@dataclass(slots=True)
class Kept(Generic[T]):
    """A document of the provider, as it was last read."""

    value: T | None = None
    """The document; None if it was never read."""
    read_at: datetime | None = None
    """When it was read, in UTC."""
    failed: tuple[datetime, SignInRefused] | None = None
    """When it last could not be had, in UTC, and why; None if it could."""
    reading: asyncio.Task[None] | None = None
    """Reads it, for all who wait; None if nobody does."""

    def fresh(self, now: datetime, life: timedelta) -> T | None:
        """Return the document while it is fresh; None if it must be read.

        Raises
        ------
        SignInRefused
            When it could not be had a moment ago.
        """
        if self.failed is not None and now - self.failed[0] < FAILED_FOR:
            raise SignInRefused(self.failed[1].reason, self.failed[1].detail)
        fresh = self.read_at is not None and now - self.read_at < life
        return self.value if fresh else None

    def keep(self, value: T, now: datetime) -> None:
        """Keep a document that was read."""
        self.value, self.read_at, self.failed = value, now, None

    def fail(self, error: SignInRefused, now: datetime) -> None:
        """Remember that the document could not be had."""
        self.failed = now, error


class ProviderClient:
    """Asks the provider.

    Parameters
    ----------
    settings
        The provider as the settings name it.

    Raises
    ------
    SettingsError
        When the authorities of the settings cannot be read.
    """

    def __init__(self, settings: OpenIdSettings, clock: Clock) -> None:
        try:
            context = trust(settings.ca_file)
        except OSError as error:
            raise SettingsError(
                f"dashboard.oidc.caFile: {settings.ca_file}: {error}; provide certificates in PEM"
            ) from error
        self._settings = settings
        self._clock = clock
        # A redirect of the provider could take code and secret elsewhere.
        self._http = guarded_client(
            settings.guard(),
            context=context,
            timeout_seconds=settings.timeout_seconds,
            user_agent="cloister",
            follow_redirects=False,
        )
        self._metadata: Kept[ProviderMetadata] = Kept()
        self._keys: Kept[list[dict[str, Any]]] = Kept()

    async def aclose(self) -> None:
        """Close the connections."""
        reading = [each.reading for each in (self._metadata, self._keys) if each.reading]
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
        await self._http.aclose()

    async def metadata(self) -> ProviderMetadata:
        """Return what is used of the discovery document.

        Raises
        ------
        SignInRefused
            When it cannot be had or used.
        """

        async def read() -> ProviderMetadata:
            address = discovery_address(self._settings.issuer)
            return metadata_of(await self._document("discovery document", address), self._settings)

        return await self._kept(self._metadata, KEPT, read)

    async def keys(self, *, unknown: bool = False) -> list[dict[str, Any]]:
        """Return the provider's keys (RFC 7517).

        Parameters
        ----------
        unknown
            Whether a token names a key that is not among them, which reads them again, at most
            once a minute.

        Raises
        ------
        SignInRefused
            When they cannot be had.
        """
        metadata = await self.metadata()

        async def read() -> list[dict[str, Any]]:
            document = await self._document("keys", metadata.jwks_uri)
            keys = document.get("keys") if isinstance(document, dict) else None
            if not isinstance(keys, list):
                raise SignInRefused(
                    RefusalReason.MISUNDERSTOOD, "the provider's keys are not a key set"
                )
            return [key for key in keys if isinstance(key, dict)]

        return await self._kept(self._keys, KEYS_EVERY if unknown else KEPT, read)

    async def exchange(self, code: str, *, verifier: str, redirect: str) -> Tokens:
        """Exchange a code for tokens (RFC 6749, section 4.1.3).

        Parameters
        ----------
        verifier
            What proves that this client began the sign-in (RFC 7636).
        redirect
            Address to which the provider sent the browser back.

        Raises
        ------
        SignInRefused
            When the provider does not exchange it.
        """
        metadata = await self.metadata()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect,
            "code_verifier": verifier,
        }
        headers = {"Accept": "application/json", "Content-Type": FORM}
        self._authenticate(metadata, headers, form)
        response = await self._request(
            "POST", metadata.token_endpoint, headers, urlencode(form).encode()
        )
        document = parsed("token endpoint", response)
        if response.status != OK or not isinstance(document, dict):
            raise refusal_of("token endpoint", response.status, document)
        token, access = document.get("id_token"), document.get("access_token")
        if not isinstance(token, str):
            raise SignInRefused(RefusalReason.MISUNDERSTOOD, "the token endpoint sent no ID token")
        return Tokens(token, access if isinstance(access, str) else None)

    async def user_info(self, tokens: Tokens) -> dict[str, Any]:
        """Return the claims of UserInfo (OpenID Connect Core 1.0, section 5.3).

        Returns
        -------
        dict
            The claims; empty where the provider has no UserInfo.

        Raises
        ------
        SignInRefused
            When they cannot be had.
        """
        address, token = (await self.metadata()).userinfo_endpoint, tokens.access_token
        if address is None or not token:
            return {}
        if not (token.isascii() and token.isprintable()):
            raise SignInRefused(RefusalReason.MISUNDERSTOOD, "the access token cannot be sent")
        headers = {"Accept": "application/json", "Authorization": f"Bearer {token}"}
        response = await self._request("GET", address, headers)
        document = parsed("UserInfo", response)
        if response.status != OK or not isinstance(document, dict):
            raise refusal_of("UserInfo", response.status, document)
        return document

    def _authenticate(
        self, metadata: ProviderMetadata, headers: dict[str, str], form: dict[str, str]
    ) -> None:
        """Add the client's secret to a request (RFC 6749, section 2.3.1)."""
        try:
            secret = read_client_secret(self._settings)
        except SettingsError as error:
            raise SignInRefused(RefusalReason.MISUNDERSTOOD, str(error)) from error
        client = self._settings.client_id
        if metadata.secret_in_header:
            pair = f"{quote_plus(client)}:{quote_plus(secret)}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        else:
            form |= {"client_id": client, "client_secret": secret}

    async def _document(self, what: str, address: str) -> Any:
        """Read a document of the provider."""
        response = await self._request("GET", address, {"Accept": "application/json"})
        if response.status != OK:
            raise refusal_of(what, response.status, None)
        return parsed(what, response)

    async def _kept(self, kept: Kept[T], life: timedelta, read: Callable[[], Awaitable[T]]) -> T:
        """Return a document that is fresh, or read it; one request does that for all.

        Who waits for it may give up; the others get it all the same.
        """
        found = kept.fresh(self._clock(), life)
        if found is not None:
            return found
        if kept.reading is None:
            kept.reading = asyncio.create_task(self._read(kept, read))
        await asyncio.shield(kept.reading)
        if kept.failed is not None:
            raise SignInRefused(kept.failed[1].reason, kept.failed[1].detail)
        assert kept.value is not None
        return kept.value

    async def _read(self, kept: Kept[T], read: Callable[[], Awaitable[T]]) -> None:
        """Read a document, and keep it or why it could not be had."""
        try:
            kept.keep(await read(), self._clock())
        except SignInRefused as error:
            kept.fail(error, self._clock())
        finally:
            kept.reading = None

    async def _request(
        self, method: str, address: str, headers: Mapping[str, str], content: bytes | None = None
    ) -> HttpResponse:
        """Send a request within the time of the settings."""
        host = httpx.URL(address).host
        send = partial(fetch, self._http, method, address, limit=LARGEST, content=content)
        try:
            async with asyncio.timeout(self._settings.timeout_seconds):
                return await send(headers=headers)
        except AddressRefused as error:
            detail = f"{error}; the setting is that of dashboard.oidc"
            raise SignInRefused(RefusalReason.MISUNDERSTOOD, detail) from error
        except ResponseTooLarge as error:
            raise SignInRefused(RefusalReason.MISUNDERSTOOD, str(error)) from error
        except TimeoutError as error:
            seconds = self._settings.timeout_seconds
            detail = f"{host} did not respond within {seconds:g} seconds"
            raise SignInRefused(RefusalReason.UNREACHABLE, detail) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            what = str(error) or type(error).__name__
            raise SignInRefused(RefusalReason.UNREACHABLE, f"{host}: {what}") from error


def parsed(what: str, response: HttpResponse) -> Any:
    """Return the document of a response; None where an error has none."""
    try:
        return parse_json(response.body, most=MOST_VALUES)
    except ValueError as error:
        if response.status != OK:
            return None
        raise SignInRefused(
            RefusalReason.MISUNDERSTOOD, f"the {what} sent no JSON: {error}"
        ) from error


def refusal_of(what: str, status: int, document: Any) -> SignInRefused:
    """Build the refusal of a response that is not a success."""
    word = document.get("error") if isinstance(document, dict) else None
    shown = f" and the error {ascii(word)[:120]}" if word is not None else ""
    detail = f"the {what} responded with status {status}{shown}"
    # A code that was used before or has expired: the settings are right.
    if word == "invalid_grant":
        return SignInRefused(RefusalReason.NOT_BEGUN, detail)
    down = status >= SERVER_ERROR
    return SignInRefused(RefusalReason.UNREACHABLE if down else RefusalReason.MISUNDERSTOOD, detail)
