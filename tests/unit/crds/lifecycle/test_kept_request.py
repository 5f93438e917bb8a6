"""What counts instead of the request in spec, field by field."""

import pytest

from cloister_crds.kinds import Container
from cloister_crds.kinds.container import (
    ContainerPhase,
    ContainerStatus,
    DesiredState,
    KeptRequest,
    LatestRelease,
    UpdatePhase,
    UpdateStatus,
)
from cloister_crds.kinds.request import Variable
from cloister_crds.lifecycle.kept_request import (
    MOST_BYTES,
    is_in_force,
    kept_request,
    request_instead,
    requested,
)
from cloister_crds.lifecycle.request import record
from tests.support.builders.resources import COMMIT, NOW, container_of, subspec

A, B, C = ((Variable(name="X", value=value),) for value in ("a", "b", "c"))
V1 = container_of(tag="v1", variables=A)
V2 = subspec(V1, tag="v2", variables=B, relaunch="again")
SERVED, ASKED = record(V1.spec), record(V2.spec)
KEPT = KeptRequest(request=SERVED, instead_of=ASKED, update_ended=True)
UPDATE = UpdateStatus(enclave="e", revision="r", tag="v2", status=UpdatePhase.FAILED)


def stopped(requested_tag: str = "v2", phase: ContainerPhase = ContainerPhase.READY) -> Container:
    """Return a container whose failed update was just stopped."""
    status = ContainerStatus(
        phase=phase,
        update=UPDATE,
        requested_tag=requested_tag,
        current_tag="v1",
        current_commit=COMMIT,
    )
    container = subspec(V2, state=DesiredState.STOPPED)
    return container.model_copy(update={"status": status})


def test_a_field_that_spec_changed_since_counts() -> None:
    assert request_instead(KEPT, ASKED) == SERVED
    changed = ASKED.model_copy(update={"variables": C})
    assert request_instead(KEPT, changed) == SERVED.model_copy(update={"variables": C})
    token = ASKED.model_copy(update={"relaunch": "later"})
    assert request_instead(KEPT, token) == SERVED.model_copy(update={"relaunch": "later"})


@pytest.mark.parametrize("change", [{"tag": "v3"}, {"commit": COMMIT}], ids=["tag", "commit"])
def test_another_release_in_spec_ends_it(change: dict[str, str]) -> None:
    named = ASKED.model_copy(update=change)
    assert request_instead(KEPT, named) == named
    assert not is_in_force(KEPT, named)
    assert request_instead(None, named) == named


def test_a_stop_keeps_what_served() -> None:
    assert kept_request(stopped(), ASKED, SERVED) == KEPT
    without = kept_request(stopped(), ASKED, None)
    assert without is not None
    assert without.request == ASKED.model_copy(update={"tag": "v1"})


def test_only_what_was_requested_before_the_stop_is_ended() -> None:
    assert kept_request(stopped(requested_tag="v1"), ASKED, SERVED) is None
    assert kept_request(stopped(phase=ContainerPhase.STOPPED), ASKED, None) is None
    no_update = stopped()
    status = no_update.status.model_copy(update={"update": None})
    assert kept_request(no_update.model_copy(update={"status": status}), ASKED, SERVED) is None


def test_what_is_kept_stays_until_spec_asks_for_it() -> None:
    status = ContainerStatus(phase=ContainerPhase.STOPPED, kept_request=KEPT)
    container = V2.model_copy(update={"status": status})
    assert kept_request(container, ASKED, None) == KEPT
    assert requested(container) == SERVED
    assert kept_request(container, SERVED, None) is None


def test_variables_that_are_too_large_for_another_copy_stay_as_spec_has_them() -> None:
    large = SERVED.model_copy(
        update={"variables": (Variable.model_construct(name="X", value="x" * (MOST_BYTES + 1)),)}
    )
    kept = kept_request(stopped(), ASKED, large)
    assert kept is not None
    assert (kept.request.variables, kept.instead_of.variables) == ((), ())
    assert request_instead(kept, ASKED) == SERVED.model_copy(update={"variables": B})


def test_what_was_followed_is_kept_with_its_tag_alone() -> None:
    latest = LatestRelease(
        tag="v3", commit=COMMIT, published_at=NOW, compared_to="v1", followed=True
    )
    status = ContainerStatus(
        latest_release=latest, current_tag="v1.5", current_commit=COMMIT, requested_tag="v3"
    )
    container = V1.model_copy(update={"status": status})
    serving = SERVED.model_copy(update={"tag": "v1.5", "variables": C})
    kept = kept_request(container, SERVED, serving)
    assert kept == KeptRequest(request=SERVED.model_copy(update={"tag": "v1.5"}), instead_of=SERVED)
    assert kept_request(container, SERVED, SERVED) is None
    never_served = status.model_copy(update={"current_commit": ""})
    fresh = container.model_copy(update={"status": never_served})
    first = kept_request(fresh, SERVED, None)
    assert first is not None
    assert first.request.tag == "v3"
