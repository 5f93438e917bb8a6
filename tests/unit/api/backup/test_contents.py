"""What of an object is in a backup, and what a restored Container runs."""

from typing import Any

import pytest
from pydantic.alias_generators import to_camel

from cloister_api.backup.contents import (
    KEPT_KINDS,
    KEPT_STATUS,
    Body,
    fingerprint,
    is_kept_secret,
    is_made_once,
    kept,
    kept_container,
    secrets_of,
    with_present_owners,
)
from cloister_api.backup.restoration import groups
from cloister_crds.kinds import KINDS, Container
from cloister_crds.kinds.container import ContainerStatus, DesiredState
from cloister_crds.kinds.meta import Record
from cloister_crds.lifecycle.tracing import trace_annotation
from tests.support.builders.container_states import STATES, body_of
from tests.support.builders.world import SimulatedCluster

UID = "3f8d9c1e-5a0b-4c57-8f0e-2b6d1a9c7e44"
ALWAYS = {"id", "conditions", "observedGeneration"}
OBSERVED = {
    "Organization": {"counts"},
    "Container": {
        *("phase", "domain", "internalDomain", "activeEnclave", "candidate", "requestedTag"),
        *("sshPort", "replacedBy", "update", "message", "unenforced", "history", "servedBindings"),
    },
    "Deployment": {"counts", "lastHandledRequest"},
    "Secret": {"usedBy", "valueUpdatedAt"},
    "SSHKey": {"usedBy", "keyType"},
    "RegistryCredential": {"username", "expired", "valueUpdatedAt"},
    "Domain": {
        "records",
        "checkedAt",
        "cnameConfigured",
        "txtConfigured",
        "usedBy",
        "lastHandledRequest",
    },
}
"""Fields of status that the operator finds again, or that are about Enclaves that are gone."""
OTHER = "7d0b2e55-90a1-4be4-b1a7-11d6a8d7c001"


def body(kind: str, name: str = "a", **fields: Any) -> Body:
    """Return an object as the server returns it."""
    metadata = {
        "name": name,
        "namespace": "org-acme",
        "uid": UID,
        "creationTimestamp": "2026-11-25T00:00:00Z",
        "resourceVersion": "7",
        "generation": 3,
        **fields.pop("metadata", {}),
    }
    return {"apiVersion": "cloister.dev/v1alpha1", "kind": kind, "metadata": metadata, **fields}


def core(name: str = "a", **fields: Any) -> Body:
    """Return a core Secret."""
    return body("Secret", name, **{"data": {"value": "eA=="}, **fields}) | {"apiVersion": "v1"}


def restored(world: SimulatedCluster) -> SimulatedCluster:
    """Return an empty cluster into which the Container of another one was restored."""
    container = world.container
    active = world.enclaves.get(container.status.active_enclave)
    found = kept_container(body_of(container), active.spec.request if active else None)
    status = {name: value for name, value in found["status"].items() if name != "id"}
    empty = SimulatedCluster()
    fresh = container.metadata.model_copy(update={"generation": 1})
    empty.container = container.model_copy(
        update={"metadata": fresh, "status": ContainerStatus.model_validate(status)}
    )
    return empty


@pytest.mark.parametrize("state", ["serving", "updating", "update failed", "awaiting promotion"])
def test_what_served_comes_back_and_an_update_that_was_not_accepted_does_not(state: str) -> None:
    world = STATES[state][0]()
    assert world.container.status.current_tag == "v1.0.0"
    empty = restored(world)
    empty.settle()
    status = empty.container.status
    assert status.phase == "ready"
    assert status.current_tag == "v1.0.0"
    (serving,) = (each for each in empty.enclaves.values() if each.status.promoted_at)
    assert serving.spec.tag == "v1.0.0"
    reasons = {each.type: each.reason for each in status.conditions}
    assert reasons["Ready"] == ("Serving" if state == "serving" else "UpdateEnded")


