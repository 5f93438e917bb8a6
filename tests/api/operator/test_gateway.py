"""TLSRoutes on a real API server with the Gateway API's own kinds.

There is no node and no gateway: `tests.support.stand_ins.pod_status` writes the status of Pods as a
kubelet would, and the tests write the status of routes as the controller of a Gateway would.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from cloister_crds.kinds import Container
from cloister_operator.writer import FIELD_MANAGER
from dev.cluster import Cluster
from dev.cluster.images import Image, push
from tests.support.cluster.gateway_crds import GATEWAY_CRDS, install_gateway_crds
from tests.support.faults.crashing_operators import QUICK_LEASE
from tests.support.programs.facade import run_command
from tests.support.programs.operator import CONTAINERS_DOMAIN, Installation, condition_of, file_text
from tests.support.stand_ins.pod_status import run_pod
from tests.support.waiting import until_sync

KINDS = tuple(f"crd/{name}.gateway.networking.k8s.io" for name in GATEWAY_CRDS)


@pytest.fixture
def image(api_cluster: Cluster) -> str:
    return push(Image(files={"/x": b"x"}, entrypoint=("/x",)), api_cluster.registry, "tests/x")


@pytest.fixture
def prepared(installation: Installation, image: str) -> Installation:
    """Install the Gateway API and settings that name a Gateway."""
    install_gateway_crds(installation.cluster)
    return named(installation, image)


@pytest.fixture
def outdated(installation: Installation, image: str) -> Iterator[Installation]:
    """Install the last Gateway API without TLSRoute v1, and the same settings."""
    installation.kubectl("delete", "--ignore-not-found", *KINDS)
    install_gateway_crds(installation.cluster, old=True)
    try:
        yield named(installation, image)
    finally:
        installation.kubectl("delete", *KINDS)


def named(installation: Installation, image: str) -> Installation:
    """Name a Gateway in the settings."""
    installation.repository("acme/web").release("v1", file_text(image))
    installation.settings |= {
        "gateway": {"name": "public", "listener": "tls"},
        "lease": QUICK_LEASE,
    }
    return installation


def kind(plural: str, version: str = "v1") -> str:
    """Return a kind's full name: kubectl remembers which versions were served earlier."""
    return f"{plural}.{version}.gateway.networking.k8s.io"


def routes(installation: Installation, version: str = "v1") -> dict[str, dict[str, Any]]:
    place = kind("tlsroutes", version)
    found = installation.kubectl(
        "get", place, "-n", installation.system, "--show-managed-fields", "-o", "json"
    )
    return {each["metadata"]["name"]: each for each in json.loads(found)["items"]}


def routes_of(
    installation: Installation, *names: str, version: str = "v1"
) -> dict[str, dict[str, Any]]:
    """Wait until there are routes of exactly these names."""

    def reached() -> bool:
        return set(routes(installation, version)) == set(names)

    try:
        until_sync(reached, within=60, what=f"the routes {names}")
    except AssertionError as error:
        found = sorted(routes(installation, version))
        raise AssertionError(f"{error}: {found}\n{installation.logs()}") from error
    return routes(installation, version)


