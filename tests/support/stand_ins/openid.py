"""An OpenID provider that says and signs whatever a test wants, on a socket.

A certified provider forges nothing. This one speaks the documented protocol, checks what the client
sends as strictly as a real one, and changes the tokens of the sign-ins that a test has prepared.
"""

import base64
import contextlib
import hashlib
import json
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key

from tests.support.stand_ins.http_server import HttpServer, Reply, Request, serve

__all__ = ["CLIENT", "SECRET", "Forged", "OpenIdStandIn", "as_key", "new_key", "openid_stand_in"]

CLIENT, SECRET = "dash board", "made-up/secret:+%"
"""A client, and a secret that has to be encoded in its header (RFC 6749, section 2.3.1)."""
ADA = {"sub": "ada", "email": "ada@example.test", "email_verified": True}
"""Claims of somebody who may sign in."""


def new_key() -> RSAPrivateKey:
    """Return a new key."""
    return generate_private_key(65537, 2048)


@dataclass
class Forged:
    """How the tokens of one sign-in differ from what is right."""

    claims: Mapping[str, Any] = field(default_factory=dict)
    """Claims of the ID token in place of the right ones; None leaves one out."""
    user_info: Any = None
    """Response of UserInfo; None = it is not there."""
    key: RSAPrivateKey | None = None
    """Key that signs; None = the provider's own."""
    kid: str | None = "own"
    """Identifier of the key that the token names; None = none."""
    algorithm: str = "RS256"
    """Algorithm of the signature."""
    token: str | None = None
    """The whole ID token; None = one is made."""
    answer: Reply | None = None
    """Response of the token endpoint; None = the usual one."""
    nonce: str = ""
    """Nonce of the attempt."""
    challenge: str = ""
    """Code challenge of the attempt."""
    redirect: str = ""
    """Address to which the browser is sent back."""


@dataclass
class OpenIdStandIn:
    """The provider."""

    own: RSAPrivateKey = field(default_factory=new_key, repr=False)
    """Its key."""
    published: dict[str, RSAPrivateKey] = field(default_factory=dict)
    """Identifier -> further key of its key set."""
    key_set: Any = None
    """Its whole key set; None = the usual one."""
    document: dict[str, Any] = field(default_factory=dict)
    """Fields of its discovery document in place of the usual ones; None leaves one out."""
    down: bool = False
    """Whether it responds with 503 alone."""
    sign_ins: dict[str, Forged] = field(default_factory=dict)
    """Code -> sign-in."""
    served: HttpServer | None = None
    """The server; None before it runs."""

    @property
    def issuer(self) -> str:
        """Its issuer."""
        assert self.served is not None
        return self.served.base

    def read(self, path: str) -> int:
        """Return how often a path was requested."""
        assert self.served is not None
        return sum(request.path == path for request in self.served.requests)

    def consent(self, address: str, forged: Forged, **parameters: str | None) -> str:
        """Sign somebody in without a page, and return the path and query of the way back.

        Parameters
        ----------
        parameters
            Parameters of the way back in place of the usual ones; None leaves one out.
        """
        asked = dict(parse_qsl(urlsplit(address).query))
        assert asked["code_challenge_method"] == "S256"
        assert asked["response_type"] == "code"
        forged.nonce, forged.challenge = asked["nonce"], asked["code_challenge"]
        forged.redirect = asked["redirect_uri"]
        code = f"code-{len(self.sign_ins)}"
        self.sign_ins[code] = forged
        given = {"code": code, "state": asked["state"], **parameters}
        query = "&".join(f"{name}={value}" for name, value in given.items() if value is not None)
        return f"{urlsplit(forged.redirect).path}?{query}"

    def respond(self, request: Request) -> Reply:
        """Respond to a request."""
        if self.down:
            return Reply(503, b"down")
        match request.path:
            case "/.well-known/openid-configuration":
                return as_json(without_none({**self._document(), **self.document}))
            case "/keys":
                usual = [as_key(kid, key) for kid, key in self._keys().items()]
                return as_json({"keys": usual} if self.key_set is None else self.key_set)
            case "/token":
                return self._exchanged(request)
            case "/userinfo":
                code = request.headers["authorization"].removeprefix("Bearer access-")
                found = self.sign_ins[code].user_info
                return Reply(404) if found is None else as_json(found)
            case _:
                return Reply(404)

    def _document(self) -> dict[str, Any]:
        base = self.issuer
        return {
            "issuer": base,
            "authorization_endpoint": f"{base}/authorize",
            "token_endpoint": f"{base}/token",
            "jwks_uri": f"{base}/keys",
            "userinfo_endpoint": f"{base}/userinfo",
            "response_types_supported": ["code"],
            "id_token_signing_alg_values_supported": ["RS256", "HS256"],
        }

    def _keys(self) -> dict[str, RSAPrivateKey]:
        return {"own": self.own, **self.published}

    def _exchanged(self, request: Request) -> Reply:
        """Exchange a code, once."""
        form = {name: values[0] for name, values in parse_qs(request.body.decode()).items()}
        found = self.sign_ins.get(form["code"])
        if found is None or found.challenge != challenge_of(form["code_verifier"]):
            return as_json({"error": "invalid_grant"}, 400)
        if request.headers.get("authorization") != basic():
            return as_json({"error": "invalid_client"}, 401)
        if form["redirect_uri"] != found.redirect:
            return as_json({"error": "invalid_grant"}, 400)
        found.challenge = "used"
        if found.answer is not None:
            return found.answer
        tokens = {
            "token_type": "Bearer",
            "access_token": f"access-{form['code']}",
            "id_token": found.token or self._signed(found),
        }
        return as_json(tokens)

    def _signed(self, forged: Forged) -> str:
        now = int(time.time())  # noqa: TID251 - the stand-in has its own clock
        right = {
            "iss": self.issuer,
            "aud": CLIENT,
            "iat": now,
            "exp": now + 300,
            "nonce": forged.nonce,
            **ADA,
        }
        headers = {"kid": forged.kid} if forged.kid is not None else {}
        return jwt.encode(
            without_none({**right, **forged.claims}),
            forged.key or self.own,
            algorithm=forged.algorithm,
            headers=headers,
        )


def basic() -> str:
    """Return the header by which the client proves who it is."""
    pair = b"dash+board:made-up%2Fsecret%3A%2B%25"
    return f"Basic {base64.b64encode(pair).decode()}"


def challenge_of(verifier: str) -> str:
    """Return the code challenge of a verifier (RFC 7636)."""
    digest = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def as_key(kid: str, key: RSAPrivateKey) -> dict[str, Any]:
    """Return the public part of a key as a key set has it."""
    public = jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
    return {**public, "kid": kid, "use": "sig"}


def as_json(document: Any, status: int = 200) -> Reply:
    """Return a response with a document."""
    return Reply(status, json.dumps(document).encode(), {"Content-Type": "application/json"})


def without_none(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document without the fields that are None."""
    return {name: value for name, value in document.items() if value is not None}


@contextlib.contextmanager
def openid_stand_in() -> Iterator[OpenIdStandIn]:
    """Run the provider until the block ends."""
    provider, lock = OpenIdStandIn(), threading.Lock()

    def respond(request: Request) -> Reply:
        with lock:
            return provider.respond(request)

    with serve(respond) as provider.served:
        yield provider
