"""Operators on machines whose clock is wrong: the API server's time counts, nothing expires early.

A boot may take half an hour, so an operator that believed its own clock would end every boot at
once, or never.
"""

from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.faults.crashing_operators import ProxiedInstallation
from tests.support.lifecycles.steps import ContainerLifecycles
from tests.support.waiting import until_sync

pytestmark = pytest.mark.timeout(300)
PATIENCE = 120.0
OTHER_CLOCK = """
from datetime import timedelta
from cloister_clients import clock
right = clock.utc_now
clock.utc_now = lambda: right() + timedelta(seconds={seconds})
clock.ServerClock.__init__.__defaults__ = (clock.utc_now,)
"""
"""Python runs it at its start ("site", sitecustomize), before anything reads the time."""


@pytest.mark.parametrize("ahead", [timedelta(minutes=45), -timedelta(hours=3)], ids=str)
def test_a_container_becomes_ready_by_an_operator_with_a_wrong_clock(
    behind_proxy: ProxiedInstallation,
    lifecycles: ContainerLifecycles,
    tmp_path: Path,
    ahead: timedelta,
) -> None:
    folder = tmp_path / "clock"
    folder.mkdir()
    seconds = ahead.total_seconds()
    (folder / "sitecustomize.py").write_text(OTHER_CLOCK.format(seconds=seconds))
    operator = behind_proxy.installation.operator(environment={"PYTHONPATH": str(folder)})
    operator.wait_until_it_leads()

    lifecycles.create("web")
    until_sync(
        lambda: lifecycles.serves("web", "v1"), within=PATIENCE, what="a Container that serves"
    )

    container = behind_proxy.installation.container("web")
    assert container is not None
    assert container.metadata.creation_timestamp is not None
    for condition in container.status.conditions:
        late = condition.last_transition_time - container.metadata.creation_timestamp
        assert abs(late) < timedelta(seconds=PATIENCE), condition
    _, metrics = operator.request("/metrics")
    line = next(x for x in metrics.splitlines() if x.startswith("cloister_operator_clock_offset"))
    assert float(line.split()[-1]) == pytest.approx(-seconds, abs=5)
    assert "have both set by NTP" in operator.text