def say(installation: Installation, route: Mapping[str, Any], reason: str, message: str) -> None:
    """Write what the controller of the Gateway reports about a route."""
    condition = {
        "type": "Accepted",
        "status": str(reason == "Accepted"),
        "reason": reason,
        "message": message,
        "observedGeneration": route["metadata"]["generation"],
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    parent = {
        "parentRef": route["spec"]["parentRefs"][0],
        "controllerName": "gateway.example/tests",
        "conditions": [condition],
    }
    patch = json.dumps({"status": {"parents": [parent]}})
    version = route["apiVersion"].rpartition("/")[2]
    installation.kubectl(
        "patch", kind("tlsroutes", version), route["metadata"]["name"],
        "-n", installation.system, "--subresource=status", "--type=merge", "-p", patch,
    )  # fmt: skip


def served(installation: Installation, name: str = "web", **spec: Any) -> str:
    """Bring a Container up; return its host name."""
    installation.create_container(name, repo="acme/web", tag="v1", **spec)
    enclaves = until_sync(lambda: installation.enclaves(name), within=60, what="an Enclave")
    run_pod(installation, enclaves[0].metadata.name)
    installation.wait_for(name, "Available")
    return f"{name}.{installation.slug}.{CONTAINERS_DOMAIN}"


def test_a_gateway_without_its_kinds_is_refused(installation: Installation) -> None:
    installation.kubectl("delete", "--ignore-not-found", *KINDS)
    installation.settings["gateway"] = {"name": "public"}
    process = installation.operator()
    until_sync(lambda: not process.running, within=60, what="the end of the operator")
    assert process.wait() == 1
    assert "gateway: the cluster has no TLSRoute" in process.text
    assert "install the CRDs of the Gateway API" in process.text


def test_a_container_is_ready_when_the_gateway_routes_it(prepared: Installation) -> None:
    process = prepared.operator()
    process.wait_until_it_leads()
    assert "gateway:" not in process.text
    is_ready_when_routed(prepared, "v1")


def test_older_kinds_of_the_gateway_api_are_used_with_a_warning(outdated: Installation) -> None:
    process = outdated.operator()
    process.wait_until_it_leads()
    warning = (
        "the cluster serves TLSRoute as v1alpha3 and not as v1, ReferenceGrant as v1beta1 and not "
        "as v1: a gateway that knows only the newer version does not see these objects"
    )
    assert f"gateway: {warning}" in process.text
    assert "install the CRDs of the Gateway API 1.5 or newer" in process.text
    done = run_command(
        "doctor",
        *("--kubeconfig", str(outdated.cluster.kubeconfig), "--output", "json"),
        *("--operator-config", str(process.config)),
        check=False,
    )
    found = {each["check"]: each for each in json.loads(done.stdout)["findings"]}
    assert found["gateway"]["level"] == "warn"
    assert warning in found["gateway"]["message"]
    before = is_ready_when_routed(outdated, "v1alpha3")

    install_gateway_crds(outdated.cluster)
    outdated.kill_operator()
    outdated.operator().wait_until_it_leads()
    host = before["metadata"]["name"]
    break_route(outdated, host, before["spec"])
    after = routes(outdated)[host]
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert "gateway.networking.k8s.io/v1" in versions_of(after)


def is_ready_when_routed(prepared: Installation, version: str) -> dict[str, Any]:
    """Follow a Container until its route of that version is accepted, and return the route."""
    host = served(prepared)
    route = routes_of(prepared, host, version=version)[host]
    assert versions_of(route) == {f"gateway.networking.k8s.io/{version}"}
    assert route["spec"] == {
        "hostnames": [host],
        "parentRefs": [
            {
                "group": "gateway.networking.k8s.io",
                "kind": "Gateway",
                "name": "public",
                "namespace": prepared.system,
                "sectionName": "tls",
            }
        ],
        "rules": [
            {
                "backendRefs": [
                    {
                        "group": "",
                        "kind": "Service",
                        "name": "web",
                        "namespace": prepared.namespace,
                        "port": 443,
                        "weight": 1,
                    }
                ]
            }
        ],
    }
    grants = prepared.objects(kind("referencegrants", "v1beta1"))
    assert [each["spec"]["from"][0]["namespace"] for each in grants] == [prepared.system]
    pending = prepared.wait_for("web", "Reconciling", reason="RoutePending")
    assert f"{prepared.system}/public" in ready_message(pending)

    say(prepared, route, "NoMatchingListenerHostname", "No listener takes it.")
    refused = prepared.wait_for("web", "Reconciling", reason="RouteRefused")
    assert "No listener takes it. Ask the administrator" in ready_message(refused)
    say(prepared, route, "Accepted", "")
    prepared.wait_for("web", "Ready")
    prepared.wait_for("web", "Routed", reason="RouteAccepted")
    return route


def versions_of(route: dict[str, Any]) -> set[str]:
    """Return the versions in which the operator wrote a route."""
    managed = route["metadata"]["managedFields"]
    return {each["apiVersion"] for each in managed if each["manager"] == FIELD_MANAGER}


def ready_message(container: Container) -> str:
    condition = condition_of(container, "Ready")
    assert condition is not None
    assert condition["status"] == "False"
    return str(condition["message"])


def test_routes_are_repaired_and_deleted_with_their_container(prepared: Installation) -> None:
    prepared.operator().wait_until_it_leads()
    host, other = served(prepared), served(prepared, "other")
    before = routes_of(prepared, host, other)
    break_route(prepared, host, before[host]["spec"])
    prepared.create_container("other", repo="acme/web", tag="v1", state="Stopped")
    routes_of(prepared, host)
    prepared.kubectl("delete", "ctr", "web", "-n", prepared.namespace)
    routes_of(prepared)

    routes_of(prepared, served(prepared, "later"))
    prepared.kill_operator()
    prepared.kubectl("delete", "ctr", "later", "-n", prepared.namespace)
    prepared.operator().wait_until_it_leads()
    routes_of(prepared)


def break_route(installation: Installation, host: str, spec: Mapping[str, Any]) -> None:
    """Change a route, and wait until it is as it was."""
    broken = json.dumps({"spec": {"hostnames": ["elsewhere.example"]}})
    place = (kind("tlsroutes"), host, "-n", installation.system)
    installation.kubectl("patch", *place, "--type=merge", "-p", broken)
    until_sync(
        lambda: routes(installation)[host]["spec"] == spec, within=60, what="the route as it was"
    )
