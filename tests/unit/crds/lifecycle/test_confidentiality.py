"""Conditions about confidentiality: no more than the evidence supports."""

from datetime import UTC, datetime
from typing import Any

import pytest

from cloister_crds.kinds.enclave import EnclaveStatus
from cloister_crds.kinds.host import TEE, TEEUnit
from cloister_crds.lifecycle.admission.host_selection import (
    confidentiality_conditions,
    maps_users,
    profile,
)
from cloister_crds.lifecycle.admission.validation import RequestFacts, spec_problems
from cloister_crds.lifecycle.state.reasons import REASONS
from cloister_crds.measurement.initdata import rules_digest
from tests.support.builders.resources import CONFIDENTIAL, container_of, host_of, organization_of

NODE = {
    "tee": TEE.TDX,
    "tee_unit": TEEUnit.NODE,
    "attestation_service": "unix:///run/aa.sock",
}

DIGEST = "sha256:" + "ab" * 32


def status_of(**changes: Any) -> EnclaveStatus:
    """Return the status of an enclave that serves, with everything that is asked for."""
    ready = datetime(2026, 11, 27, tzinfo=UTC)
    usual: dict[str, Any] = {
        "ready_at": ready,
        "measurement": DIGEST,
        "guest_rules": rules_digest(),
    }
    return EnclaveStatus(**(usual | changes))


def told(
    host: dict[str, Any], *, debug: bool = False, without_tee: bool = False, **status: Any
) -> dict[str, tuple[bool, str]]:
    """Return status and reason by condition."""
    active = None if status.get("none") else status_of(**status)
    found = confidentiality_conditions(
        host_of(**host), debug=debug, without_tee=without_tee, active=active
    )
    assert all(each.reason in REASONS for each in found)
    return {each.type: (each.status, each.reason) for each in found}


CASES: dict[str, tuple[dict[str, Any], dict[str, Any], bool, str]] = {
    "no TEE": ({}, {}, False, "NoTee"),
    "no TEE, switched off all the same": (
        {},
        {"debug": True, "without_tee": True},
        False,
        "NoTee",
    ),
    "evidence of a machine": (CONFIDENTIAL, {}, True, "Attested"),
    "evidence of a node": (NODE, {}, False, "NodeAttested"),
    "evidence of a node, and rules": (NODE, {"guest_rules": ""}, False, "NodeAttested"),
    "nothing serves": (CONFIDENTIAL, {"none": True}, False, "NotAttested"),
    "no evidence yet": (CONFIDENTIAL, {"ready_at": None}, False, "NotAttested"),
    "no evidence of a node yet": (NODE, {"ready_at": None}, False, "NotAttested"),
    "no measurement": (CONFIDENTIAL, {"measurement": ""}, False, "NotAttested"),
    "no rules": (CONFIDENTIAL, {"guest_rules": ""}, False, "NoGuestPolicy"),
    "rules of others": (CONFIDENTIAL, {"guest_rules": DIGEST}, False, "NoGuestPolicy"),
    "debug": (CONFIDENTIAL, {"debug": True}, False, "DebugEnclave"),
    "switched off": (
        CONFIDENTIAL,
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
        host_of(**NODE), debug=False, without_tee=False, active=status_of()
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
