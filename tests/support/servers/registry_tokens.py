"""A token server for a real registry, which issues signed tokens to known users.

It implements the distribution project's "Token Authentication Specification"; the registry checks
the signature with the certificate, so it accepts only these tokens.
"""

import base64
import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from cloister_clients.clock import utc_now
from tests.support.builders.certificates import Certificate
from tests.support.stand_ins.http_server import HttpServer, Reply, Request, serve

__all__ = ["SERVICE", "TokenServer", "token_server"]

SERVICE = "test-registry"
"""Name of the registry in its tokens."""

ISSUER = "test-tokens"
"""Name of the token server in its tokens."""


@dataclass
class TokenServer:
    """A running token server; its fields may be changed while it runs."""

    certificate: Certificate
    """Certificate of the signing key."""
    users: dict[str, str]
    """User name -> password."""
    public: set[str] = field(default_factory=set)
    """Repositories that may be pulled without a user."""
    life: int = 300
    """Lifetime of a token, in seconds."""
    fault: Reply | None = None
    """Response to every request; None = the usual ones."""
    served: HttpServer | None = None
    """The server; None before it runs."""

    def auth(self) -> dict[str, Any]:
        """Return the section ``auth`` of the registry's configuration."""
        assert self.served is not None
        return {
            "token": {
                "realm": f"{self.served.base}/token",
                "service": SERVICE,
                "issuer": ISSUER,
                "rootcertbundle": str(self.certificate.file),
                "signingalgorithms": ["ES256"],
            }
        }

    @property
    def requests(self) -> list[Request]:
        """Received requests, in order."""
        assert self.served is not None
        return self.served.requests

    def respond(self, request: Request) -> Reply:
        """Return a token with the user's permissions."""
        if self.fault is not None:
            return self.fault
        user = self._user(request.headers.get("authorization"))
        if user is None:
            return Reply(401, b'{"details": "incorrect username or password"}')
        access = []
        for scope in request.parameters.get("scope", []):
            kind, repository, actions = scope.split(":")
            if user or repository in self.public:
                granted = actions.split(",") if user else ["pull"]
                access.append({"type": kind, "name": repository, "actions": granted})
        token = self.token(user, access)
        return Reply(200, json.dumps({"token": token, "expires_in": self.life}).encode())

    def _user(self, authorization: str | None) -> str | None:
        """Return the user of a request: empty = anonymous, None = wrong credentials."""
        if authorization is None:
            return ""
        pair = base64.b64decode(authorization.removeprefix("Basic ")).decode()
        name, _, password = pair.partition(":")
        return name if self.users.get(name) == password else None

    def token(self, subject: str, access: list[dict[str, Any]]) -> str:
        """Sign a token (RFC 7519, ES256)."""
        now = int(utc_now().timestamp())
        head = {
            "typ": "JWT",
            "alg": "ES256",
            "x5c": [base64.b64encode(self.certificate.der).decode()],
        }
        claims = {
            "iss": ISSUER,
            "sub": subject,
            "aud": SERVICE,
            "iat": now,
            "nbf": now - 60,
            "exp": now + max(self.life, 60),
            "jti": "1",
            "access": access,
        }
        text = f"{_part(head)}.{_part(claims)}"
        signature = self.certificate.key.sign(text.encode(), ec.ECDSA(hashes.SHA256()))
        r, s = decode_dss_signature(signature)
        return f"{text}.{_base64(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"


def _part(data: Mapping[str, Any]) -> str:
    """Encode a part of a token."""
    return _base64(json.dumps(data).encode())


def _base64(data: bytes) -> str:
    """Encode bytes as base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@contextlib.contextmanager
def token_server(server: TokenServer) -> Iterator[TokenServer]:
    """Run a token server until the block ends."""
    with serve(server.respond) as served:
        server.served = served
        yield server
