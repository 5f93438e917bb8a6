"""What differs between two releases: nothing of equal ones, and every field of unequal ones."""

import copy
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloister_crds.config import parse
from cloister_crds.kinds.host import HostSpec
from cloister_crds.measurement import PlatformImages, measure
from cloister_crds.measurement.difference import (
    MAX_CHANGES,
    Side,
    compare,
    file_tree,
    markdown,
    text,
)

DATA = Path(__file__).parents[3] / "data"
VALID = DATA / "config/valid"
GOLDEN = DATA / "measurement/difference"
HOST = HostSpec.model_validate(
    {
        "tee": "SNP",
        "teeUnit": "Pod",
        "runtimeClassName": "kata",
        "gpu": {"resource": "nvidia.com/gpu"},
        "initdata": [],
    }
)
IMAGES = PlatformImages(guest=f"guest@sha256:{'1' * 64}", shim=f"shim@sha256:{'2' * 64}")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(min_size=1, max_size=4), inner, max_size=4)
        | st.lists(st.builds(lambda name, it: {"name": name, "it": it}, st.text(max_size=3), inner))
    ),
    max_leaves=12,
)


def side(raw: bytes, tag: str, **request: Any) -> Side:
    """Return the side of a file, measured as an enclave of it would be."""
    parsed = parse(raw)
    assert parsed.config is not None, parsed.problems
    found = measure(
        parsed.config,
        parsed.digest,
        host=HOST,
        images=IMAGES,
        documents={"pod.json": "{}", "agent.json": raw.decode()},
        service="cloister",
        debug=False,
        gpus=None,
    )
    release = {"repo": "acme/web", "tag": tag, "commit": tag * 10, "configDigest": parsed.digest}
    return Side(release, request, file_tree(parsed.config), found.document.wire())


def leaves(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all values of a tree that hold no others."""
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree)
    found = []
    for key, value in inner:
        below = (*path, key)
        found += leaves(value, below) if isinstance(value, (dict, list)) and value else [below]
    return found


def test_goldens() -> None:
    old = (VALID / "minimal.yml").read_bytes()
    new = (VALID / "every-field.yml").read_bytes()
    variables = [{"name": "MODE", "value": "a|b\n`<b>`"}]
    found = compare(side(old, "v1"), side(new, "v2", variables=variables))
    # The old side knows nothing of its request.
    assert found.not_compared == ("request",)
    odd = compare(Side(request={"variables": []}), Side(request={"variables": variables}))
    shown = {
        "release.txt": text(found),
        "release.md": markdown(found),
        "odd.txt": text(odd),
        "odd.md": markdown(odd),
    }
    for name, content in shown.items():
        path = GOLDEN / name
        if os.environ.get("CLOISTER_UPDATE_TEST_DATA"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"{content}\n")
        assert path.read_text() == f"{content}\n", name


@pytest.mark.parametrize("name", ["minimal.yml", "every-field.yml"])
def test_every_field_of_a_file_and_a_measurement_changes_the_difference(name: str) -> None:
    whole = side((VALID / name).read_bytes(), "v1", secrets=["KEY"], debug=False)
    for part in ("release", "request", "file", "measurement"):
        tree = json.loads(json.dumps(getattr(whole, part)))
        assert leaves(tree)
        for path in leaves(tree):
            changed = copy.deepcopy(tree)
            place = changed
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = "something else"
            found = compare(Side(**{part: tree}), Side(**{part: changed}))
            assert found.changes, (part, path)
            del place[path[-1]]
            if changed:
                found = compare(Side(**{part: tree}), Side(**{part: changed}))
                assert found.changes, (part, path)


def test_the_order_of_containers_is_a_change() -> None:
    one, two = {"name": "a", "image": "x"}, {"name": "b", "image": "y"}
    found = compare(
        Side(measurement={"containers": [one, two]}), Side(measurement={"containers": [two, one]})
    )
    assert [(each.field, each.before, each.after) for each in found.changes] == [
        ("containers.order", '["a", "b"]', '["b", "a"]')
    ]


@pytest.mark.spec("21.21")
@given(st.dictionaries(st.text(min_size=1, max_size=4), JSON, min_size=1), JSON)
def test_equal_documents_differ_in_nothing_and_unequal_ones_in_something(
    tree: dict[str, Any], other: Any
) -> None:
    same = json.loads(json.dumps(tree))
    assert compare(Side(measurement=tree), Side(measurement=same)).changes == ()
    key = next(iter(tree))
    changed = {**tree, key: other}
    found = compare(Side(measurement=tree), Side(measurement=changed)).changes
    unequal = json.dumps(tree[key], sort_keys=True) != json.dumps(other, sort_keys=True)
    assert bool(found) is unequal


def test_a_difference_is_bounded_and_says_so() -> None:
    tree = {str(number): number for number in range(MAX_CHANGES + 5)}
    found = compare(Side(file=tree), Side(file=dict.fromkeys(tree, -1)))
    assert (len(found.changes), found.more) == (MAX_CHANGES, 5)
    assert "5 further changes are not listed." in text(found)


@given(st.text())
def test_no_value_adds_a_line_or_a_cell(value: str) -> None:
    found = compare(Side(file={"a": "b"}), Side(file={"a": value, "b": ""}))
    rows = markdown(found).splitlines()[4:-2]
    assert all(row.count("|") == 4 for row in rows), rows
    assert len(text(found).splitlines()) == 2 + len(found.changes)
