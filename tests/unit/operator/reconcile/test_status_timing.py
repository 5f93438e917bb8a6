"""The throttled status of objects that count others: what waits, and what does not."""

from typing import Any

import pytest

from cloister_operator.reconcile.status_timing import is_urgent

READY = [{"type": "Ready", "status": "True", "reason": "Provisioned"}]


@pytest.mark.parametrize(
    ("before", "after", "urgent"),
    [
        ({"counts": {"containers": 3}}, {"counts": {"containers": 2}}, False),
        ({"counts": {"containers": 1}}, {"counts": {"containers": 0}}, True),
        ({"counts": {"containers": 0}}, {"counts": {"containers": 1}}, True),
        ({}, {"counts": {"containers": 0}}, False),
        ({"usedBy": ["web", "api"]}, {"usedBy": ["api"]}, False),
        ({"usedBy": ["web"]}, {}, True),
        ({}, {"usedBy": ["web"]}, True),
        ({"observedGeneration": 1}, {"observedGeneration": 2}, True),
        ({"conditions": []}, {"conditions": READY}, True),
        ({"conditions": [{**READY[0], "message": "1"}]}, {"conditions": READY}, False),
    ],
)
def test_only_a_status_that_people_wait_for_is_not_throttled(
    before: dict[str, Any], after: dict[str, Any], *, urgent: bool
) -> None:
    assert is_urgent(before, after) is urgent
