"""spec.replaces: which Container replaces which."""

from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from cloister_crds.kinds.container import Container, ContainerPhase, ContainerStatus, HistoryEntry
from cloister_crds.lifecycle.replacement import inherits_hostnames, predecessor, successor
from tests.support.builders.resources import DOMAIN, NOW, container_of

HOSTNAME = f"web.acme.{DOMAIN}"
SERVES = ContainerStatus(phase=ContainerPhase.READY, active_enclave="new-a-1")
SERVED = ContainerStatus(
    phase=ContainerPhase.STOPPED,
    history=(HistoryEntry(enclave="e", tag="v1", commit="c" * 40, outcome="Served", at=NOW),),
)


def born(name: str, minutes: int, **fields: Any) -> Container:
    """Build a Container that was created at an offset in minutes from now."""
    made = container_of(name, uid=f"uid-{name}-{minutes}", **fields)
    created = NOW + timedelta(minutes=minutes)
    metadata = made.metadata.model_copy(update={"creation_timestamp": created})
    return made.model_copy(update={"metadata": metadata})


def test_the_older_container_of_that_name_is_the_predecessor() -> None:
    old, new, other = born("old", 0), born("new", 1, replaces="old"), born("other", 2)
    everyone = (other, new, old)
    assert predecessor(new, everyone) == old
    assert successor(old, everyone) == new
    assert predecessor(old, everyone) is None
    assert successor(new, everyone) is None
    assert inherits_hostnames(new, everyone)
    assert not inherits_hostnames(old, everyone)


def test_both_may_be_created_in_the_same_second() -> None:
    old, new = born("old", 0), born("new", 0, replaces="old")
    assert predecessor(new, (new, old)) == old


def test_a_younger_container_of_that_name_is_left_alone() -> None:
    new, later = born("new", 0, replaces="old"), born("old", 1)
    assert predecessor(new, (new, later)) is None
    assert successor(later, (new, later)) is None
    assert not inherits_hostnames(new, (new, later)), "its host names are its own"


def test_names_of_one_that_is_gone_pass_over_all_the_same() -> None:
    new = born("new", 0, replaces="old")
    assert inherits_hostnames(new, (new,))


def test_a_successor_that_is_deleted_is_none() -> None:
    old, new = born("old", 0), born("new", 1, replaces="old", deleted=True)
    assert successor(old, (old, new)) is None


def test_of_two_successors_the_one_that_serves_counts() -> None:
    old = born("old", 0)
    first, second = born("first", 1, replaces="old"), born("second", 2, replaces="old")
    assert successor(old, (old, second, first)) == first
    serves = second.model_copy(update={"status": SERVES})
    assert successor(old, (old, serves, first)) == serves


def test_a_circle_replaces_nobody() -> None:
    circle = (
        born("a", 0, replaces="b"),
        born("b", 0, replaces="c"),
        born("c", 0, replaces="a"),
    )
    assert [predecessor(each, circle) for each in circle] == [None] * 3
    assert predecessor(born("d", 1, replaces="a"), (*circle, born("d", 1, replaces="a"))) is None


def test_nobody_replaces_itself() -> None:
    body = container_of("web").manifest()
    body["spec"]["replaces"] = "web"
    with pytest.raises(ValidationError, match="replaces names this very Container"):
        Container.read(body)
