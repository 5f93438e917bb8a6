"""The provider's discovery document (OpenID Connect Discovery 1.0, section 3)."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx

from cloister_api.sessions.provider.attempt import SignInAttempt
from cloister_api.sessions.provider.refusal import RefusalReason, SignInRefused
from cloister_api.sessions.provider.settings import OpenIdSettings

ALGORITHMS = ("RS256", "PS256", "ES256", "EdDSA")
"""Algorithms by which an ID token may be signed."""
BASIC, POST = "client_secret_basic", "client_secret_post"
METHODS = "token_endpoint_auth_methods_supported"


@dataclass(frozen=True, slots=True)
class ProviderMetadata:
    """What is used of the document."""

    issuer: str
    """The issuer."""
    authorization_endpoint: str
    """Where the browser is sent."""
    token_endpoint: str
    """Where a code is exchanged for tokens."""
    jwks_uri: str
    """Where the keys are."""
    userinfo_endpoint: str | None
    """Where further claims are; None means nowhere."""
    end_session_endpoint: str | None
    """Where people end their session at the provider; None means nowhere."""
    names_issuer: bool
    """Whether the provider names itself in authorization responses (RFC 9207)."""
    secret_in_header: bool
    """Whether the client's secret is sent in a header; else in the body."""


def discovery_address(issuer: str) -> str:
    """Return where the document of an issuer is."""
    return f"{issuer.removesuffix('/')}/.well-known/openid-configuration"


def metadata_of(document: Any, settings: OpenIdSettings) -> ProviderMetadata:
    """Return what is used of a document.

    Parameters
    ----------
    settings
        The provider as the settings name it.

    Raises
    ------
    SignInRefused
        When it is that of another issuer, or of a provider that this client cannot use.
    """
    if not isinstance(document, dict):
        raise misfit("is not an object")
    if document.get("issuer") != settings.issuer:
        shown = ascii(document.get("issuer"))[:200]
        raise misfit(f"has the issuer {shown}; dashboard.oidc.issuer is {settings.issuer!r}")
    require_offered(document, "id_token_signing_alg_values_supported", ALGORITHMS)
    require_offered(document, "code_challenge_methods_supported", ("S256",))
    require_offered(document, "response_types_supported", ("code",))
    require_offered(document, METHODS, (BASIC, POST))
    return ProviderMetadata(
        issuer=settings.issuer,
        authorization_endpoint=address_in(document, "authorization_endpoint", settings),
        token_endpoint=address_in(document, "token_endpoint", settings),
        jwks_uri=address_in(document, "jwks_uri", settings),
        userinfo_endpoint=optional_address(document, "userinfo_endpoint", settings),
        end_session_endpoint=optional_address(document, "end_session_endpoint", settings),
        names_issuer=document.get("authorization_response_iss_parameter_supported") is True,
        secret_in_header=BASIC in document.get(METHODS, [BASIC]),
    )


def misfit(what: str) -> SignInRefused:
    """Build the refusal of a document."""
    return SignInRefused(RefusalReason.MISUNDERSTOOD, f"the discovery document {what}")


def require_offered(document: dict[str, Any], field: str, usable: tuple[str, ...]) -> None:
    """Refuse a provider that says that it offers nothing of what can be used here.

    Raises
    ------
    SignInRefused
        When it says so; one that says nothing may.
    """
    offered = document.get(field)
    if offered is None:
        return
    if not isinstance(offered, list) or not set(usable) & {str(each) for each in offered}:
        raise misfit(f"offers none of {', '.join(usable)} in {field}")


def address_in(document: dict[str, Any], field: str, settings: OpenIdSettings) -> str:
    """Return an address of the document.

    Raises
    ------
    SignInRefused
        When it has none, or one without TLS.
    """
    found = document.get(field)
    schemes = {"https", "http"} if settings.is_local else {"https"}
    if not isinstance(found, str) or not is_address(found, schemes):
        raise misfit(f"has no address with {' or '.join(sorted(schemes))} in {field}")
    return found


def optional_address(document: dict[str, Any], field: str, settings: OpenIdSettings) -> str | None:
    """Return an address that the document may lack.

    Raises
    ------
    SignInRefused
        When it has one without TLS.
    """
    return address_in(document, field, settings) if document.get(field) is not None else None


def is_address(text: str, schemes: set[str]) -> bool:
    """Return whether a text is an address without credentials and fragment."""
    try:
        parts, url = urlsplit(text), httpx.URL(text)
    except (ValueError, httpx.InvalidURL):
        return False
    plain = text.isascii() and text.isprintable() and " " not in text and "\\" not in text
    return (
        plain
        and parts.scheme in schemes
        and bool(url.host)
        and not url.userinfo
        and not parts.fragment
    )


def authorization_address(
    metadata: ProviderMetadata, settings: OpenIdSettings, attempt: SignInAttempt, redirect: str
) -> str:
    """Return where the browser is sent for an attempt.

    Parameters
    ----------
    settings
        The provider as the settings name it.
    redirect
        Address to which the provider sends the browser back.
    """
    query = {
        "response_type": "code",
        "client_id": settings.client_id,
        "redirect_uri": redirect,
        "scope": " ".join(settings.scopes),
        "state": attempt.state,
        "nonce": attempt.nonce,
        "code_challenge": attempt.challenge,
        "code_challenge_method": "S256",
    }
    if attempt.max_age is not None:
        query["max_age"] = str(attempt.max_age)
    return str(httpx.URL(metadata.authorization_endpoint).copy_merge_params(query))
