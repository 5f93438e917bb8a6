"""A token server for a real registry: gives signed tokens to whom it knows.

Speaks the distribution project's "Token Authentication Specification"; the registry checks the
signature against the certificate, so only these tokens open it.
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
    """Certificate whose key signs."""
    users: dict[str, str]
    """User name -> password."""
    public: set[str] = field(default_factory=set)
    """Repositories that may be pulled without a user."""
    life: int = 300
    """Life of a token, in seconds."""
    fault: Reply | None = None
    """Return of every request; None: the usual ones."""
    served: HttpServer | None = None
    """The server; None before it runs."""

    def auth(self) -> dict[str, Any]:
        """Write the part ``auth`` of the registry's configuration."""
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
        """What it was asked, in order."""
        assert self.served is not None
        return self.served.requests

    def answer(self, request: Request) -> Reply:
        """Provide a token for what the asker may do."""
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
        """Return who asks: empty for nobody in particular, None for wrong credentials."""
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
    """Write a part of a token."""
    return _base64(json.dumps(data).encode())


def _base64(data: bytes) -> str:
    """Write bytes as tokens do."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@contextlib.contextmanager
def token_server(server: TokenServer) -> Iterator[TokenServer]:
    """Run a token server until the block ends."""
    with serve(server.answer) as served:
        server.served = served
        yield server
