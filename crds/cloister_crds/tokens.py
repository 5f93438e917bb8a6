"""The token of an enclave: how it is written, and what of it is in the Enclave.

The operator makes one for each Enclave; the enclave shows it to the API as a bearer token. It says
whose it is, so that the one digest to compare with is found without a search.
"""

import hashlib
import re

__all__ = ["token_digest", "token_holder", "token_of"]

_FORM = re.compile(r"([a-z0-9][-a-z0-9]{0,62})/([a-z0-9][-.a-z0-9]{0,252})/[A-Za-z0-9_-]{43}")


def token_of(namespace: str, name: str, secret: str) -> str:
    """Write the token of an Enclave.

    Parameters
    ----------
    namespace, name
        Of the Enclave.
    secret
        32 random bytes in base64 for URLs, without padding.

    Raises
    ------
    ValueError
        When the parts do not make a token.
    """
    token = f"{namespace}/{name}/{secret}"
    if not _FORM.fullmatch(token):
        raise ValueError("these parts do not make the token of an Enclave")
    return token


def token_holder(token: str) -> tuple[str, str] | None:
    """Return namespace and name of the Enclave that a token says it is of; None = no token."""
    found = _FORM.fullmatch(token)
    return (found[1], found[2]) if found else None


def token_digest(token: str) -> str:
    """Return what of a token is in the Enclave: its SHA-256 in hexadecimal."""
    return hashlib.sha256(token.encode()).hexdigest()
