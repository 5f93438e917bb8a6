"""Raw requests to a real API server, as administrator or as a service account.

None of Cloister's clients is involved: tests see the server's own response.
"""

import base64
import json
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self

import aiohttp
import yaml

from cloister_clients.kube.transport import ConnectionSockets
from tests.support.waiting import storage_starts, until

__all__ = ["ApiResponse", "ApiServer"]

PATCHES = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
"""Short names for the media types of patches."""


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """A response of the API server."""

    status: int
    """HTTP status."""
    body: dict[str, Any]
    """Object or Status."""

    @property
    def accepted(self) -> bool:
        """Whether the request was accepted."""
        return self.status < HTTPStatus.BAD_REQUEST

    @property
    def message(self) -> str:
        """Message of a refusal; empty = there is none."""
        return "" if self.accepted else str(self.body.get("message", self.body))


class ApiServer:
    """One identity at one API server."""

    def __init__(
        self, address: str, trust: ssl.SSLContext, headers: Sequence[tuple[str, str]] = ()
    ) -> None:
        self.address = address
        """Address of the server, without path."""
        self._trust = trust
        self._headers = list(headers)
        self._opened: aiohttp.ClientSession | None = None
        self._sockets = ConnectionSockets()

    @property
    def _session(self) -> aiohttp.ClientSession:
        """The connection pool, created by the first request in the running event loop."""
        if self._opened is None:
            self._opened = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    ssl=self._trust, limit=32, socket_factory=self._sockets.create
                ),
                headers=self._headers,
                timeout=aiohttp.ClientTimeout(total=60),
            )
        return self._opened

    @classmethod
    def administrator(cls, kubeconfig: Path) -> Self:
        """Return the identity of a kubeconfig with a client certificate."""
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        return cls(cluster["server"], _trust(cluster, user, kubeconfig.parent))

    def bearer(self, token: str) -> "ApiServer":
        """Return an identity with a token instead of a certificate."""
        return ApiServer(self.address, self._anonymous(), [("Authorization", f"Bearer {token}")])

    def impersonating(self, user: str, *groups: str) -> "ApiServer":
        """Return an identity that impersonates a user."""
        headers = [("Impersonate-User", user), *(("Impersonate-Group", group) for group in groups)]
        return ApiServer(self.address, self._trust, headers)

    def _anonymous(self) -> ssl.SSLContext:
        """Return a context that trusts the same authority but presents no certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        for authority in self._trust.get_ca_certs(binary_form=True):
            context.load_verify_locations(cadata=authority)
        return context

    async def request(
        self, method: str, path: str, body: Any = None, *, patch: str | None = None, **query: str
    ) -> ApiResponse:
        """Send a request and return the response; retry while the kind's storage starts."""
        headers = {"Content-Type": PATCHES[patch] if patch else "application/json"}
        content = None
        if body is not None:
            content = json.dumps(body, ensure_ascii=False, allow_nan=False).encode()

        async def taken() -> ApiResponse | None:
            url = f"{self.address}{path}"
            async with self._session.request(
                method, url, params=query, data=content, headers=headers
            ) as response:
                text = await response.text("utf-8")
            if storage_starts(response.status, text):
                return None
            try:
                return ApiResponse(response.status, json.loads(text))
            except ValueError:
                return ApiResponse(response.status, {"message": text})

        verdict = await until(taken, what=f"{method} {path}")
        assert verdict is not None
        return verdict

    async def get(self, path: str, **query: str) -> ApiResponse:
        """Read."""
        return await self.request("GET", path, **query)

    async def post(self, path: str, body: Any, **query: str) -> ApiResponse:
        """Create."""
        return await self.request("POST", path, body, **query)

    async def put(self, path: str, body: Any, **query: str) -> ApiResponse:
        """Replace."""
        return await self.request("PUT", path, body, **query)

    async def patch(
        self, path: str, body: Any, *, form: str = "merge", **query: str
    ) -> ApiResponse:
        """Change: a merge patch, a JSON patch or server-side apply."""
        return await self.request("PATCH", path, body, patch=form, **query)

    async def delete(self, path: str, **query: str) -> ApiResponse:
        """Delete."""
        return await self.request("DELETE", path, **query)

    async def apply(self, manifest: dict[str, Any], path: str) -> ApiResponse:
        """Create or change by server-side apply; fail when it is refused."""
        verdict = await self.patch(
            path, manifest, form="apply", fieldManager="cloister-tests", force="true"
        )
        assert verdict.accepted, f"{path}: {verdict.message}"
        return verdict

    async def token(self, namespace: str, account: str) -> str:
        """Create a service account if it is missing, and a token for it."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}"
        body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}}
        await self.apply(body, path)
        verdict = await self.post(
            f"{path}/token", {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        )
        assert verdict.accepted, verdict.message
        return str(verdict.body["status"]["token"])

    async def aclose(self) -> None:
        """Close all connections."""
        if self._opened is not None:
            await self._opened.close()
            await self._sockets.hang_up()


def _trust(cluster: dict[str, Any], user: dict[str, Any], folder: Path) -> ssl.SSLContext:
    """Return a context that trusts the cluster's authority and presents the user's certificate."""
    context = ssl.create_default_context(
        cadata=_material(cluster, "certificate-authority", folder).decode()
    )
    with tempfile.TemporaryDirectory() as place:
        certificate, key = Path(place, "certificate.pem"), Path(place, "key.pem")
        certificate.write_bytes(_material(user, "client-certificate", folder))
        key.write_bytes(_material(user, "client-key", folder))
        context.load_cert_chain(certificate, key)
    return context


def _material(entry: dict[str, Any], name: str, folder: Path) -> bytes:
    """Return data that a kubeconfig contains inline or refers to as a file."""
    if f"{name}-data" in entry:
        return base64.b64decode(entry[f"{name}-data"])
    return (folder / str(entry[name])).read_bytes()
