"""A client of the real API server for tests, faster than kubectl."""

from pathlib import Path
from typing import Any

import httpx
import msgspec

from cloister_clients.kube import KindRef, KubeConfig
from tests.support.waiting import storage_starts, until_sync

__all__ = ["DirectClient"]

Object = dict[str, Any]
_MERGE = "application/merge-patch+json"


class DirectClient:
    """A thread-safe connection pool with the identity of a kubeconfig."""

    def __init__(self, kubeconfig: Path, *, user: str | None = None, groups: str = "") -> None:
        """Open it.

        Parameters
        ----------
        user
            Who it acts as; None = the identity itself.
        """
        config = KubeConfig.from_file(kubeconfig)
        acting = [] if user is None else [("Impersonate-User", user)]
        acting += [("Impersonate-Group", group) for group in groups.split()]
        self._http = httpx.Client(
            base_url=config.server,
            verify=config.tls or True,
            timeout=30,
            trust_env=False,
            headers=acting,
        )

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def request(self, method: str, path: str, body: Any = None, **query: str) -> httpx.Response:
        """Send a request and return the response; retry while the kind's storage starts."""
        kind = _MERGE if method == "PATCH" else "application/json"
        content = None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": kind}

        def taken() -> httpx.Response | None:
            response = self._http.request(
                method, path, params=query, content=content, headers=headers
            )
            return None if storage_starts(response.status_code, response.text) else response

        response = until_sync(taken, what=f"{method} {path}")
        assert response is not None
        return response

    def list_objects(
        self, ref: KindRef, namespace: str | None = None, **query: str
    ) -> list[Object]:
        """List objects of a namespace; None = of all namespaces, or of a cluster-scoped kind."""
        body = msgspec.json.decode(self._sent("GET", ref.path(namespace), None, query).content)
        items: list[Object] = body["items"] or []
        return items

    def version(self, ref: KindRef) -> str:
        """Return the current resourceVersion."""
        body = self._sent("GET", ref.path(), None, {"limit": "1"}).json()
        return str(body["metadata"]["resourceVersion"])

    def get(self, ref: KindRef, name: str, namespace: str | None = None) -> Object | None:
        """Read an object; None = there is none."""
        response = self.request("GET", ref.path(namespace, name))
        if response.status_code == httpx.codes.NOT_FOUND:
            return None
        body: Object = response.raise_for_status().json()
        return body

    def create(self, ref: KindRef, body: Object) -> Object:
        """Create an object."""
        whole = {"apiVersion": ref.api_version, "kind": ref.kind, **body}
        namespace = body["metadata"].get("namespace")
        made: Object = self._sent("POST", ref.path(namespace), whole, {}).json()
        return made

    def patch(
        self,
        ref: KindRef,
        name: str,
        patch: Object,
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> httpx.Response:
        """Apply a merge patch and return the response."""
        return self.request("PATCH", ref.path(namespace, name, subresource), patch)

    def delete(
        self, ref: KindRef, name: str, namespace: str | None = None, *, grace: int | None = None
    ) -> httpx.Response:
        """Delete an object and return the response."""
        options = {"gracePeriodSeconds": grace} if grace is not None else {}
        return self.request("DELETE", ref.path(namespace, name), options)

    def _sent(self, method: str, path: str, body: Any, query: dict[str, str]) -> httpx.Response:
        """Send a request that must be accepted."""
        response = self.request(method, path, body, **query)
        assert response.is_success, f"{method} {path}: {response.status_code} {response.text}"
        return response
