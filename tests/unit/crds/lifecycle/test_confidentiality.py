"""Conditions about confidentiality: no more than the evidence supports."""

from typing import Any

import pytest

from cloister_crds.kinds.host import TEE, InitdataFile, TEEUnit
from cloister_crds.lifecycle.admission.confidentiality import confidentiality_conditions
from cloister_crds.lifecycle.admission.host_selection import maps_users, profile
from cloister_crds.lifecycle.admission.validation import RequestFacts, spec_problems
from cloister_crds.lifecycle.state.reasons import REASONS
from tests.support.builders.resources import CONFIDENTIAL, container_of, host_of, organization_of

POLICY = {"initdata": (InitdataFile(name="policy.rego", content="package agent_policy\n"),)}
NODE = {
    "tee": TEE.TDX,
    "tee_unit": TEEUnit.NODE,
    "attestation_service": "unix:///run/aa.sock",
}


def told(host: dict[str, Any], **enclave: bool) -> dict[str, tuple[bool, str]]:
    """Return status and reason by condition."""
    facts = {"debug": False, "without_tee": False, "was_ready": True} | enclave
    found = confidentiality_conditions(host_of(**host), **facts)
    assert all(each.reason in REASONS for each in found)
    return {each.type: (each.status, each.reason) for each in found}


CASES: dict[str, tuple[dict[str, Any], dict[str, bool], bool, str]] = {
    "no TEE": ({}, {}, False, "NoTee"),
    "no TEE, switched off all the same": (
        {},
        {"debug": True, "without_tee": True},
        False,
        "NoTee",
    ),
    "evidence of a machine": ({**CONFIDENTIAL, **POLICY}, {}, True, "Attested"),
    "evidence of a node": (NODE, {}, True, "Attested"),
    "no evidence yet": ({**CONFIDENTIAL, **POLICY}, {"was_ready": False}, False, "NotAttested"),
    "no evidence of a node yet": (NODE, {"was_ready": False}, False, "NotAttested"),
    "no policy": (CONFIDENTIAL, {}, False, "NoGuestPolicy"),
    "debug": ({**CONFIDENTIAL, **POLICY}, {"debug": True}, False, "DebugEnclave"),
    "switched off": (
        {**CONFIDENTIAL, **POLICY},
        {"debug": True, "without_tee": True},
        False,
        "TeeSwitchedOff",
    ),
}


@pytest.mark.parametrize("what", CASES)
def test_confidential_is_what_gave_evidence(what: str) -> None:
    host, enclave, status, reason = CASES[what]
    assert told(host, **enclave)["Confidential"] == (status, reason)


@pytest.mark.parametrize("what", CASES)
def test_secrets_of_the_cluster_are_never_sealed(what: str) -> None:
    host, enclave, _, reason = CASES[what]
    sealed = told(host, **enclave).get("SecretsSealed")
    without = reason in {"NoTee", "TeeSwitchedOff"}
    assert sealed == (None if without else (False, "SecretsInCluster"))


def test_a_node_does_not_speak_for_an_enclave() -> None:
    node = confidentiality_conditions(
        host_of(**NODE), debug=False, without_tee=False, was_ready=True
    )
    assert "measures no single enclave" in node[0].message


def test_the_pods_own_machine_needs_no_user_namespace() -> None:
    machine = host_of(**CONFIDENTIAL).spec
    assert not maps_users(machine)
    assert maps_users(profile(machine, without_tee=True))
    assert maps_users(host_of(**NODE).spec)
    assert not maps_users(host_of(allow_privileged_launcher=True).spec)


@pytest.mark.parametrize(
    ("host", "refused"),
    [(NODE, True), (CONFIDENTIAL, False), ({}, False)],
    ids=["node", "pod", "none"],
)
def test_only_a_machine_of_its_own_can_be_left(host: dict[str, Any], *, refused: bool) -> None:
    question = RequestFacts(
        name="web",
        spec=container_of(debug=True, disable_confidential=True).spec,
        organization=organization_of(),
        hosts=(host_of(**host),),
    )
    problems = {(each.field, each.code) for each in spec_problems(question)}
    assert (("spec.disableConfidential", "TeeOfTheNode") in problems) is refused
