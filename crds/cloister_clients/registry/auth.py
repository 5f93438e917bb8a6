"""Authentication at a registry: challenges, tokens, basic authentication.

Follows RFC 9110 (section 11) for challenges and the distribution project's "Token Authentication
Specification" for tokens. Only `RegistryClient` uses it.
"""

import base64
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import httpx
from cachetools import TLRUCache

from cloister_clients.address_guard import host_port, named
from cloister_clients.clock import Clock, monotonic, utc_now
from cloister_clients.foreign_json import parse_json
from cloister_clients.outbound import HttpResponse, fetch, retry_after
from cloister_clients.registry.credentials import Credentials
from cloister_clients.registry.errors import (
    RegistryRateLimited,
    RegistryRefused,
    RegistryUnauthorized,
    RegistryUnavailable,
)

__all__ = ["Audience", "Challenge", "RegistryAuthenticator", "parse_challenges"]

MAX_TOKEN_BYTES = 65536
"""Largest response of a token server, in bytes."""

MAX_VALUES = 1024
"""Most values of such a response; a token server sends a handful."""

MAX_KEPT_BYTES = 8 * 1024**2
"""Size of all tokens that are kept, in bytes."""

ENTRY_BYTES = 1024
"""What a kept token takes in addition to its text: for whom it is good, with credentials."""

DEFAULT_LIFE = 60.0
"""Life of a token whose server does not say it, in seconds (token specification)."""

MARGIN = 10.0
"""How long before it expires a token is no longer used, in seconds."""

_TOKEN_SERVERS = {"registry-1.docker.io": "auth.docker.io"}
"""Registry -> its token server on another host."""

MAX_CHALLENGES = 8
"""Most headers with challenges that are read; a registry sends one or two."""

MAX_CHALLENGE = 4096
"""Characters of such a header that are read."""

# Nothing is tried twice: repetitions are possessive, and a text that does not end takes the rest.
_PIECE = re.compile(
    r"([A-Za-z0-9!#$%&'*+.^_`|~-]++)"
    r'(?:[ \t]*+=[ \t]*+(?:"([^"\\]*+(?:\\.[^"\\]*+)*+)(?:"|\\?\Z)|([^\s,"]++)))?'
)
_ESCAPE = re.compile(r"\\(.)")


@dataclass(frozen=True, slots=True)
class Challenge:
    """One way in which a server wants the client to authenticate."""

    scheme: str
    """Scheme in lower case: ``bearer``, ``basic``."""
    parameters: dict[str, str] = field(default_factory=dict)
    """Parameters, names in lower case."""


@dataclass(frozen=True, slots=True)
class Audience:
    """For whom an authorization is good: one repository of one server, for one client."""

    server: str
    """Address of the server."""
    repository: str
    """Repository."""
    credentials: Credentials | None
    """Credentials of the client; None: anonymous."""


def parse_challenges(values: Iterable[str]) -> list[Challenge]:
    """Parse the headers WWW-Authenticate, as far as their bounds."""
    challenges: list[Challenge] = []
    for value in islice(values, MAX_CHALLENGES):
        for name, quoted, plain in _PIECE.findall(value[:MAX_CHALLENGE]):
            text = _ESCAPE.sub(r"\1", quoted) or plain
            if text and challenges:
                challenges[-1].parameters.setdefault(name.lower(), text)
            elif not text:
                challenges.append(Challenge(name.lower()))
    return challenges


