"""The record of a request: golden records of every release, equality, revisions."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister_crds.kinds.container import ContainerSpec
from cloister_crds.kinds.request import RequestRecord, Variable
from cloister_crds.lifecycle.request import normalise, record, revision, same
from tests.support.builders.resources import COMMIT

UNHURRIED = settings(deadline=None, derandomize=True)
"""Slow machines are not a failure, and a test is deterministic."""

GOLDEN = Path(__file__).parents[3] / "data" / "requests"

NAMES = st.sampled_from(["A", "B", "C", "D"])
SPECS = st.builds(
    ContainerSpec,
    repo=st.just("acme/site"),
    tag=st.sampled_from(["v1", "v2"]),
    commit=st.sampled_from([None, COMMIT]),
    variables=st.dictionaries(NAMES, st.sampled_from(["", "x"])).map(
        lambda values: tuple(Variable(name=name, value=values[name]) for name in values)
    ),
    secrets=st.lists(NAMES, unique=True).map(tuple),
    ssh_keys=st.lists(st.sampled_from(["a", "b"]), unique=True).map(tuple),
    debug=st.just(True),  # keys that may log in are for debug enclaves alone
    gpus=st.sampled_from([None, 0, 1]),
    host=st.sampled_from([None, "plain"]),
    accept_shared_network=st.booleans(),
    relaunch=st.sampled_from([None, "again"]),
)


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.json")), ids=lambda path: path.stem)
def test_golden_records_still_mean_the_same(path: Path) -> None:
    golden: dict[str, Any] = json.loads(path.read_text())
    read = normalise(RequestRecord.model_validate(golden["record"]))
    assert read.model_dump(mode="json", by_alias=True) == golden["means"]
    assert revision(read, 1) == golden["revisionAtGeneration1"]


def test_there_are_golden_records() -> None:
    assert len(list(GOLDEN.glob("*.json"))) >= 5


@UNHURRIED
@given(SPECS)
def test_a_record_survives_the_way_through_an_enclave(spec: ContainerSpec) -> None:
    written = record(spec)
    read = RequestRecord.model_validate(json.loads(json.dumps(written.wire())))
    assert same(read, record(spec))
    assert revision(read, 4) == revision(written, 4)


@UNHURRIED
@given(SPECS)
def test_order_says_nothing(spec: ContainerSpec) -> None:
    turned = spec.model_copy(
        update={
            "variables": tuple(reversed(spec.variables)),
            "secrets": tuple(reversed(spec.secrets)),
            "ssh_keys": tuple(reversed(spec.ssh_keys)),
        }
    )
    assert same(record(spec), record(turned))


@UNHURRIED
@given(SPECS, SPECS)
def test_equal_requests_have_equal_revisions_and_others_have_not(
    one: ContainerSpec, other: ContainerSpec
) -> None:
    first, second = record(one), record(other)
    assert same(first, second) == (revision(first, 1) == revision(second, 1))


@UNHURRIED
@given(SPECS, st.integers(1, 50), st.integers(1, 50))
def test_a_return_to_a_request_has_another_name(spec: ContainerSpec, one: int, other: int) -> None:
    names = revision(record(spec), one), revision(record(spec), other)
    assert (names[0] == names[1]) == (one == other)


@pytest.mark.parametrize(
    "change",
    [
        {"tag": "v2"},
        {"commit": COMMIT},
        {"variables": (Variable(name="A", value="1"),)},
        {"secrets": ("A",)},
        {"ssh_keys": ("a",)},
        {"debug": True},
        {"gpus": 0},
        {"custom_domain": "api.example.test"},
        {"host": "other"},
        {"accept_shared_network": True},
        {"disable_confidential": True},
        {"relaunch": "x"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_deploy_field_makes_another_request(change: dict[str, Any]) -> None:
    spec = ContainerSpec(repo="acme/site", tag="v1")
    assert not same(record(spec), record(spec.model_copy(update=change)))


@pytest.mark.parametrize(
    "change",
    [
        {"state": "Stopped"},
        {"staging": True},
        {"auto_update": True},
        {"github_connected": False},
        {"promote": "abc"},
        {"replaces": "old"},
        {"name": "other"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_other_fields_make_no_other_request(change: dict[str, Any]) -> None:
    spec = ContainerSpec(repo="acme/site", tag="v1")
    assert same(record(spec), record(spec.model_copy(update=change)))


def test_a_followed_release_replaces_tag_and_pin() -> None:
    spec = ContainerSpec(repo="acme/site", tag="v1", commit=COMMIT)
    followed = record(spec, followed_tag="v2")
    assert (followed.tag, followed.commit) == ("v2", None)
