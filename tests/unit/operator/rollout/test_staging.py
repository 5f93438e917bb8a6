"""Updates that wait for promotion."""

import pytest

from cloister_crds.kinds.container import ContainerPhase, DesiredState, UpdatePhase, UpdateType
from cloister_crds.lifecycle.state.conditions import holds
from cloister_operator.rollout.decision import DeleteService, RouteTo, ServiceRole
from tests.support.builders.resources import DOMAIN, deployment_of, secret_of
from tests.support.builders.world import SimulatedCluster

HOSTNAME = f"web.acme.{DOMAIN}"
PREVIEW = f"web.preview.acme.{DOMAIN}"


@pytest.fixture
def staged(serving: SimulatedCluster) -> SimulatedCluster:
    """Return a world in which v1.1.0 is ready and waits beside v1.0.0."""
    serving.change_spec(staging=True, tag="v1.1.0")
    serving.settle()
    return serving


def revision_of(world: SimulatedCluster) -> str:
    """Return the revision that a promotion has to name."""
    update = world.container.status.update
    assert update is not None
    return update.revision


@pytest.mark.spec("5.4")
@pytest.mark.lifecycle("staged", "waits-for-accept")
def test_a_staged_update_waits_at_its_preview(staged: SimulatedCluster) -> None:
    status = staged.container.status
    assert (status.phase, status.current_tag) == (ContainerPhase.READY, "v1.0.0")
    assert holds(status.conditions, "Ready")
    assert holds(status.conditions, "Available")
    assert not holds(status.conditions, "Reconciling")
    assert staged.reason() == "AwaitingPromotion"
    update = status.update
    assert update is not None
    assert (update.tag, update.status, update.type) == (
        "v1.1.0",
        UpdatePhase.READY,
        UpdateType.BLUE_GREEN,
    )
    assert update.preview == PREVIEW
    assert staged.preview is not None
    assert staged.preview.selects == update.enclave
    assert staged.service is not None
    assert staged.service.selects == status.active_enclave != update.enclave
    assert staged.enclaves[update.enclave].spec.served_names == (HOSTNAME, PREVIEW)


def test_status_has_what_serves_is_bound_to_until_the_promotion(
    serving: SimulatedCluster,
) -> None:
    serving.change_spec(secrets=("API_KEY",))
    serving.secrets = (secret_of("API_KEY"),)
    serving.settle()
    serving.change_spec(secrets=(), staging=True)
    serving.settle()
    assert serving.reason() == "AwaitingPromotion"
    bound = serving.container.status.served_bindings
    assert bound is not None
    assert (bound.secrets, bound.ssh_keys) == (("API_KEY",), ())
    serving.change_spec(promote=revision_of(serving))
    serving.settle()
    bound = serving.container.status.served_bindings
    assert bound is not None
    assert bound.secrets == ()
    serving.change_spec(state=DesiredState.STOPPED)
    serving.settle()
    assert serving.container.status.served_bindings is None


def test_promotion_by_its_revision_lets_it_take_over(staged: SimulatedCluster) -> None:
    waiting = staged.container.status.candidate
    staged.change_spec(promote=revision_of(staged))
    staged.settle()
    status = staged.container.status
    assert (status.active_enclave, status.current_tag) == (waiting, "v1.1.0")
    assert (status.update, status.internal_domain) == (None, HOSTNAME)
    assert list(staged.enclaves) == [waiting]
    assert staged.preview is None


@pytest.mark.lifecycle("staged")
def test_a_stale_promotion_promotes_nothing(staged: SimulatedCluster) -> None:
    stale = revision_of(staged)
    staged.change_spec(tag="v1.2.0", promote=stale)
    staged.settle()
    assert staged.reason() == "AwaitingPromotion"
    assert staged.container.status.current_tag == "v1.0.0"
    assert revision_of(staged) != stale

    staged.change_spec(tag="v1.0.0")
    staged.settle()
    staged.change_spec(tag="v1.1.0")
    staged.settle()
    assert revision_of(staged) != stale
    assert staged.container.status.current_tag == "v1.0.0"


@pytest.mark.spec("22.1")
@pytest.mark.lifecycle("spec-put-back")
def test_putting_spec_back_ends_what_waits(staged: SimulatedCluster) -> None:
    active = staged.container.status.active_enclave
    staged.change_spec(tag="v1.0.0")
    staged.settle()
    assert list(staged.enclaves) == [active]
    assert staged.preview is None
    assert staged.container.status.update is None