def test_a_stopped_container_stays_stopped_and_starts_with_what_served() -> None:
    world = STATES["awaiting promotion"][0]()
    world.change_spec(state=DesiredState.STOPPED)
    world.settle()
    assert world.container.status.phase == "stopped"
    empty = restored(world)
    empty.settle()
    assert empty.container.status.phase == "stopped"
    assert not empty.enclaves
    empty.change_spec(state=DesiredState.RUNNING)
    empty.settle()
    assert empty.container.status.current_tag == "v1.0.0"


def test_a_tag_that_was_chosen_while_stopped_is_started() -> None:
    world = STATES["stopped"][0]()
    world.change_spec(tag="v1.1.0")
    world.settle()
    empty = restored(world)
    empty.settle()
    empty.change_spec(state=DesiredState.RUNNING)
    empty.settle()
    assert empty.container.status.current_tag == "v1.1.0"


def test_a_container_that_never_served_is_deployed_as_spec_says() -> None:
    empty = restored(STATES["deploying"][0]())
    assert empty.container.status.kept_request is None
    empty.settle()
    assert empty.container.status.phase == "ready"


def test_status_is_kept_only_where_it_cannot_be_observed_again() -> None:
    status = {
        "observedGeneration": 3,
        "conditions": [],
        "checkedAt": "2026-11-25T00:00:00Z",
        "verified": True,
        "verifiedAt": "2026-11-25T00:00:00Z",
    }
    domain = body("Domain", spec={"domain": "app.example.com"}, status=status)
    verified = {"verified": True, "verifiedAt": "2026-11-25T00:00:00Z"}
    assert kept(domain)["status"] == {"id": UID, **verified}
    again = domain | {"status": status | {"id": OTHER}}
    assert kept(again)["status"] == {"id": OTHER, **verified}
    paid = {"containerSubscription": True, "customerID": "cus_1"}
    organization = body(
        "Organization",
        spec={"namespace": "org-acme"},
        status={"billing": paid, "counts": {"containers": 3}},
        metadata={"finalizers": ["cloister.dev/namespace", "example.com/other"]},
    )
    found = kept(organization)
    assert found["status"] == {"id": UID, "billing": paid}
    assert found["metadata"]["finalizers"] == ["cloister.dev/namespace"]
    assert "resourceVersion" not in found["metadata"]


def test_the_trace_of_a_request_ends_with_its_cluster() -> None:
    """A restored object has generation 1 again, as the request that created it had."""
    annotations = {"acme.example/team": "web"}
    traced = trace_annotation(f"00-{'a' * 32}-{'b' * 16}-01", 1)
    found = kept(body("Secret", metadata={"annotations": annotations | traced}))
    assert found["metadata"]["annotations"] == annotations


def test_of_every_kind_and_field_of_status_it_is_decided_whether_it_is_kept() -> None:
    ours = {ref.kind for ref in KEPT_KINDS.values() if ref.group}
    assert ours | {"Enclave"} == {kind.INFO.kind for kind in KINDS}
    for kind in KINDS:
        name = kind.INFO.kind
        if not issubclass(kind, Record):
            continue
        fields = kind.model_fields["status"].annotation.model_fields  # type: ignore[union-attr]  # a model
        wire = {each.alias or to_camel(field) for field, each in fields.items()}
        assert wire == KEPT_STATUS.get(name, set()) | OBSERVED[name] | ALWAYS, name


def test_managers_of_fields_are_kept_but_those_of_status() -> None:
    flux = {"manager": "kustomize-controller", "operation": "Apply"}
    operator = {"manager": "cloister-operator", "operation": "Update", "subresource": "status"}
    secret = core(metadata={"managedFields": [flux, operator]})
    assert kept(secret)["metadata"]["managedFields"] == [flux]


