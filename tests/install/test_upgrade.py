"""From the release before this one to this version, and back, under load.

`tests/install/release.toml` names that release; its chart and images are built from its commit.
Requests reach the Container through a gateway all the while: none fails, its status stays Ready,
and nothing of its enclave is started again.
"""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from dev.chart.helm import NAMESPACE as SYSTEM
from dev.chart.local import PATIENCE
from dev.demo import repository
from dev.demo.manifests import NAMESPACE
from tests.support.clients.gateway_clients import GatewayClient, KeepAliveClient
from tests.support.installed.chart import Chart, earlier_chart, this_chart
from tests.support.installed.gateway import installed_with_gateway
from tests.support.installed.life import Tenant
from tests.support.installed.place import TAGS, Place, place_to_install
from tests.support.programs.helm import objects
from tests.support.servers.gateway import RunningGateway
from tests.support.waiting import until_sync

pytestmark = [
    pytest.mark.node,
    pytest.mark.images,
    pytest.mark.programs("helm"),
    pytest.mark.timeout(2400),
]

ENOUGH = 100
"""Requests that each client sends at least, so that a failure is likely to be seen."""
OF_PROGRAM = ("ConfigMap", "Deployment")
SHARED = (
    *("CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"),
    "ResourceQuota",
    *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
    *("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"),
)
"""What an upgrade brings before the programs: it is as new as the newer of both."""


@dataclass(frozen=True, slots=True)
class Two:
    """A place with the images of two versions, and a gateway to its containers."""

    place: Place
    older: Chart
    newer: Chart
    gateway: RunningGateway

    def image(self, program: str) -> str:
        """Return the image that a Deployment runs."""
        return self.place.cluster.kubectl(
            *("get", "deploy", f"cloister-{program}", "-n", SYSTEM),
            "-ojsonpath={.spec.template.spec.containers[0].image}",
        )

    def runs(self, program: str, chart: Chart) -> bool:
        """Return whether a Deployment runs a chart's image."""
        return self.image(program).endswith(chart.digests["cloister"])

    def put(self, chart: Chart, kinds: tuple[str, ...], program: str = "") -> None:
        """Apply objects of a chart as Helm does, those of one program or all of these kinds."""
        made = self.place.with_chart(chart)
        # What the chart makes once is there already, and a rendering does not see it.
        secrets = {
            "keys": {"existingSecret": "cloister-keys"},
            "authority": {"enabled": True, "existingSecret": "cloister-authority"},
        }
        values = made.write_values(**self.place.values(chart, **secrets))
        rendered = made.helm.output(
            *("template", made.helm.release, chart.package, "--values", values)
        )
        chosen = [
            each
            for (kind, _, name), each in objects(rendered).items()
            if kind in kinds and name in {f"cloister-{program}", *([] if program else [name])}
        ]
        assert chosen
        for each in chosen:
            own_by_helm(each, made.helm.release)
        manifests = yaml.safe_dump_all(chosen)
        self.place.cluster.kubectl(
            *("apply", "--server-side", "--field-manager=helm", "-f", "-"), stdin=manifests
        )
        if program:
            self.place.wait_for_rollout(program)


def own_by_helm(body: dict[str, Any], release: str) -> None:
    """Mark an object as one of a Helm release, without which Helm does not take it over."""
    metadata = body["metadata"]
    metadata["labels"] = {
        **(metadata.get("labels") or {}),
        "app.kubernetes.io/managed-by": "Helm",
    }
    metadata["annotations"] = {
        **(metadata.get("annotations") or {}),
        "meta.helm.sh/release-name": release,
        "meta.helm.sh/release-namespace": SYSTEM,
    }


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    folder = tmp_path_factory.mktemp("upgrade")
    newer, older = this_chart(folder), earlier_chart()
    assert newer.digests["cloister"] != older.digests["cloister"]
    with (
        place_to_install("upgrade", folder, older, newer) as place,
        installed_with_gateway(place, older, tmp_path_factory.mktemp("envoy")) as gateway,
    ):
        yield Two(place, older, newer, gateway)


@pytest.fixture(scope="module")
def tenant(two: Two) -> Tenant:
    """Provide an organization with a Container that serves, made by the older release."""
    made = Tenant.create(two.place.with_chart(two.older), limits={"containers": 10})
    made.create_container()
    made.wait_until_ready()
    return made


