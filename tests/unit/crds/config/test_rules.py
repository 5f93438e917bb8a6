"""Every rule has a test, every row of the texts a rule."""

from pathlib import Path

import pytest

from dev.house.rules import check

ROOT = Path(__file__).parents[4]
SPECIFICATION = """
## Something else

| Field |
|---|
| never |

### Container configuration file

Top-level fields:

| Field | Type |
|---|---|
| cpus | integer |
| speed | integer |

## The next part

| Field |
|---|
| later |
"""
OWN = """
## Rules
| item | rule |
|---|---|
| gpus (top) | some |
| `cap_drop`, new (a long remark about it) | none |
"""


def test_every_rule_has_its_tests() -> None:
    assert check(ROOT) == []


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Write a checkout whose rules have gaps, with the texts beside it."""
    (tmp_path / "spec").mkdir()
    (tmp_path / "spec/admin-api.md").write_text(SPECIFICATION)
    (tmp_path / "reference").mkdir()
    (tmp_path / "reference/config-file.md").write_text(OWN)
    data = tmp_path / "house/tests/data"
    data.mkdir(parents=True)
    (data.parent / "test_a.py").write_text("def test_one(): pass\n")
    (data / "rules.toml").write_text(
        '[[rule]]\nrow = "top-level: cpus"\nrule = "a"\ntests = ["tests/test_a.py::test_one"]\n'
        '[[rule]]\nrow = "rules: gpus-top"\nrule = "b"\ntests = ["tests/test_a.py::test_two"]\n'
        '[[rule]]\nrow = "rules: gpus-top"\nrule = "b"\ntests = ["tests/test_b.py::test_one"]\n'
        '[[rule]]\nrow = "rules: gone"\nrule = "c"\ntests = []\n'
        '[[rule]]\nrow = "prose: free"\nrule = "d"\ntests = ["tests/test_a.py::test_one"]\n'
    )
    return tmp_path


def test_gaps_are_found(checkout: Path) -> None:
    found = check(checkout / "house", checkout)
    assert [finding.message for finding in found] == [
        "rules: gpus-top: has two entries; join them",
        "rules: gpus-top: there is no test tests/test_a.py::test_two",
        "rules: gpus-top: there is no test tests/test_b.py::test_one",
        "rules: gone: has no test",
        "rules: cap_drop-new: is in the texts and has no entry; add one",
        "top-level: speed: is in the texts and has no entry; add one",
        "rules: gone: is in no table of the texts any more",
    ]


def test_without_the_texts_only_tests_are_looked_for(checkout: Path) -> None:
    found = check(checkout / "house", checkout / "nowhere")
    assert not any("texts" in finding.message for finding in found)
    assert len(found) == 4