@pytest.mark.spec("5.4")
@pytest.mark.lifecycle("promotes-itself")
def test_without_staging_what_waits_takes_over(staged: SimulatedCluster) -> None:
    staged.change_spec(staging=False)
    staged.settle()
    assert staged.container.status.current_tag == "v1.1.0"


def test_the_deployments_default_holds_where_spec_says_nothing(world: SimulatedCluster) -> None:
    world.deployment = deployment_of(default_staging=True)
    world.settle()
    world.change_spec(tag="v1.1.0")
    world.settle()
    assert world.reason() == "AwaitingPromotion"

    world.change_spec(staging=False)
    world.settle()
    assert world.container.status.current_tag == "v1.1.0"


def test_the_first_release_does_not_wait(world: SimulatedCluster) -> None:
    world.change_spec(staging=True)
    world.settle()
    assert holds(world.container.status.conditions, "Ready")
    assert world.reason() == "Serving"
    (enclave,) = world.enclaves.values()
    assert enclave.spec.preview == ""


def test_what_serves_is_brought_back_while_another_waits(staged: SimulatedCluster) -> None:
    status = staged.container.status
    active, waiting = status.active_enclave, status.candidate
    staged.lose_pod(active)
    staged.step()
    lost = staged.container.status
    assert lost.phase is ContainerPhase.DEPLOYING
    assert lost.active_enclave != waiting
    assert not holds(lost.conditions, "Ready")

    staged.settle()
    status = staged.container.status
    assert (status.phase, status.current_tag, status.candidate) == (
        ContainerPhase.READY,
        "v1.0.0",
        waiting,
    )
    assert status.active_enclave not in {active, waiting}
    assert staged.reason() == "AwaitingPromotion"


def test_stopping_ends_both(staged: SimulatedCluster) -> None:
    staged.change_spec(state=DesiredState.STOPPED)
    staged.settle()
    assert staged.container.status.phase is ContainerPhase.STOPPED
    assert (staged.enclaves, staged.preview) == ({}, None)


@pytest.mark.lifecycle("newer-request")
def test_the_preview_follows_a_newer_candidate(staged: SimulatedCluster) -> None:
    staged.decisions.clear()
    staged.change_spec(tag="v1.2.0")
    staged.settle()
    actions = [each for decision in staged.decisions for each in decision.actions]
    waiting = staged.container.status.candidate
    assert [
        each.enclave
        for each in actions
        if isinstance(each, RouteTo) and each.role is ServiceRole.PREVIEW
    ] == [waiting]
    assert (
        len(
            [
                each
                for each in actions
                if isinstance(each, DeleteService) and each.role is ServiceRole.PREVIEW
            ]
        )
        == 1
    )


@pytest.mark.spec("7.3")
@pytest.mark.parametrize("default", [True, False])
def test_a_change_of_the_default_changes_no_container_that_exists(*, default: bool) -> None:
    world = SimulatedCluster()
    world.deployment = deployment_of(default_staging=default)
    world.settle()
    assert world.container.status.staging is default
    world.change_spec(tag="v1.1.0")
    if default:
        world.settle()
        assert world.reason() == "AwaitingPromotion"
    world.deployment = deployment_of(default_staging=not default)
    world.settle()
    expected = ("AwaitingPromotion", "v1.0.0") if default else ("Serving", "v1.1.0")
    assert (world.reason(), world.container.status.current_tag) == expected
    assert world.container.status.staging is default


@pytest.mark.spec("7.3")
@pytest.mark.parametrize("own", [True, False])
def test_staging_of_a_relaunch_is_for_its_update_alone(
    serving: SimulatedCluster, *, own: bool
) -> None:
    serving.change_spec(staging=own)
    serving.settle()
    serving.change_spec(tag="v1.1.0", relaunch="once", relaunch_staging=not own)
    serving.settle()
    waits = serving.reason() == "AwaitingPromotion"
    assert waits is not own
    serving.promote()
    serving.settle()
    assert (serving.reason(), serving.container.status.current_tag) == ("Serving", "v1.1.0")
    serving.change_spec(tag="v1.2.0")
    serving.settle()
    assert (serving.reason() == "AwaitingPromotion") is own
