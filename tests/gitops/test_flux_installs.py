"""The chart by Flux's helm-controller, as docs/gitops/flux.md has it, on a fresh cluster.

The node is simulated by kwok: Pods of the operator and the API become ready, that of the check
before an upgrade completes, and nothing runs.
"""

import base64
import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from cloister_clients.kube.kinds import SECRET
from dev import cluster as local
from dev.chart.__main__ import main as chart
from dev.images import digests
from dev.images.release import current
from tests.support.cluster.clusters import session_name
from tests.support.cluster.direct_client import DirectClient
from tests.support.gitops.flux import CONTROLLERS, RELEASE, Flux, condition, flux_on
from tests.support.gitops.pages import Page
from tests.support.programs.helm import Helm

pytestmark = [pytest.mark.programs("helm", "kwok", *CONTROLLERS), pytest.mark.timeout(900)]

NAMESPACE = "cloister-system"
IMAGES = ("cloister", "cloister-guest", "cloister-shim")
NAMES = {("Namespace", NAMESPACE), ("OCIRepository", "cloister"), ("HelmRelease", "cloister")}
"""What the page has for the installation."""


@dataclass(frozen=True, slots=True)
class Fresh:
    """A cluster without anything of Cloister, and Flux."""

    cluster: local.Cluster
    flux: Flux
    page: Page

    @property
    def direct(self) -> DirectClient:
        """The API server, as an administrator."""
        return self.flux.direct

    def apply(self, *bodies: dict[str, Any]) -> None:
        """Apply objects."""
        text = "\n".join(json.dumps(body) for body in bodies)
        self.cluster.kubectl("apply", "--server-side", "-f", "-", stdin=text)

    def installed(self, version: int) -> dict[str, Any]:
        """Wait until a release of that number is installed and ready, and return the object."""

        def ready() -> dict[str, Any]:
            body = self.direct.get(RELEASE, "cloister", NAMESPACE)
            assert body is not None
            said = condition(body, "Ready")
            status = body.get("status", {})
            assert said is not None, status
            assert said["status"] == "True", status
            assert status["observedGeneration"] == body["metadata"]["generation"], status
            assert status["history"][0]["version"] == version, status
            return body

        return self.flux.wait(ready, f"release {version} of the chart")

    def keys(self) -> dict[str, str]:
        """Return the keys that the chart made."""
        body = self.direct.get(SECRET, "cloister-keys", NAMESPACE)
        assert body is not None
        data: dict[str, str] = body["data"]
        return data

    def image(self) -> str:
        """Return the image of the operator's Deployment."""
        where = ("deployment", "cloister-operator", "-n", NAMESPACE)
        return self.cluster.kubectl(
            "get", *where, "-o", "jsonpath={.spec.template.spec.containers[0].image}"
        )


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Fresh]:
    """Provide Flux on a fresh cluster with a simulated node, and the chart in its registry."""
    cluster = local.up(f"{session_name()}-flux", node=False, simulated=True)
    push_chart(tmp_path, cluster.registry)
    page = Page("flux", {"registry.example.com": cluster.registry})
    with (
        closing(DirectClient(cluster.kubeconfig)) as direct,
        flux_on(cluster, direct, NAMESPACE, tmp_path) as flux,
    ):
        yield Fresh(cluster, flux, page)
    local.down(cluster.name)


def push_chart(folder: Path, registry: str) -> None:
    """Package the chart with digests of images that nothing pulls, and push it."""
    made = dict.fromkeys(IMAGES, f"sha256:{'a' * 64}")
    digests.write(folder / "images.lock", current(), made, f"{registry}/cloister")
    asked = ["--images", str(folder / "images.lock"), "--output", str(folder), "package"]
    assert chart(asked) == 0
    (package,) = folder.glob("cloister-*.tgz")
    pushed = Helm(folder).run("push", str(package), f"oci://{registry}/charts", "--plain-http")
    assert pushed.returncode == 0, pushed.stderr


def volume() -> dict[str, Any]:
    """Return a volume for the ledger, since the cluster makes none by itself."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "ledger"},
        "spec": {
            "capacity": {"storage": "100Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/nowhere"},
        },
    }


def test_flux_installs_and_upgrades_the_chart_and_corrects_drift(fresh: Fresh) -> None:
    bodies = {key: body for key, body in fresh.page.manifests().items() if key in NAMES}
    assert set(bodies) == NAMES
    # The registry of the test speaks plain HTTP.
    bodies["OCIRepository", "cloister"]["spec"]["insecure"] = True
    fresh.apply(volume(), *bodies.values())
    fresh.installed(1)
    keys = fresh.keys()
    assert len(base64.b64decode(keys["installation-key"])) >= 32
    image = fresh.image()

    values = {"values": {"api": {"settings": {"writeWaitSeconds": 6}}}}
    patched = fresh.direct.patch(RELEASE, "cloister", {"spec": values}, NAMESPACE)
    patched.raise_for_status()
    fresh.installed(2)
    assert fresh.keys() == keys
    read = ("get", "configmap", "cloister-api", "-n", NAMESPACE, "-ojsonpath={.data.api\\.yaml}")
    assert yaml.safe_load(fresh.cluster.kubectl(*read))["writeWaitSeconds"] == 6

    fresh.flux.reconcile(RELEASE, "cloister")
    fresh.installed(2)
    fresh.cluster.kubectl(
        *("set", "image", "deployment/cloister-operator", "-n", NAMESPACE),
        "operator=registry.invalid/other",
    )
    fresh.flux.request(RELEASE, "cloister")
    fresh.flux.wait(lambda: fresh.image() == image, "the image of the chart")
