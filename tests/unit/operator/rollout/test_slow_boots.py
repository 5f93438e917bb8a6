"""Starts that take long and are right, walked with a clock that the test advances."""

from datetime import timedelta

import pytest

from cloister_crds.config import Healthcheck
from cloister_crds.config.model import ContainerConfig
from cloister_crds.kinds.container import ContainerPhase
from tests.support.builders.resources import IMAGE, SETTINGS, file_of
from tests.support.builders.world import UNHEALTHY, SimulatedCluster

MINUTE = 60


def cluster_of(start_period: timedelta = timedelta()) -> SimulatedCluster:
    """Build a cluster whose release has a container with a health check, and create its Pod."""
    health = Healthcheck(test=("CMD", "/ready"), start_period=start_period)
    cluster = SimulatedCluster()
    file = file_of(ContainerConfig(name="web", image=IMAGE, healthcheck=health))
    cluster.files = {cluster.container.spec.tag: file}
    while not cluster.pods:
        cluster.step()
    return cluster


def pass_time(cluster: SimulatedCluster, minutes: float) -> None:
    """Let minutes pass, with a reconcile whenever the operator has asked for one."""
    end = cluster.now + timedelta(minutes=minutes)
    while cluster.wake_at is not None and cluster.now < cluster.wake_at <= end:
        cluster.now = cluster.wake_at
        cluster.step()
    cluster.now = end
    cluster.step()


def start(cluster: SimulatedCluster) -> None:
    """Start the containers of the one Pod."""
    (name,) = cluster.pods
    cluster.start(name)
    cluster.step()


def be_ready(cluster: SimulatedCluster) -> None:
    """Make the health check of the one Pod pass, and let the Service follow."""
    (name,) = cluster.pods
    cluster.set_health(name)
    for _ in range(4):
        cluster.step()


def phase(cluster: SimulatedCluster) -> ContainerPhase | None:
    """Return the phase of the Container."""
    return cluster.container.status.phase


def test_a_model_of_30_gb_that_takes_20_minutes_to_be_ready_after_its_pull_serves() -> None:
    cluster = cluster_of()
    pass_time(cluster, 20)
    start(cluster)
    pass_time(cluster, 20)
    assert phase(cluster) is ContainerPhase.STARTED
    be_ready(cluster)
    assert phase(cluster) is ContainerPhase.READY


def test_a_pull_of_35_minutes_serves() -> None:
    cluster = cluster_of()
    pass_time(cluster, 35)
    assert phase(cluster) is ContainerPhase.DEPLOYING
    start(cluster)
    be_ready(cluster)
    assert phase(cluster) is ContainerPhase.READY


@pytest.mark.spec("43.8")
def test_a_start_period_of_90_minutes_is_waited_for() -> None:
    cluster = cluster_of(start_period=timedelta(minutes=90))
    start(cluster)
    pass_time(cluster, 89)
    assert phase(cluster) is ContainerPhase.STARTED
    be_ready(cluster)
    assert phase(cluster) is ContainerPhase.READY


def test_a_start_period_of_90_minutes_does_not_hide_that_a_container_is_unhealthy() -> None:
    cluster = cluster_of(start_period=timedelta(minutes=90))
    start(cluster)
    pass_time(cluster, 91)
    (name,) = cluster.pods
    cluster.set_health(name, well=False)
    for _ in range(3):
        cluster.step()
    assert phase(cluster) is ContainerPhase.FAILED
    assert UNHEALTHY.partition(": ")[2] in cluster.container.status.message


@pytest.mark.parametrize(
    ("starts", "minutes", "words"),
    [
        (False, 60, "Its containers did not all start within 60 min"),
        # 90 min of start_period, 3 checks of 30 s and 30 s, a margin of 15 s, the setting.
        (True, 30 + 90 + 3.25, "Not ready within 7395 s of its start"),
    ],
    ids=["a pull", "a boot"],
)
def test_what_never_ends_is_given_up_at_the_deadline_and_not_before(
    *, starts: bool, minutes: float, words: str
) -> None:
    cluster = cluster_of(start_period=timedelta(minutes=90))
    assert SETTINGS.pull_deadline == timedelta(minutes=60)
    pass_time(cluster, 10)
    if starts:
        start(cluster)
    pass_time(cluster, minutes - (1 if starts else 11))
    assert phase(cluster) in {ContainerPhase.DEPLOYING, ContainerPhase.STARTED}
    pass_time(cluster, 2)
    assert phase(cluster) is ContainerPhase.FAILED
    assert cluster.reason() == "ProgressDeadlineExceeded"
    assert words in cluster.container.status.message
