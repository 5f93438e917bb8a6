"""Who owns the fields of objects, as the API server records it in metadata.managedFields.

What only the operator writes has no such record, where the server has mutating admission policies;
the status of what it writes often has one owner as a whole.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from cloister_crds.kinds import Container, Enclave
from tests.api.crds.test_changes import ENCLAVE
from tests.api.crds.test_pods_of_enclaves import pod as enclave_pod
from tests.support.cluster.admission_policies import serves_mutations
from tests.support.cluster.api_server import ApiServer
from tests.support.cluster.clusters import unique
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

GROUP = "/apis/cloister.dev/v1alpha1"
OURS = f"{GROUP}/namespaces/org-acme"
CORE = "/api/v1/namespaces/org-acme"
ACCOUNT = "system:serviceaccount:cloister-system:cloister-operator"
OF_ENCLAVE = {"cloister.dev/enclave": "web-1"}


def claim() -> dict[str, Any]:
    """Return a claim of a host name that is free."""
    return {
        "apiVersion": "cloister.dev/v1alpha1",
        "kind": "HostnameClaim",
        "metadata": {"name": f"{unique('c')}.example.com"},
        "spec": {"holder": {"namespace": "org-acme", "name": "web"}},
    }


def core(kind: str, labels: dict[str, str], **parts: Any) -> dict[str, Any]:
    """Return an object of the core group."""
    metadata = {"name": unique("c"), "labels": labels}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **parts}


def pod(labels: dict[str, str]) -> dict[str, Any]:
    """Return a Pod that the policies take of the operator."""
    return core("Pod", labels, spec=enclave_pod()["spec"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def operator(policed: ApiServer) -> AsyncIterator[ApiServer]:
    """Provide the operator's account, once the mutating policy works where there is one."""
    found = policed.impersonating(ACCOUNT, "system:authenticated", "system:serviceaccounts")

    async def works() -> bool:
        made = await found.post(f"{GROUP}/hostnameclaims", claim(), dryRun="All")
        assert made.accepted, made.message
        return "managedFields" not in made.body["metadata"]

    if await serves_mutations(policed):
        await until(works, what="the mutating admission policy works")
    yield found
    await found.aclose()


async def test_what_the_operator_alone_writes_has_no_record_of_owners(
    policed: ApiServer, operator: ApiServer
) -> None:
    """None at its creation, and none after writes by those who know nothing of it."""
    enclave = {
        "apiVersion": "cloister.dev/v1alpha1",
        "kind": "Enclave",
        "metadata": {"name": unique("c")},
        "spec": ENCLAVE,
    }
    made: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
        f"{OURS}/enclaves": (enclave, "/status", {"status": {"phase": "Pending"}}),
        f"{GROUP}/hostnameclaims": (claim(), "", {"spec": {"holder": {"name": "other"}}}),
        f"{CORE}/pods": (pod(OF_ENCLAVE), "/status", {"status": {"phase": "Running"}}),
    }
    expected = not await serves_mutations(policed)
    # The kubelet, the scheduler: by accounts of their own.
    system = policed.impersonating("system:kube-controller-manager", "system:masters")
    for place, (body, part, change) in made.items():
        created = await operator.post(place, body)
        assert created.accepted, created.message
        assert ("managedFields" in created.body["metadata"]) is expected, place
        path = f"{place}/{body['metadata']['name']}"
        writer = system if place.endswith("pods") else operator
        changed = await writer.patch(path + part, change)
        assert changed.accepted, changed.message
        found = (await policed.get(path)).body
        assert ("managedFields" in found["metadata"]) is expected, place
        await policed.delete(path, gracePeriodSeconds="0")
    await system.aclose()


async def test_what_others_write_keeps_its_owners(policed: ApiServer, operator: ApiServer) -> None:
    """GitOps tools and backups read who set which field of what people write."""
    maps = "/api/v1/namespaces/default/configmaps"
    others = {
        "ConfigMap": (policed, maps, core("ConfigMap", {}, data={"a": "b"})),
        "a Pod with the label alone": (policed, "/api/v1/namespaces/default/pods", pod(OF_ENCLAVE)),
        "Service": (
            operator,
            f"{CORE}/services",
            core("Service", OF_ENCLAVE, spec={"ports": [{"port": 443}]}),
        ),
    }
    for what, (writer, place, body) in others.items():
        created = await writer.post(place, body)
        assert created.accepted, created.message
        assert created.body["metadata"]["managedFields"], what
        await policed.delete(f"{place}/{body['metadata']['name']}")


async def test_a_status_has_one_owner_and_a_spec_an_owner_for_each_field(
    policed: ApiServer, operator: ApiServer
) -> None:
    name = unique("c")
    path = f"{OURS}/containers/{name}"
    await policed.apply(
        {
            "apiVersion": "cloister.dev/v1alpha1",
            "kind": "Container",
            "metadata": {"name": name},
            "spec": {"repo": "acme/web", "tag": "v1"},
        },
        path,
    )
    ready = {
        "type": "Ready",
        "status": "True",
        "lastTransitionTime": "2026-11-26T00:00:00Z",
        "reason": "Ready",
    }
    for change in ({"conditions": [ready]}, {"domain": "web.acme.example.com"}):
        written = await operator.patch(f"{path}/status", {"status": change})
        assert written.accepted, written.message
    owners = written.body["metadata"]["managedFields"]
    (status,) = [each["fieldsV1"] for each in owners if each.get("subresource") == "status"]
    (spec,) = [each["fieldsV1"] for each in owners if each["operation"] == "Apply"]
    assert status == {"f:status": {}}
    assert spec == {"f:spec": {"f:repo": {}, "f:tag": {}}}
    assert written.body["status"]["conditions"][0]["type"] == "Ready"
    await policed.delete(path)


@pytest.mark.parametrize("kind", [Container, Enclave])
async def test_types_of_conditions_are_still_unique(
    policed: ApiServer, operator: ApiServer, kind: type[Container | Enclave]
) -> None:
    name = unique("c")
    place = f"{OURS}/{kind.INFO.plural}"
    spec = ENCLAVE if kind is Enclave else {"repo": "acme/web", "tag": "v1"}
    body = {
        "apiVersion": kind.INFO.api_version,
        "kind": kind.INFO.kind,
        "metadata": {"name": name},
        "spec": spec,
    }
    made = await (operator if kind is Enclave else policed).post(place, body)
    assert made.accepted, made.message
    twice = {
        "type": "Ready",
        "status": "True",
        "lastTransitionTime": "2026-11-26T00:00:00Z",
        "reason": "Ready",
    }
    refused = await operator.patch(
        f"{place}/{name}/status", {"status": {"conditions": [twice, twice]}}
    )
    assert not refused.accepted
    assert "Duplicate value" in refused.message
    await policed.delete(f"{place}/{name}")
