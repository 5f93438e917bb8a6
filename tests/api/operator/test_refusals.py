"""Requests that cannot be admitted: Stalled with a message, and no child is created."""

import json
import uuid
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from cloister_crds.kinds.container import ContainerPhase
from dev.cluster import Cluster
from tests.support.programs.operator import (
    Installation,
    condition_of,
    file_text,
    manifest,
    operator_lock,
)
from tests.support.waiting import until_sync

IMAGE = "registry.invalid/web@sha256:" + "ab" * 32


@pytest.fixture(scope="module")
def operated(
    api_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    with operator_lock(api_cluster.name):
        # An object that breaks rules cannot name its trace either; the collector is not needed.
        settings = {"tracing": {"endpoint": "http://127.0.0.1:9/v1/traces"}}
        installation = Installation(api_cluster, tmp_path_factory.mktemp("installation"), settings)
        try:
            installation.prepare()
            installation.create_organization()
            repository = installation.repository("acme/web")
            repository.release("v1", file_text(IMAGE))
            repository.release("no-digest", file_text("registry.invalid/web:latest"))
            repository.release("broken", b"containers: [\n")
            repository.release("keyed", file_text(IMAGE, shim={"authenticated": True}))
            repository.release("wrong", file_text(IMAGE).replace(b"cpus: 2", b"cpus: 3"))
            repository.tag("empty", repository.commit({"README": b"nothing"}))
            installation.operator().wait_until_it_leads()
            yield installation
        finally:
            installation.end()


@pytest.fixture
def name() -> str:
    return f"c-{uuid.uuid4().hex[:8]}"


def refused(installation: Installation, name: str) -> tuple[str, str]:
    container = installation.wait_for(name, "Stalled")
    assert container.status.phase is ContainerPhase.FAILED
    ready = condition_of(container, "Ready")
    assert ready is not None
    assert ready["status"] == "False"
    assert container.status.message == ready["message"]
    assert installation.enclaves(name) == []
    assert installation.objects("pods,services,deployments.cloister.dev") == []
    return ready["reason"], ready["message"]


@pytest.mark.lifecycle("not-admitted")
@pytest.mark.parametrize(
    ("spec", "reason", "said"),
    [
        ({"repo": "acme/web", "tag": "v9"}, "TagNotFound", "v9"),
        ({"repo": "acme/none", "tag": "v1"}, "RepositoryNotFound", "acme/none"),
        ({"repo": "acme/web", "tag": "empty"}, "ConfigFileNotFound", "service-config.yml"),
        ({"repo": "acme/web", "tag": "broken"}, "InvalidConfig", "line 2"),
        ({"repo": "acme/web", "tag": "wrong"}, "InvalidConfig", "cpus"),
        ({"repo": "acme/web", "tag": "no-digest"}, "InvalidConfig", "containers[0].image"),
        ({"repo": "acme/web", "tag": "v1", "host": "nowhere"}, "HostNotFound", "nowhere"),
        ({"repo": "acme/web", "tag": "v1", "commit": "0" * 40}, "TagMoved", "v1"),
        ({"repo": "acme/web", "tag": "keyed"}, "ApiAddressMissing", "apiAddress"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_container_is_refused_with_a_message_that_names_the_place(
    operated: Installation, name: str, spec: dict[str, object], reason: str, said: str
) -> None:
    operated.create_container(name, **spec)
    found, message = refused(operated, name)
    assert found == reason
    assert said in message


def test_an_object_older_than_a_rule_says_which_field_breaks_it(
    operated: Installation, name: str
) -> None:
    crd, place = "containers.cloister.dev", "/spec/versions/0/schema/openAPIV3Schema"
    place += "/properties/spec/properties/tag/maxLength"

    def limit(longest: int) -> None:
        patch = json.dumps([{"op": "replace", "path": place, "value": longest}])
        operated.kubectl("patch", "crd", crd, "--type=json", "-p", patch)

    def stored() -> bool:
        operated.create_container(name, repo="acme/web", tag="v" * 300)
        return True

    limit(400)
    try:
        until_sync(stored, within=60, what="the schema without the rule")
    finally:
        limit(255)

    def ready() -> Any:
        (found,) = (
            each
            for each in operated.objects("containers.cloister.dev")
            if each["metadata"]["name"] == name
        )
        conditions = found.get("status", {}).get("conditions", ())
        reported = {each["type"]: each for each in conditions if each["reason"] == "InvalidObject"}
        assert reported.keys() == {"Ready", "Stalled"}
        return reported["Ready"]

    condition = until_sync(ready, within=60, what="the condition")
    assert condition["status"] == "False"
    assert "spec.tag" in condition["message"]
    assert "255" in condition["message"]
    operated.create_container(name, repo="acme/web", tag="v9")
    refused(operated, name)


def test_a_container_whose_host_breaks_rules_says_so(operated: Installation, name: str) -> None:
    """It is well itself; without the condition it would have no status at all."""
    crd, place = "hosts.cloister.dev", "/spec/versions/0/schema/openAPIV3Schema/properties/spec"
    place += "/properties/sizing/properties/overheadMemoryMB/maximum"

    def limit(largest: int) -> None:
        patch = json.dumps([{"op": "replace", "path": place, "value": largest}])
        operated.kubectl("patch", "crd", crd, "--type=json", "-p", patch)

    limit(99_999)
    try:
        spec = {"sizing": {"overheadMemoryMB": 70_000}}
        host = manifest("Host", name, spec)
        host["metadata"].pop("namespace", None)
        operated.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(host))
    finally:
        limit(65_536)
    try:
        operated.create_container(name, repo="acme/web", tag="v1", host=name)

        def reported() -> Any:
            (found,) = (
                each
                for each in operated.objects("containers.cloister.dev")
                if each["metadata"]["name"] == name
            )
            conditions = found.get("status", {}).get("conditions", ())
            return {each["type"]: each for each in conditions if each["reason"] == "InvalidObject"}

        found = until_sync(reported, within=60, what="the conditions")
        assert found["Stalled"]["status"] == "True"
        assert found["Ready"]["status"] == "False"
        message = found["Ready"]["message"]
        assert message.startswith("Host, which the operator needs for the object or makes of it,")
        assert "overheadMemoryMB" in message

        def event() -> bool:
            events = operated.objects("events.events.k8s.io")
            about = [each for each in events if each["regarding"]["name"] == name]
            return any(each["reason"] == "InvalidObject" for each in about)

        until_sync(event, within=30, what="the Event")
    finally:
        operated.kubectl("delete", "host", name)


def test_a_registry_that_cannot_be_reached_is_tried_again(
    operated: Installation, name: str
) -> None:
    operated.create_container(name, repo="acme/web", tag="v1")
    container = operated.wait_for(name, "Reconciling", reason="RegistryUnavailable")
    assert container.status.phase is ContainerPhase.PENDING
    assert "registry.invalid" in container.status.message
    assert operated.enclaves(name) == []


def test_a_corrected_spec_is_rolled_out(operated: Installation, name: str) -> None:
    operated.create_container(name, repo="acme/web", tag="v9")
    refused(operated, name)
    operated.create_container(name, repo="acme/web", tag="v1")
    operated.wait_for(name, "Reconciling", reason="RegistryUnavailable")


def test_without_an_organization_no_child_is_created(operated: Installation, name: str) -> None:
    namespace = {"name": f"{operated.namespace}-other"}
    operated.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": namespace})
    reference = {"name": "values", "key": "key"}
    bodies = (
        manifest("Container", name, {"repo": "acme/web", "tag": "v1"}, namespace["name"]),
        manifest("Secret", name, {"name": "KEY", "secretRef": reference}, namespace["name"]),
        manifest(
            "RegistryCredential",
            "ghcr",
            {"registry": "ghcr", "secretRef": reference},
            namespace["name"],
        ),
    )
    for body in bodies:
        operated.apply(body)

    def reported(kind: str) -> bool:
        found = operated.objects(f"{kind.lower()}s.cloister.dev", every=True)
        mine = [each for each in found if each["metadata"]["namespace"] == namespace["name"]]
        conditions = mine[0].get("status", {}).get("conditions", [])
        return any(each["reason"] == "OrganizationNotFound" for each in conditions)

    try:
        for body in bodies:
            kind = body["kind"]
            until_sync(partial(reported, kind), within=60, what=f"what is wrong with the {kind}")
    finally:
        operated.kubectl("delete", "namespace", namespace["name"], "--wait=false")
        operated.kubectl("delete", "ctr", name, "-n", namespace["name"], "--ignore-not-found")