class RegistryAuthenticator:
    """Turns challenges into authorizations and keeps them while they are good."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        *,
        token_hosts: Iterable[str] = (),
        clock: Clock = utc_now,
    ) -> None:
        self._client = client
        self._token_hosts = frozenset(token_hosts)
        self._clock = clock
        self._kept: TLRUCache[Audience, tuple[str, float]] = TLRUCache(
            MAX_KEPT_BYTES,
            lambda _, kept, now: now + kept[1],
            monotonic,
            lambda kept: ENTRY_BYTES + len(kept[0]),
        )

    def authorization(self, audience: Audience) -> str | None:
        """Return the kept value of the header Authorization; None when there is none."""
        kept = self._kept.get(audience)
        return None if kept is None else kept[0]

    async def authorize(self, audience: Audience, challenges: list[Challenge]) -> str:
        """Get an authorization that meets a challenge, and keep it.

        Parameters
        ----------
        challenges
            What the server wants; a token is preferred to a password.

        Raises
        ------
        RegistryUnauthorized
            When there are no credentials that the server wants, or its token server refuses them.
        RegistryUnavailable
            When the token server does not respond as it should.
        RegistryRefused
            When the token server may not have the credentials.
        AddressRefused
            When the guard refuses the token server.
        """
        # Bearer first: a token is limited to one repository and a short time.
        for challenge in challenges:
            if challenge.scheme == "bearer" and "realm" in challenge.parameters:
                value, life = await self._token(audience, challenge.parameters)
                break
        else:
            if audience.credentials is None:
                raise RegistryUnauthorized(
                    f"{_named(audience)} wants credentials and there are none for it; make the "
                    "image public or enter credentials for the registry"
                )
            if not any(challenge.scheme == "basic" for challenge in challenges):
                raise RegistryUnauthorized(
                    f"{_named(audience)} wants a kind of credentials that is not spoken here"
                )
            value, life = _basic(audience.credentials), 3600.0
        # The margin keeps a token from expiring between its use and its arrival.
        self._kept[audience] = (value, life - MARGIN)
        return value

    async def _token(self, audience: Audience, parameters: dict[str, str]) -> tuple[str, float]:
        """Query a token server; return the header's value and its life in seconds."""
        try:
            realm = httpx.URL(parameters["realm"])
        except httpx.InvalidURL as error:
            raise RegistryUnavailable(f"{_named(audience)} names no token server") from error
        query = {"scope": parameters.get("scope") or f"repository:{audience.repository}:pull"}
        if "service" in parameters:
            query["service"] = parameters["service"]
        headers = {"Accept": "application/json"}
        if audience.credentials is not None:
            self._check_realm(audience, realm)
            headers["Authorization"] = _basic(audience.credentials)
        response = await fetch(
            self._client,
            "GET",
            realm.copy_merge_params(query),
            headers=headers,
            limit=MAX_TOKEN_BYTES,
        )
        self._check(audience, response)
        data = _object(response.body)
        token = data.get("token") or data.get("access_token")
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise RegistryUnavailable(f"the token server of {_named(audience)} sent no token")
        life = data.get("expires_in")
        if not isinstance(life, int | float) or isinstance(life, bool) or life <= 0:
            life = DEFAULT_LIFE
        return f"Bearer {token}", float(life)

    def _check_realm(self, audience: Audience, realm: httpx.URL) -> None:
        """Raise unless a token server may see the credentials: only the registry names it."""
        server = httpx.URL(audience.server)
        own = host_port(realm) == host_port(server)
        if own or realm.host == _TOKEN_SERVERS.get(server.host):
            return
        if not named(*host_port(realm), self._token_hosts):
            raise RegistryRefused(
                f"{_named(audience)} names the token server {realm.host}, which gets no "
                "credentials; an administrator can allow it in the setting registry.tokenHosts"
            )

    def _check(self, audience: Audience, response: HttpResponse) -> None:
        """Raise what a response without a token means."""
        if response.status in {400, 401, 403, 404}:
            state = "refused the credentials" if audience.credentials else "gave no anonymous token"
            raise RegistryUnauthorized(
                f"the token server of {_named(audience)} {state}; check that the image exists, and "
                "make it public or enter credentials that may read it"
            )
        if response.status == 429:  # noqa: PLR2004 - the status Too Many Requests
            raise RegistryRateLimited(
                f"the token server of {_named(audience)} wants fewer requests",
                retry_after=retry_after(response.headers, self._clock()),
            )
        if response.status != 200:  # noqa: PLR2004 - the status OK
            raise RegistryUnavailable(
                f"the token server of {_named(audience)} responded with status {response.status}",
                retry_after=retry_after(response.headers, self._clock()),
            )


def _basic(credentials: Credentials) -> str:
    """Write credentials as the header's value (RFC 7617)."""
    pair = f"{credentials.username}:{credentials.password}".encode()
    return f"Basic {base64.b64encode(pair).decode()}"


def _named(audience: Audience) -> str:
    """Name server and repository for a message."""
    return f"{httpx.URL(audience.server).netloc.decode()}/{audience.repository}"


def _object(body: bytes) -> dict[str, Any]:
    """Parse a JSON object; anything else counts as an empty one."""
    try:
        data = parse_json(body, most=MAX_VALUES)
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}