def test_secrets_that_the_cluster_makes_anew_are_left_out() -> None:
    assert is_kept_secret(core())
    assert is_kept_secret(core(metadata={"labels": {"cloister.dev/value-of": "secret"}}))
    assert not is_kept_secret(core(metadata={"labels": {"cloister.dev/enclave": "web-a-1"}}))
    owner = {"apiVersion": "cloister.dev/v1alpha1", "kind": "Enclave", "name": "e", "uid": OTHER}
    assert not is_kept_secret(core(metadata={"ownerReferences": [owner]}))
    assert not is_kept_secret(core(type="kubernetes.io/service-account-token"))


def test_only_what_the_chart_made_at_random_is_replaced() -> None:
    ours = {"app.kubernetes.io/part-of": "cloister"}
    keep = {"helm.sh/resource-policy": "keep"}
    assert is_made_once(core(metadata={"labels": ours, "annotations": keep}))
    assert not is_made_once(core(metadata={"labels": ours}))
    assert not is_made_once(core(metadata={"annotations": keep}))


def test_every_secret_that_a_program_reads_is_found() -> None:
    pod = {
        "imagePullSecrets": [{"name": "pull"}],
        "volumes": [
            {"secret": {"secretName": "keys"}},
            {"projected": {"sources": [{"secret": {"name": "stripe"}}, {"configMap": {}}]}},
            {"emptyDir": {}},
        ],
        "containers": [
            {
                "env": [
                    {"name": "A", "valueFrom": {"secretKeyRef": {"name": "env", "key": "a"}}},
                    {"name": "B", "value": "b"},
                ],
                "envFrom": [{"secretRef": {"name": "from"}}],
            }
        ],
    }
    assert set(secrets_of(pod)) == {"keys", "stripe", "env", "from"}


def test_owners_have_their_present_uids_and_unknown_ones_are_left_out() -> None:
    owner = {"apiVersion": "cloister.dev/v1alpha1", "kind": "Secret", "name": "a", "uid": UID}
    foreign = owner | {"uid": "elsewhere"}
    secret = kept(core(metadata={"ownerReferences": [owner, foreign]}))
    fresh = with_present_owners(secret, {UID: OTHER})
    assert fresh["metadata"]["ownerReferences"] == [owner | {"uid": OTHER}]
    assert not {"uid", "managedFields", "creationTimestamp"} & fresh["metadata"].keys()
    assert "ownerReferences" not in with_present_owners(secret, {})["metadata"]
    replacing = body("Container", metadata={"annotations": {"cloister.dev/replaces-uid": UID}})
    annotations = with_present_owners(replacing, {UID: OTHER})["metadata"]["annotations"]
    assert annotations == {"cloister.dev/replaces-uid": OTHER}


def test_a_fingerprint_shows_every_change_that_matters_and_no_default() -> None:
    spec = {"repo": "acme/web", "tag": "v1.0.0"}
    before = kept(body("Container", spec=spec, status={"currentTag": "v1.0.0"}))
    live = body(
        "Container",
        spec=Container.read(before).wire()["spec"],
        status=before["status"] | {"observedGeneration": -1},
        metadata={"uid": OTHER},
    )
    assert fingerprint(live) == fingerprint(before)
    for change in (
        {"spec": spec | {"tag": "v2.0.0"}},
        {"status": before["status"] | {"currentTag": "v2.0.0"}},
        {"status": {"currentTag": "v1.0.0"}},
    ):
        assert fingerprint(live | change) != fingerprint(before)
    assert fingerprint(core()) != fingerprint(core(data={"value": "eQ=="}))
    assert fingerprint(core()) != fingerprint(core(type="example.com/other"))


def test_what_replaces_another_container_is_written_after_it() -> None:
    made = [body("Container", f"c{n}", spec={}) for n in range(20)]
    made[0]["spec"] = {"replaces": "c1"}
    found = list(groups(iter(made)))
    assert [len(each) for each in found] == [16, 3, 1]
    assert found[-1] == (made[0],)
