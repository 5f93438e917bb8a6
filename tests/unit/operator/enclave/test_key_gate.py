"""What the gate of an enclave is told."""

from cloister_operator.enclave.guest_config.key_gate import gate_document
from tests.support.builders.enclave_plans import SETTINGS, plan_of
from tests.unit.operator.enclave.test_goldens import API, KEYED


def test_it_asks_by_the_name_that_an_enclave_never_loses() -> None:
    generated = "web.acme.containers.example"
    plan = plan_of(config=KEYED, hostnames=["api.example.org", generated])
    assert gate_document(plan, SETTINGS, API)["keys"]["domain"] == generated
