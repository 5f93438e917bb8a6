"""What may change after creation and what may not, and how the server says so.

pydantic never sees two versions of an object: rules about a change are the server's alone, in
the schemas and in the policy cloister-immutable, and this table is their whole account.
"""

from dataclasses import dataclass
from typing import Any

import pytest

from cloister_crds.crd_manifests import custom_resource_definition
from cloister_crds.kinds import KINDS, SSHKey
from tests.support.cluster.admission_policies import policy_documents
from tests.support.cluster.api_server import ApiServer
from tests.support.cluster.clusters import unique

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROOT = "/apis/cloister.dev/v1alpha1"
INVALID = 422


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one object."""

    kind: str
    """Kind that is changed."""
    before: dict[str, Any]
    """Spec at creation."""
    patch: dict[str, Any]
    """Merge patch of spec."""
    words: str
    """Part of the refusal; empty when the change is fine."""
    name: str = ""
    """metadata.name; empty = any that is free."""


CONTAINER = {"repo": "acme/web", "tag": "v1"}
ENCLAVE = {
    "container": {"name": "web", "uid": "1"},
    "request": {"repo": "acme/web", "tag": "v1"},
    "revision": "r1",
    "attempt": 1,
    "repo": "acme/web",
    "tag": "v1",
    "commit": "0" * 40,
    "configDigest": "sha256:0",
    "configFile": "service-config.yml",
    "summary": {"cpus": 2, "memoryMB": 8192},
    "host": "small",
}
SECRET = {"name": "KEY", "secretRef": {"name": "key"}}
KEY = {"publicKey": "ssh-ed25519 AAAA me"}
NAME = "name cannot be changed, added or removed; make another Container"
REPLACES = "replaces cannot be changed, added or removed; make another Container"
SECRET_REPO = "repo cannot be changed, added or removed; make another Secret"
KEY_NAME = "metadata.name is the name of the key: write kebab-case"
IDENTIFIER = "id cannot be changed; delete the object and restore it again"
IMMUTABLE = "spec of an Enclave cannot be changed; change the Container it belongs to"
HOLDER = (
    "spec.holder.namespace of a HostnameClaim cannot be changed; delete the claim and make another"
)

CHANGES = {
    "a Container's repo": Change(
        "Container",
        CONTAINER,
        {"repo": "acme/other"},
        "repo cannot be changed; make another Container",
    ),
    "a Container's name": Change("Container", {**CONTAINER, "name": "a"}, {"name": "b"}, NAME),
    "a Container's name, added": Change("Container", CONTAINER, {"name": "b"}, NAME),
    "a Container's name, removed": Change(
        "Container", {**CONTAINER, "name": "a"}, {"name": None}, NAME
    ),
    "a Container's replaces": Change(
        "Container", {**CONTAINER, "replaces": "a"}, {"replaces": "b"}, REPLACES
    ),
    "a Container's replaces, added": Change("Container", CONTAINER, {"replaces": "a"}, REPLACES),
    "a Container's replaces, removed": Change(
        "Container", {**CONTAINER, "replaces": "a"}, {"replaces": None}, REPLACES
    ),
    "a Container's tag": Change("Container", CONTAINER, {"tag": "v2"}, ""),
    "a Container's commit, added": Change("Container", CONTAINER, {"commit": "1" * 40}, ""),
    "a Container's state": Change("Container", CONTAINER, {"state": "Stopped"}, ""),
    "a Container made debug": Change(
        "Container", CONTAINER, {"debug": True, "sshKeys": ["me"]}, ""
    ),
    "a Container made debug while it follows releases": Change(
        "Container",
        {**CONTAINER, "autoUpdate": True},
        {"debug": True},
        "autoUpdate is for production only",
    ),
    "an Enclave's tag": Change("Enclave", ENCLAVE, {"tag": "v2"}, IMMUTABLE),
    "an Enclave's request": Change("Enclave", ENCLAVE, {"request": {"debug": True}}, IMMUTABLE),
    "an Enclave's hostnames, added": Change("Enclave", ENCLAVE, {"hostnames": ["a.b"]}, IMMUTABLE),
    "an Organization's namespace": Change(
        "Organization",
        {"namespace": "org-a"},
        {"namespace": "org-b"},
        "namespace cannot be changed; make another Organization",
    ),
    "an Organization's limits": Change(
        "Organization", {"namespace": "org-a"}, {"limits": {"containers": 3}}, ""
    ),
    "a Host's tee": Change(
        "Host",
        {},
        {"tee": "SNP", "teeUnit": "Pod", "runtimeClassName": "kata-qemu-snp"},
        "",
    ),
    "a Host's tee without its unit": Change("Host", {}, {"tee": "SNP"}, "teeUnit is needed"),
    "an overcommitted Host's tee": Change(
        "Host",
        {"overcommit": {"cpuPercent": 10}},
        {"tee": "SNP"},
        "overcommit is for tee None only",
    ),
    "a Deployment's repo": Change(
        "Deployment",
        {"repo": "a/b"},
        {"repo": "a/c"},
        "repo cannot be changed; make another Deployment",
    ),
    "a Deployment's defaultStaging": Change(
        "Deployment", {"repo": "a/b"}, {"defaultStaging": True}, ""
    ),
    "a Secret's name": Change(
        "Secret", SECRET, {"name": "OTHER"}, "name cannot be changed; make another Secret"
    ),
    "a Secret's repo, added": Change("Secret", SECRET, {"repo": "a/b"}, SECRET_REPO),
    "a Secret's repo, removed": Change(
        "Secret", {**SECRET, "repo": "a/b"}, {"repo": None}, SECRET_REPO
    ),
    "a Secret's repo": Change("Secret", {**SECRET, "repo": "a/b"}, {"repo": "a/c"}, SECRET_REPO),
    "a Secret's secretRef": Change("Secret", SECRET, {"secretRef": {"name": "other"}}, ""),
    "an SSHKey's publicKey": Change(
        "SSHKey",
        KEY,
        {"publicKey": "ssh-ed25519 BBBB me"},
        "publicKey cannot be changed; make another SSHKey",
    ),
    "a RegistryCredential's registry": Change(
        "RegistryCredential",
        {"registry": "ghcr", "secretRef": {"name": "a"}},
        {"registry": "gcr"},
        "registry cannot be changed; make another RegistryCredential",
        "ghcr",
    ),
    "a Domain's domain": Change(
        "Domain",
        {"domain": "a.example.com"},
        {"domain": "b.example.com"},
        "domain cannot be changed; make another Domain",
    ),
    "a HostnameClaim's namespace": Change(
        "HostnameClaim",
        {"holder": {"namespace": "a", "name": "b"}},
        {"holder": {"namespace": "c"}},
        HOLDER,
        "claimed.example.com",
    ),
    "a HostnameClaim that passes to another Container": Change(
        "HostnameClaim",
        {"holder": {"namespace": "a", "name": "b"}},
        {"holder": {"name": "c"}},
        "",
        "passed.example.com",
    ),
}
"""Every rule about a change at least once, and changes that stay open."""


@pytest.mark.parametrize("what", CHANGES)
async def test_each_change_is_taken_or_refused_with_its_sentence(
    policed: ApiServer, what: str
) -> None:
    change = CHANGES[what]
    info = next(kind.INFO for kind in KINDS if kind.INFO.kind == change.kind)
    space = unique("changes")
    await policed.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}},
        f"/api/v1/namespaces/{space}",
    )
    middle = f"/namespaces/{space}" if info.namespaced else ""
    name = change.name if not change.name or info.namespaced else unique("c") + "." + change.name
    body: dict[str, Any] = {
        "apiVersion": info.api_version,
        "kind": info.kind,
        "metadata": {"name": name or unique("c")},
        "spec": change.before,
    }
    made = await policed.post(f"{ROOT}{middle}/{info.plural}", body)
    assert made.accepted, made.message
    path = f"{ROOT}{middle}/{info.plural}/{body['metadata']['name']}"
    verdict = await policed.patch(path, {"spec": change.patch})
    await policed.delete(path)
    if change.words:
        assert verdict.status == INVALID
        assert change.words in verdict.message
    else:
        assert verdict.accepted, verdict.message


@pytest.mark.parametrize("change", ["3f8d9c1e-5a0b-4c57-8f0e-2b6d1a9c7e45", None])
async def test_an_identifier_that_a_restore_wrote_stays(
    policed: ApiServer, change: str | None
) -> None:
    head = {"apiVersion": "cloister.dev/v1alpha1", "kind": "Domain"}
    name = unique("c")
    body = {**head, "metadata": {"name": name}, "spec": {"domain": "a.example.com"}}
    place = f"{ROOT}/namespaces/default/domains"
    assert (await policed.post(place, body)).accepted
    path = f"{place}/{name}"
    restored = {"status": {"id": "3f8d9c1e-5a0b-4c57-8f0e-2b6d1a9c7e44"}}
    assert (await policed.patch(f"{path}/status", restored)).accepted
    verdict = await policed.patch(f"{path}/status", {"status": {"id": change}})
    assert verdict.status == INVALID
    assert IDENTIFIER in verdict.message
    await policed.delete(path)


@pytest.mark.parametrize("end", [".pub", "--x", "-"])
async def test_a_new_ssh_key_has_a_name_that_the_api_can_name(policed: ApiServer, end: str) -> None:
    place = f"{ROOT}/namespaces/default/sshkeys"
    body = {"apiVersion": "cloister.dev/v1alpha1", "kind": "SSHKey", "spec": KEY}
    name = unique("key")
    verdict = await policed.post(place, {**body, "metadata": {"name": f"{name}{end}"}})
    assert verdict.status == INVALID
    assert end == "-" or KEY_NAME in verdict.message
    assert (await policed.post(place, {**body, "metadata": {"name": name}})).accepted
    await policed.delete(f"{place}/{name}")


async def test_an_enclaves_other_parts_change_while_its_spec_stays(policed: ApiServer) -> None:
    info = next(kind.INFO for kind in KINDS if kind.INFO.kind == "Enclave")
    name = unique("c")
    body = {
        "apiVersion": info.api_version,
        "kind": info.kind,
        "metadata": {"name": name, "finalizers": ["example.com/kept"]},
        "spec": ENCLAVE,
    }
    place = f"{ROOT}/namespaces/default/{info.plural}"
    assert (await policed.post(place, body)).accepted
    path = f"{place}/{name}"
    phase = {"status": {"phase": "Pending"}, "spec": {"tag": "v2"}}
    written = await policed.patch(f"{path}/status", phase)
    freed = await policed.patch(path, {"metadata": {"finalizers": None}})
    await policed.delete(path)
    assert written.accepted, written.message
    assert (written.body["status"]["phase"], written.body["spec"]["tag"]) == ("Pending", "v1")
    assert freed.accepted, freed.message


async def test_the_table_holds_every_rule_about_a_change() -> None:
    told = {change.words for change in CHANGES.values()} | {IDENTIFIER}
    told |= {each.message for each in SSHKey.CEL}
    rules = set()
    for kind in KINDS:
        schema = custom_resource_definition(kind)["spec"]["versions"][0]["schema"]
        rules |= set(_messages_about_changes(schema))
    rules |= {
        each["message"]
        for policy in policy_documents()
        if policy["metadata"]["name"] == "cloister-immutable"
        for each in policy["spec"].get("validations", ())
    }
    assert HOLDER in rules
    assert rules <= told


def _messages_about_changes(node: Any) -> list[str]:
    """Return the messages of all rules that look at what was there before."""
    if isinstance(node, list):
        return [message for item in node for message in _messages_about_changes(item)]
    if not isinstance(node, dict):
        return []
    here = [node["message"]] if "oldSelf" in str(node.get("rule", "")) else []
    return here + [message for item in node.values() for message in _messages_about_changes(item)]
