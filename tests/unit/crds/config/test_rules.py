"""Every rule of the configuration file has a test and a place in the list."""

from pathlib import Path

import pytest

from dev.house.rules import check

ROOT = Path(__file__).parents[4]
SPECIFICATION = """
<a id="41"></a>
## 41 Top level

| rule | key |
|---|---|
| <a id="41.1"></a>41.1 | `cpus` |
| <a id="41.2"></a>41.2 | `speed` |

<a id="41.3"></a>**41.3** A file.

<a id="41.10"></a>**41.10** A mount.
"""
MANUAL = """
Mentioned outside of a table: [41.2](../spec/configuration-file.md#41.2).

| rule | tests |
|---|---|
| the mount ([41.10](../spec/configuration-file.md#41.10)) | `x.py::test_mount` |
"""


def test_every_rule_has_its_tests() -> None:
    assert check(ROOT) == []


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Write a checkout whose list of rules has gaps."""
    for name, text in {
        "docs/spec/configuration-file.md": SPECIFICATION,
        "docs/development/api-rules.md": MANUAL,
        "tests/test_a.py": "def test_one(): pass\n",
        "tests/data/rules.toml": (
            '[[rule]]\nrow = "a"\nspec = ["41.1"]\ntests = ["tests/test_a.py::test_one"]\n'
            '[[rule]]\nrow = "b"\nspec = ["41.1"]\ntests = ["tests/test_a.py::test_two"]\n'
            '[[rule]]\nrow = "b"\nspec = ["41.1"]\ntests = ["tests/test_b.py::test_one"]\n'
            '[[rule]]\nrow = "c"\nspec = ["41.4", "41"]\ntests = []\n'
            '[[rule]]\nrow = "d"\nspec = []\ntests = ["tests/test_a.py::test_one"]\n'
        ),
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


def test_gaps_are_found(checkout: Path) -> None:
    assert [finding.message for finding in check(checkout)] == [
        "b: has two entries; join them",
        "b: there is no test tests/test_a.py::test_two",
        "b: there is no test tests/test_b.py::test_one",
        "c: has no test",
        "c: spec 41.4 is not in docs/spec/configuration-file.md",
        "c: spec 41 is not in docs/spec/configuration-file.md",
        "d: has no number of docs/spec/configuration-file.md",
        "spec 41.2: has no entry, and no row of docs/development/api-rules.md; add one",
        "spec 41.3: has no entry, and no row of docs/development/api-rules.md; add one",
    ]
