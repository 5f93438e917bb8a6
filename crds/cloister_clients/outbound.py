"""HTTP requests to hosts that tenants or administrators name: guarded, with bounded responses.

The REST providers of `sources`, the client of `registry` and the dashboard's sign-in send through
it and interpret the responses.
"""

# ruff: noqa: N818 - the names say what is wrong; they are the words of conditions too

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path

import httpx

from cloister_clients.address_guard import Guard, GuardedTransport

__all__ = [
    "HttpResponse",
    "ResponseTooLarge",
    "fetch",
    "guarded_client",
    "is_timeout",
    "retry_after",
    "trust",
]

LONGEST_WAIT = 86400.0
"""Longest wait that a server can request, in seconds; longer ones are cut to it."""


class ResponseTooLarge(Exception):
    """The body of a response is larger than the limit."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response with its whole body."""

    status: int
    """Status of HTTP."""
    headers: httpx.Headers
    """Headers of the last response, after redirects."""
    body: bytes
    """Body, within the limit of the request."""


def trust(ca_file: Path | None) -> ssl.SSLContext:
    """Build the context of outgoing TLS.

    Parameters
    ----------
    ca_file
        PEM file with the only authorities to trust; None: the public ones.

    Raises
    ------
    OSError
        When the file cannot be read or has no certificate.
    """
    if ca_file is None:
        return _public_trust()
    return ssl.create_default_context(cafile=str(ca_file))


@cache
def _public_trust() -> ssl.SSLContext:
    """Build the context that trusts the public authorities, once: it takes 60 ms."""
    return httpx.create_ssl_context(trust_env=False)


def guarded_client(
    guard: Guard,
    *,
    context: ssl.SSLContext,
    timeout_seconds: float,
    user_agent: str,
    follow_redirects: bool = True,
) -> httpx.AsyncClient:
    """Build an HTTP client whose every connection is guarded.

    It follows at most five redirects, or none; httpx leaves ``Authorization`` behind when a
    redirect leads to another origin. Variables of the environment (proxies, netrc) are not read,
    cookies not kept.

    Parameters
    ----------
    guard
        Which hosts may be called.
    context
        Trust for TLS, see `trust`.
    timeout_seconds
        Longest wait for a connection and between two pieces of a response.
    follow_redirects
        Whether redirects are followed; a POST with a secret should not be.
    """
    return httpx.AsyncClient(
        transport=GuardedTransport(guard, context),
        timeout=httpx.Timeout(timeout_seconds),
        follow_redirects=follow_redirects,
        max_redirects=5,
        # A body in another coding could be small on the wire and large in memory.
        headers={"User-Agent": user_agent, "Accept-Encoding": "identity"},
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
        trust_env=False,
    )


async def fetch(
    client: httpx.AsyncClient,
    method: str,
    url: str | httpx.URL,
    *,
    headers: Mapping[str, str],
    limit: int,
    content: bytes | None = None,
) -> HttpResponse:
    """Send a request and read its response.

    Parameters
    ----------
    client
        Client of `guarded_client`.
    limit
        Largest body that is read, in bytes.
    content
        Body of the request; None: it has none.

    Raises
    ------
    ResponseTooLarge
        When the body is larger.
    AddressRefused
        When the guard refuses the host or one of its redirects.
    httpx.HTTPError, httpx.InvalidURL
        When there was no response, or not one of HTTP.
    """
    async with client.stream(method, url, headers=dict(headers), content=content) as response:
        coding = response.headers.get("content-encoding", "identity").strip().lower()
        if coding not in {"", "identity"}:
            # Sixty bytes of it could be sixty thousand in memory, before any limit is looked at.
            raise httpx.DecodingError(
                f"{response.url.host} sent a body in the coding {coding[:20]!r}, which was not "
                "asked for"
            )
        body = bytearray()
        async for piece in response.aiter_raw():
            body += piece
            if len(body) > limit:
                raise ResponseTooLarge(
                    f"the response of {response.url.host} is beyond {limit} bytes"
                )
        return HttpResponse(response.status_code, response.headers, bytes(body))


def is_timeout(error: Exception) -> bool:
    """Return whether an error means that the host did not respond in time.

    A wait for a free connection says nothing about the host.
    """
    return isinstance(error, httpx.TimeoutException) and not isinstance(error, httpx.PoolTimeout)


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Read how long a server must not be queried (RFC 9110, section 10.2.3).

    Parameters
    ----------
    now
        The present time, for the form that is a date.

    Returns
    -------
    float or None
        Seconds, at most a day; None when the header is missing or makes no sense.
    """
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdecimal():
        return min(float(text[:10]), LONGEST_WAIT)
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return min(max((moment - now).total_seconds(), 0.0), LONGEST_WAIT)
