"""Nothing crashes the parser: bytes, shapes of YAML, valid files with something changed."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cloister_crds.config import ParsedConfig, Rules, parse
from cloister_crds.config.rules.containers import CONTAINER
from cloister_crds.config.rules.file import FILE
from cloister_crds.config.rules.images import MODEL
from cloister_crds.config.rules.networks import NETWORK
from cloister_crds.config.rules.processes import HEALTHCHECK
from cloister_crds.config.rules.shim import SHIM

VALID = Path(__file__).parents[3] / "data/config/valid"
SEEDS = [path.read_bytes() for path in sorted(VALID.glob("*.yml"))]
BRISK = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)

KEYS = sorted(
    {
        key
        for table in (FILE, CONTAINER, HEALTHCHECK, MODEL, NETWORK, SHIM)
        for key in (*table.keys, *table.refused, *table.ignored, *table.hints)
    }
)
ODD = re.findall(
    r"\S+",
    "on yes 0o7 1_0 12:30 ~ all host nvidia no-new-privileges:true CMD NONE 0,1 512m 1h30m *a &a "
    "!!str << sha256: /tmp a:/b:ro on-failure:3 * /* https://a.b SIGTERM -1 0 1 1e9 .nan",
)

scalars = st.one_of(
    st.sampled_from(ODD),
    st.text(max_size=8),
    st.integers(),
    st.floats(),
    st.booleans(),
    st.none(),
)
shapes = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(st.sampled_from(KEYS), st.text(max_size=5)), inner, max_size=6),
    ),
    max_leaves=25,
)
files = st.fixed_dictionaries(
    {},
    optional={
        **{key: st.one_of(scalars, shapes) for key in FILE.keys},
        "containers": st.lists(
            st.dictionaries(st.sampled_from(CONTAINER.keys), st.one_of(scalars, shapes)),
            max_size=3,
        ),
        "shim": st.dictionaries(st.sampled_from(SHIM.keys), st.one_of(scalars, shapes)),
    },
)


def check(parsed: ParsedConfig) -> None:
    """Check what holds for every verdict."""
    assert parsed.valid == (not parsed.errors)
    assert (parsed.config is None) == bool(parsed.errors)
    assert parsed.digest.startswith("sha256:")
    for problem in parsed.problems:
        assert problem.code.isalnum()
        assert problem.code[0].isupper()
        assert problem.message.strip()
        assert (problem.line or 0) >= 1 or problem.code == "VariableUnused"
        assert (problem.column or 0) >= 1 or problem.code == "VariableUnused"
        assert problem.field.isprintable()
        assert len(problem.field) < 1000
        assert len(problem.message) < 1000


@pytest.mark.spec("40.9")
@BRISK
@given(st.binary(max_size=400))
def test_bytes(raw: bytes) -> None:
    check(parse(raw))


@BRISK
@given(st.text(alphabet=st.sampled_from("ab:-[]{},&*!|>'\"%@`#?<~ \n\t0.9é\ufeff"), max_size=120))
def test_yaml_signs(text: str) -> None:
    check(parse(text.encode()))


@BRISK
@given(st.one_of(shapes, files))
def test_shapes(shape: Any) -> None:
    check(parse(json.dumps(shape, ensure_ascii=False).encode("utf-8", "replace")))


@pytest.mark.spec("40.9")
@BRISK
@given(
    seed=st.sampled_from(SEEDS),
    at=st.floats(0, 1),
    cut=st.integers(0, 40),
    put=st.one_of(st.binary(max_size=12), st.sampled_from(ODD).map(str.encode)),
)
def test_changed_files(seed: bytes, at: float, cut: int, put: bytes) -> None:
    position = int(at * len(seed))
    check(parse(seed[:position] + put + seed[position + cut :], rules=Rules(variables={"A": "b"})))


@BRISK
@given(
    seed=st.sampled_from(SEEDS),
    which=st.integers(0, 400),
    put=st.sampled_from([*ODD, "[]", "{}", "''", "[[]]", "x" * 300, "{a: {b: c}}", "[1, null]"]),
)
def test_changed_values(seed: bytes, which: int, put: str) -> None:
    lines = seed.decode("utf-8-sig").splitlines()
    index = which % len(lines)
    key, colon, _ = lines[index].partition(":")
    lines[index] = f"{key}{colon} {put}" if colon else f"{key}{put}"
    check(parse("\n".join(lines).encode()))


def _fill(unit: str) -> bytes:
    """Repeat a text up to 1 MiB."""
    size = 1024 * 1024
    return (unit * (size // len(unit) + 1)).encode()[:size]


@pytest.mark.spec("40.5")
@pytest.mark.parametrize(
    "hostile",
    [
        lambda: _fill("["),
        lambda: _fill("{a: "),
        lambda: _fill("- a\n"),
        lambda: _fill("? "),
        lambda: _fill("k: *a\n"),
        lambda: b"- &a a\n" + _fill("- *a\n")[:-9],
        lambda: _fill("- !!str a\n"),
        lambda: _fill("'"),
        lambda: _fill("a" * 1000 + ": b\n"),
        lambda: b"cpus: " + b"9" * 1_000_000,
        lambda: b"memory: 1" + b":59" * 300_000,
        lambda: b"containers: [{name: a, tmpfs: {/t: '" + b"size=1," * 140_000 + b"'}}]",
        lambda: b"containers: [{image: '" + b"a-" * 500_000 + b"'}]",
    ],
)
def test_hostile_files_are_left_early(hostile: Callable[[], bytes]) -> None:
    parsed = parse(hostile())
    assert not parsed.valid
    assert len(parsed.problems) <= 1002
    assert all(len(problem.message) < 1000 for problem in parsed.problems)
