"""Private images on a real node, from a registry with passwords: a tenant's and our own."""

import json
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dev.cluster import Cluster
from dev.cluster.images import busybox_image, guest_image, push
from tests.support.programs.operator import Installation, manifest, operator_lock
from tests.support.programs.web_service import PageServices, page_file
from tests.support.servers.registry import Registry, registry
from tests.support.waiting import until_sync

pytestmark = pytest.mark.node

PASSWORD_FILE = "user:$2b$05$cloistertestregistrysOajaVRXcXDYCkWyYxvGUBw4u3lgwsV2m\n"
"""The user `user` with the password `right`, in bcrypt, the one form that the registry reads."""


@dataclass(frozen=True, slots=True)
class Private:
    """A registry with passwords."""

    registry: Registry
    image: str
    """A tenant's image in it."""
    guest: str
    """The guest in it."""


@pytest.fixture(scope="module")
def private(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Private]:
    """Provide a registry with passwords that the node can reach, and images in it."""
    folder = tmp_path_factory.mktemp("registry")
    with registry(folder) as open_one:
        image = push(busybox_image(), open_one.host, "acme/private").rpartition("@")[2]
        guest = push(guest_image(), open_one.host, "ours/guest").rpartition("@")[2]
    passwords = folder / "htpasswd"
    passwords.write_text(PASSWORD_FILE)
    auth = {"htpasswd": {"realm": "test", "path": str(passwords)}}
    with registry(folder, auth=auth, everywhere=True) as running:
        lead_node_to(cluster, running)
        yield Private(
            running,
            image=f"{running.host}/acme/private@{image}",
            guest=f"{running.host}/ours/guest@{guest}",
        )


def lead_node_to(cluster: Cluster, running: Registry) -> None:
    """Point containerd at a registry of this machine whose references name the loopback."""
    url = f"http://{cluster.record.host_address}:{running.port}"
    place = cluster.layout.config / "registries" / running.host
    place.mkdir(parents=True)
    text = f'server = "{url}"\n\n[host."{url}"]\n  capabilities = ["pull", "resolve"]\n'
    (place / "hosts.toml").write_text(text)


@pytest.fixture(scope="module")
def installation(
    cluster: Cluster, private: Private, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    pages = PageServices(cluster)
    named = [cluster.registry, private.registry.host]
    reached = {
        "plainHttp": named,
        "allowPrivate": named,
        "privateHosts": {"ghcr": [private.registry.host]},
    }
    ours = {"guestImage": private.guest, "imagePullSecrets": ["installation"]}
    folder: Path = tmp_path_factory.mktemp("installation")
    with operator_lock(cluster.name):
        settings = pages.settings | ours | {"claimAgeSeconds": 1, "registry": reached}
        installed = Installation(cluster, folder, settings)
        try:
            installed.prepare()
            installed.create_organization()
            entitled = {"spec": {"entitlements": {"privateRegistries": True}}}
            name = f"organizations.cloister.dev/{installed.slug}"
            installed.kubectl("patch", name, "--type=merge", "-p", json.dumps(entitled))
            installed.repository("acme/open").release("v1.0.0", page_file(pages.web, "open page"))
            installed.repository("acme/web").release(
                "v1.0.0", page_file(private.image, "secret page")
            )
            installed.operator().wait_until_it_leads()
            yield installed
        finally:
            installed.end()


def write_password(
    installation: Installation, host: str, password: str, *, name: str = "registry"
) -> None:
    """Write a core Secret with credentials, as docker login does."""
    pair = b64encode(f"user:{password}".encode()).decode()
    document = json.dumps({"auths": {host: {"auth": pair}}})
    installation.apply(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/dockerconfigjson",
            "metadata": {"name": name, "namespace": installation.namespace},
            "data": {".dockerconfigjson": b64encode(document.encode()).decode()},
        }
    )


def status_of(installation: Installation) -> dict[str, Any]:
    (credential,) = installation.objects("registrycredentials.cloister.dev")
    found: dict[str, Any] = credential.get("status", {})
    return found


def refused_pulls(installation: Installation) -> list[str]:
    """Return what Enclaves say of images that the node cannot pull."""
    return [
        each["message"]
        for enclave in installation.objects("enclaves.cloister.dev")
        for each in enclave.get("status", {}).get("conditions", ())
        if each["reason"] == "ImagePull"
    ]


def pull_secrets(installation: Installation, container: str) -> list[list[str]]:
    """Return which Secrets each Pod of a Container is pulled with."""
    return [
        [secret["name"] for secret in pod["spec"]["imagePullSecrets"]]
        for pod in installation.objects("pods")
        if pod["metadata"]["labels"]["cloister.dev/container"] == container
    ]


def test_the_guest_is_pulled_with_the_administrators_password(
    installation: Installation, private: Private
) -> None:
    installation.create_container("open", repo="acme/open", tag="v1.0.0")
    waiting = until_sync(lambda: refused_pulls(installation), what="a pull refused")
    assert "keep" in waiting[0]
    # It goes by its name from now on, without another request of the tenant.
    write_password(installation, private.registry.host, "right", name="installation")
    installation.wait_for("open", "Ready")
    assert pull_secrets(installation, "open") == [["installation"]]
    installation.kubectl("delete", "ctr", "open", "-n", installation.namespace)
    until_sync(lambda: not installation.objects("pods"), what="its end")


@pytest.mark.spec("40.2")
def test_a_private_image_is_pulled_with_the_organizations_password(
    installation: Installation, private: Private
) -> None:
    host = private.registry.host
    write_password(installation, host, "wrong")
    reference = {"name": "registry", "key": ".dockerconfigjson"}
    spec = {"registry": "ghcr", "secretRef": reference}
    installation.apply(manifest("RegistryCredential", "ghcr", spec, installation.namespace))
    until_sync(lambda: status_of(installation).get("username") == "user", what="a user name")
    installation.create_container("web", repo="acme/web", tag="v1.0.0")
    refused = installation.wait_for("web", "Stalled", reason="RegistryUnauthorized")
    assert "wrong" not in str(refused.status.wire())
    until_sync(lambda: status_of(installation).get("expired") is True, what="a refusal")
    write_password(installation, host, "right")
    installation.create_container("web", repo="acme/web", tag="v1.0.0", relaunch="again")
    installation.wait_for("web", "Ready")
    until_sync(lambda: not status_of(installation).get("expired", False), what="their use")
    assert pull_secrets(installation, "web") == [["installation", "registry"]]
