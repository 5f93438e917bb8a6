"""Helm over what `kubectl apply` made, after `kubectl scale`, and beside an autoscaler."""

import base64
import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from dev.chart.helm import NAMESPACE as SYSTEM
from dev.chart.local import PATIENCE
from dev.chart.package import LOCK, manifest
from tests.support.installed.chart import Chart, this_chart
from tests.support.installed.life import Tenant
from tests.support.installed.place import Place, place_to_install
from tests.support.servers.postgres import Postgres, postgres
from tests.support.waiting import until_sync

pytestmark = [
    pytest.mark.node,
    pytest.mark.images,
    pytest.mark.programs("helm"),
    pytest.mark.timeout(1800),
]

KEYS = "cloister-own-keys"
DATABASE = "ledger"
FORCE = "--force-conflicts"


@dataclass(frozen=True, slots=True)
class Applied:
    """A place on which Cloister was installed without Helm, and serves a Container."""

    place: Place
    chart: Chart
    tenant: Tenant


@pytest.fixture(scope="module")
def applied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Applied]:
    folder = tmp_path_factory.mktemp("applied")
    chart = this_chart(folder)
    with place_to_install("applied", folder, chart) as place:
        made = place.with_chart(chart)
        made.prepare()
        made.apply(keys())
        place.changed["keys"] = {"existingSecret": KEYS}
        place.changed["authority"] = {"enabled": False}
        place.change_settings(chart, signedCertificates=False)
        values = made.write_values(**place.values(chart))
        rendered = manifest(chart.images / LOCK, values, SYSTEM)
        place.cluster.kubectl("apply", "--server-side", "-f", "-", stdin=rendered)
        place.wait_for_rollout("operator", "api")
        tenant = Tenant.create(made)
        tenant.create_container()
        tenant.wait_until_ready()
        yield Applied(place, chart, tenant)


@pytest.fixture
def database(applied: Applied) -> Iterator[Postgres]:
    """Provide a PostgreSQL that Pods reach, and a Secret with its address."""
    address = applied.place.cluster.host_address
    with postgres(address) as running:
        name = running.empty()
        url = f"postgresql://tester@{address}/{name}"
        applied.tenant.installation.apply(secret(DATABASE, url=url))
        yield running


def secret(name: str, **values: str) -> dict[str, object]:
    """Return a core Secret of the installation."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": SYSTEM},
        "stringData": values,
    }


def keys() -> dict[str, object]:
    """Return the Secret with the keys of an installation, as docs/install.md makes it."""
    index, sealing, installation = (
        base64.b64encode(secrets.token_bytes(32)).decode() for _ in range(3)
    )
    material = json.dumps({"index": index, "sealing": sealing})
    return secret(KEYS, **{"key-material": material, "installation-key": installation})


def replicas(place: Place, program: str) -> int:
    """Return how many replicas a Deployment is to have."""
    return int(
        place.cluster.kubectl(
            *("get", "deploy", f"cloister-{program}", "-n", SYSTEM),
            "-ojsonpath={.spec.replicas}",
        )
    )


def test_helm_takes_over_what_kubectl_applied(applied: Applied) -> None:
    place, tenant = applied.place, applied.tenant
    before = tenant.pods()
    assert "invalid ownership metadata" in place.refused("install", applied.chart)
    assert tenant.call("GET", "/api/containers")

    place.install("install", applied.chart, "--take-ownership", FORCE)
    assert tenant.pods() == before
    (container,) = tenant.call("GET", "/api/containers")
    assert container["status"] == "ready"

    # It is a release now, of which kubectl goes on to own what it applied: Helm has to insist.
    changed = {"settings": {"writeWaitSeconds": 6}}
    assert 'conflict with "kubectl"' in place.refused("upgrade", applied.chart, api=changed)
    place.install("upgrade", applied.chart, FORCE, api=changed)
    assert tenant.pods() == before

    # What was scaled by hand stands in the way of the next upgrade, until it is said whose word
    # counts; meanwhile nothing has changed.
    place.cluster.kubectl("scale", "-n", SYSTEM, "deploy/cloister-operator", "--replicas=3")
    assert ".spec.replicas" in place.refused("upgrade", applied.chart)
    assert replicas(place, "operator") == 3
    place.install("upgrade", applied.chart, FORCE)
    assert replicas(place, "operator") == 2

    # For maintenance there may be none: what serves goes on, and nothing is started.
    off = {**place.values(applied.chart)["operator"], "replicas": 0}
    place.install("upgrade", applied.chart, FORCE, operator=off)
    until_sync(lambda: not operators(place), within=PATIENCE, what="the end of the operator's Pods")
    place.cluster.kubectl(
        "get", "ctr", "web", "-n", tenant.objects("ctr")[0]["metadata"]["namespace"]
    )
    assert tenant.page().status == 200
    place.install("upgrade", applied.chart, FORCE)
    assert tenant.pods() == before


def operators(place: Place) -> list[str]:
    """Return the names of the operator's Pods."""
    label = "app.kubernetes.io/component=operator"
    return place.cluster.kubectl("get", "pods", "-n", SYSTEM, "-l", label, "-oname").split()


def test_an_upgrade_leaves_an_autoscalers_replicas_alone(
    applied: Applied, database: Postgres
) -> None:
    del database
    place = applied.place
    more: dict[str, Any] = {
        "ledger": {"postgresql": {"existingSecret": DATABASE}},
        "api": {"autoscaling": {"enabled": True, "minReplicas": 3, "maxReplicas": 3}},
    }
    flags = ("--install", "--take-ownership", FORCE)
    place.install("upgrade", applied.chart, *flags, **more)
    until_sync(lambda: replicas(place, "api") == 3, within=PATIENCE, what="the autoscaler's word")
    changed = {**more["api"], "settings": {"writeWaitSeconds": 7}}
    place.install("upgrade", applied.chart, FORCE, **(more | {"api": changed}))
    assert replicas(place, "api") == 3
