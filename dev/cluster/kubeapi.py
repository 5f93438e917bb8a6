"""A small client of the cluster's own API server, for its readiness and first objects."""

import ssl
from pathlib import Path
from typing import Any, Self

import httpx

from dev.cluster.layout import LocalClusterError


def _context(authority: Path, certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority))
    context.load_cert_chain(str(certificate), str(key))
    return context


def serves(url: str, authority: Path, certificate: Path, key: Path) -> bool:
    """Return whether a health endpoint responds with 200."""
    try:
        context = _context(authority, certificate, key)
        return httpx.get(url, verify=context, timeout=5, trust_env=False).is_success
    except httpx.HTTPError:
        return False


class KubeAPI:
    """Read and apply objects as the cluster's administrator."""

    def __init__(self, server: str, pki: Path) -> None:
        self._client = httpx.Client(
            base_url=server,
            verify=_context(pki / "ca.crt", pki / "admin.crt", pki / "admin.key"),
            timeout=30,
            trust_env=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def get(self, path: str) -> dict[str, Any] | None:
        """Read an object or a list.

        Parameters
        ----------
        path
            Path below the server, such as ``/api/v1/nodes``.

        Returns
        -------
        dict or None
            The object; None = it does not exist.

        Raises
        ------
        LocalClusterError
            When the server refuses or does not respond.
        """
        response = self._send("GET", path)
        if response.status_code == httpx.codes.NOT_FOUND:
            return None
        return self._content(response)

    def apply(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Apply an object by server-side apply.

        Raises
        ------
        LocalClusterError
            When the server refuses or does not respond.
        """
        return self._content(
            self._send(
                "PATCH",
                path,
                params={"fieldManager": "cloister-dev-cluster", "force": "true"},
                headers={"Content-Type": "application/apply-patch+yaml"},
                json=body,
            )
        )

    def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            return self._client.request(method, path, **options)
        except httpx.HTTPError as error:
            raise LocalClusterError(
                f"{method} {path}: the API server does not respond: {error}"
            ) from error

    @staticmethod
    def _content(response: httpx.Response) -> dict[str, Any]:
        if not response.is_success:
            raise LocalClusterError(
                f"{response.request.method} {response.request.url.path}: "
                f"{response.status_code} {response.text[:500]}"
            )
        content: dict[str, Any] = response.json()
        return content
