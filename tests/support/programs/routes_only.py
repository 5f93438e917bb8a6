"""The facade's routes and its request guard without services, for tests of request validation.

Every call of a service returns `REACHED`: the request passed every check that
depends on the request alone.
"""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any, NoReturn

import httpx
from fastapi import FastAPI
from typing_extensions import override

from cloister_api.auth.authenticator import Principal
from cloister_api.errors import ApiError
from cloister_api.main import create_app
from cloister_api.sessions.settings import SessionSettings
from cloister_api.settings import ApiSettings
from cloister_clients.clock import utc_now
from cloister_crds.kinds import Organization
from cloister_crds.kinds.organization import Role

__all__ = ["CODES", "REACHED", "bare_app", "bare_client", "reported"]

REACHED = "reached the services"
"""Message of the response to a request that reached the services."""
KEY = "Bearer good"
"""Authorization header with a valid key."""
CODES = {
    400: "BAD_REQUEST",
    401: "UNAUTHORIZED",
    402: "PAYMENT_REQUIRED",
    403: "FORBIDDEN",
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    409: "CONFLICT",
    413: "PAYLOAD_TOO_LARGE",
    415: "UNSUPPORTED_MEDIA_TYPE",
    429: "RATE_LIMITED",
    500: "INTERNAL_ERROR",
    503: "UNAVAILABLE",
}
"""Codes of errors (spec 3.2, 20.9)."""
PRINCIPAL = Principal(
    "k1",
    "ada@example.test",
    Organization.read({"metadata": {"name": "acme"}, "spec": {"namespace": "org-acme"}}),
    role=Role.ADMIN,
    authenticated_at=utc_now() + timedelta(days=1),
)
"""Somebody who may do everything, as with an admin key and with a session just begun."""


class UnreachableService:
    """Represents every service: each call reports that the request reached it."""

    def __getattr__(self, name: str) -> "UnreachableService":
        return self

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        raise ApiError(404, "NOT_FOUND", REACHED)


class AdmittingService(UnreachableService):
    """Represents the services that judge headers: all are right."""

    async def admit(self, headers: Any) -> str:
        """Let a report or a release webhook in."""
        return "the caller"

    admit_webhook = admit

    async def holder(self, authorization: str | None) -> str:
        """Let an enclave in."""
        return "the enclave"

    @override
    def __getattr__(self, name: str) -> "AdmittingService":
        return self


class DiscardedTrail(UnreachableService):
    """An audit trail that discards all rows."""

    async def add(self, row: Any) -> None:
        """Discard a row."""


class BareContext:
    """A context without services."""

    cache = type("ClusterCache", (), {"ready": True})()
    audit = DiscardedTrail()
    clock = staticmethod(utc_now)
    settings = SimpleNamespace(dashboard=SimpleNamespace(session=SessionSettings()))

    async def authenticate(self, authorization: str | None) -> Principal:
        """Accept the one valid key."""
        if authorization != KEY:
            raise ApiError(401, "UNAUTHORIZED", "the key is unknown")
        return PRINCIPAL

    def __getattr__(self, name: str) -> AdmittingService:
        return AdmittingService()


def bare_app(**more: Any) -> FastAPI:
    """Build the application, with further settings."""
    settings = ApiSettings.model_validate(
        {
            "ledger": {"path": "/nowhere/ledger.db", "keyMaterial": "/nowhere/keys.json"},
            "sources": {"kind": "git", "base": "/nowhere"},
            # Thousands of requests of one organization within seconds.
            "limits": {"organizationWritesPerSecond": None},
            **more,
        }
    )
    app = create_app(settings, lambda: None)
    app.state.context = BareContext()
    return app


def bare_client(app: FastAPI, *, key: str | None = KEY) -> httpx.AsyncClient:
    """Return a client of the application; key None = without key."""
    headers = {} if key is None else {"authorization": key}
    transport = httpx.ASGITransport(app=app)
    return httpx.AsyncClient(transport=transport, base_url="http://facade.test", headers=headers)


def reported(response: httpx.Response, status: int) -> dict[str, Any]:
    """Check the form that every error response has, and return its body."""
    body: dict[str, Any] = response.json()
    assert response.status_code == status, body
    assert body["code"] == CODES[status]
    assert body["error"]
    assert body["request_id"] == response.headers["x-request-id"]
    assert body.keys() <= {
        "error",
        "code",
        "request_id",
        "details",
        "used_by",
        "used_by_containers",
    }
    for detail in body.get("details", ()):
        assert detail.keys() == {"field", "code", "message"}
        assert detail["message"]
    assert not [name for name in response.headers if name.startswith("access-control")]
    return body