@contextmanager
def undisturbed(two: Two, tenant: Tenant) -> Iterator[None]:
    """Send requests until the block ends: all succeed, and nothing of the enclave has changed."""
    address = two.gateway.address
    clients = (GatewayClient(tenant.host(), address), KeepAliveClient(tenant.host(), address))
    before = (tenant.pods(), routes(two))
    with status_of("web", two) as seen:
        for client in clients:
            client.start()
        try:
            yield
            enough = until_sync(
                lambda: all(sum(each.pages.values()) >= ENOUGH for each in clients),
                within=PATIENCE,
                what="enough requests",
            )
            assert enough
        finally:
            for client in clients:
                client.end()
    assert [each.failures for each in clients] == [[], []]
    assert (tenant.pods(), routes(two)) == before
    assert set(seen) == {"ready True"}


def routes(two: Two) -> list[tuple[str, int]]:
    """Return identity and generation of every route of the Container."""
    web = ("-l", "cloister.dev/container=web")
    shown = two.place.cluster.kubectl("get", "tlsroutes", "-n", SYSTEM, "-ojson", *web)
    return sorted(
        (each["metadata"]["uid"], each["metadata"]["generation"])
        for each in json.loads(shown)["items"]
    )


@contextmanager
def status_of(name: str, two: Two) -> Iterator[list[str]]:
    """Watch a Container; the list has each status once the block has ended."""
    ready = '.status.conditions[?(@.type=="Ready")].status'
    path = two.place.folder / "watched.txt"
    cluster = two.place.cluster
    command = [str(cluster.bin("kubectl")), f"--kubeconfig={cluster.kubeconfig}"]
    command += ["get", "ctr", name, "-n", NAMESPACE, "-w", "--no-headers"]
    command += ["-o", f"custom-columns=PHASE:.status.phase,READY:{ready}"]
    seen: list[str] = []
    with path.open("w") as output, subprocess.Popen(command, stdout=output) as process:
        try:
            until_sync(path.read_text, what="the first status")
            yield seen
        finally:
            process.terminate()
    seen += [" ".join(line.split()) for line in path.read_text().splitlines()]


def live(two: Two, tenant: Tenant, name: str) -> None:
    """Create, update and delete a Container over REST, as both programs together do it."""
    body: dict[str, Any] = {"name": name, "repo": repository.REPO, "tag": TAGS[0]}
    mine = f"/api/containers/{tenant.call('POST', '/api/containers', body)['id']}"
    tenant.wait_until_ready(name)
    tenant.call("POST", f"{mine}/relaunch", {"tag": TAGS[1]})

    def updated() -> bool:
        found = tenant.call("GET", mine)
        return (found["status"], found["current_tag"]) == ("ready", TAGS[1])

    until_sync(updated, within=PATIENCE, what="the update")
    tenant.call("DELETE", mine)
    until_sync(
        lambda: [each["metadata"]["name"] for each in tenant.objects("ctr")] == ["web"],
        within=PATIENCE,
        what="the end",
    )


def test_no_request_fails_from_release_to_release_and_back(two: Two, tenant: Tenant) -> None:
    with undisturbed(two, tenant):
        # An operator of this version with an API of the one before, as in the midst of an upgrade.
        two.put(two.newer, SHARED)
        two.put(two.newer, OF_PROGRAM, "operator")
        assert two.runs("operator", two.newer)
        assert two.runs("api", two.older)
        live(two, tenant, "first")

    with undisturbed(two, tenant):
        two.place.install("upgrade", two.newer)
        assert two.runs("operator", two.newer)
        assert two.runs("api", two.newer)
        live(two, tenant, "second")

    with undisturbed(two, tenant):
        # And the other way around.
        two.put(two.older, OF_PROGRAM, "operator")
        assert two.runs("operator", two.older)
        assert two.runs("api", two.newer)
        live(two, tenant, "third")

    with undisturbed(two, tenant):
        helm = two.place.with_chart(two.older).helm
        helm.output("rollback", helm.release, "1", "--wait", f"--timeout={PATIENCE:.0f}s")
        assert two.runs("operator", two.older)
        assert two.runs("api", two.older)
        live(two, tenant, "fourth")

    with undisturbed(two, tenant):
        two.place.install("upgrade", two.newer)
        assert two.runs("operator", two.newer)
        assert two.runs("api", two.newer)
        live(two, tenant, "fifth")
