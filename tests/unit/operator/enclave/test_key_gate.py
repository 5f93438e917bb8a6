"""What the gate of an enclave is told, beside its measured document."""

import pytest

from cloister_operator.enclave.guest_config.certificate import gate_document
from cloister_operator.enclave.guest_config.measurement import unmeasured_document
from tests.support.builders.enclave_plans import SURROUNDINGS, plan_of
from tests.unit.operator.enclave.test_goldens import KEYED, WITH_API


@pytest.mark.spec("25.4")
def test_it_asks_by_the_name_that_an_enclave_never_loses() -> None:
    generated = "web.acme.containers.example"
    plan = plan_of(config=KEYED, hostnames=["api.example.org", generated])
    assert unmeasured_document(plan, SURROUNDINGS)["keyDomain"] == generated
    assert generated not in str(gate_document(plan, WITH_API))
