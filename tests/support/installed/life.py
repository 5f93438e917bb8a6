"""What organizations do with an installation: through kubectl, and through the API in its Pod."""

import json
from dataclasses import dataclass
from typing import Any

import httpx

from dev.chart.helm import NAMESPACE as SYSTEM
from dev.chart.local import CONTAINERS_DOMAIN, PATIENCE, LocalInstallation
from dev.demo import manifests, repository
from dev.demo.https_client import Page, fetch_page
from dev.demo.manifests import NAMESPACE
from dev.plain_http import NO_TRUST
from tests.support.installed.place import TAGS
from tests.support.waiting import until_sync

__all__ = ["Tenant"]


@dataclass(frozen=True, slots=True)
class Tenant:
    """An organization of an installation, and an administrator of it."""

    installation: LocalInstallation
    key: str
    """An admin key."""

    @classmethod
    def create(cls, installation: LocalInstallation, **spec: Any) -> "Tenant":
        """Create a Host, the Organization, and a key, as docs/install.md does."""
        body = manifests.organization()
        body["spec"] |= spec
        installation.apply(manifests.host(), body)
        kubectl = installation.cluster.kubectl
        until_sync(lambda: kubectl("get", "namespace", NAMESPACE, "-oname"), within=PATIENCE)
        key = installation.create_admin_key(
            organization=manifests.ORGANIZATION, user=manifests.USER, name="first"
        )
        return cls(installation, key)

    def create_container(self, name: str = "web", **spec: Any) -> None:
        """Create a Container by kubectl."""
        body = manifests.container(name, repo=repository.REPO, tag=TAGS[0])
        body["spec"] |= spec
        self.installation.apply(body)

    def wait_until_ready(self, name: str = "web") -> None:
        """Wait until a Container is ready."""
        self.installation.cluster.kubectl(
            *("wait", "--for=condition=Ready", f"ctr/{name}", "-n", NAMESPACE),
            f"--timeout={PATIENCE:.0f}s",
        )

    def objects(self, kinds: str, *arguments: str) -> list[dict[str, Any]]:
        """Return objects of the organization's namespace."""
        shown = self.installation.cluster.kubectl(
            "get", kinds, "-n", NAMESPACE, "-ojson", *arguments
        )
        found: list[dict[str, Any]] = json.loads(shown)["items"]
        return found

    def pods(self, name: str = "web") -> list[tuple[str, str]]:
        """Return identity and phase of every Pod of a Container."""
        return sorted(
            (each["metadata"]["uid"], each["status"]["phase"])
            for each in self.objects("pods", "-l", f"cloister.dev/container={name}")
        )

    def address(self, name: str = "web") -> str:
        """Return the address of a Container's Service."""
        (service,) = self.objects("services", "-l", f"cloister.dev/container={name}")
        address: str = service["spec"]["clusterIP"]
        return address

    def host(self, name: str = "web") -> str:
        """Return the host name of a Container."""
        return f"{name}.{manifests.ORGANIZATION}.{CONTAINERS_DOMAIN}"

    def page(self, name: str = "web") -> Page:
        """Fetch the page of a Container.

        Raises
        ------
        OSError
            When it does not respond.
        """
        return fetch_page(self.address(name), 443, self.host(name), "/")

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Send a request to the API in its Pod; it is away for moments while it is replaced.

        Raises
        ------
        AssertionError
            When it refuses.
        """
        response = until_sync(lambda: self._sent(method, path, body), what=f"{method} {path}")
        assert response is not None
        assert response.is_success, f"{method} {path}: {response.status_code} {response.text}"
        return response.json() if response.content else None

    def _sent(self, method: str, path: str, body: dict[str, Any] | None) -> httpx.Response | None:
        address = self.installation.cluster.kubectl(
            *("get", "service", "cloister-api", "-n", SYSTEM, "-ojsonpath={.spec.clusterIP}")
        )
        headers = {"Authorization": f"Bearer {self.key}"}
        try:
            with httpx.Client(
                base_url=f"http://{address}", timeout=60, trust_env=False, verify=NO_TRUST
            ) as client:
                response = client.request(method, path, json=body, headers=headers)
        except httpx.TransportError:
            return None
        return None if response.status_code == httpx.codes.SERVICE_UNAVAILABLE else response
