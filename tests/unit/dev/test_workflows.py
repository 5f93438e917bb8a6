"""The hosted workflows call targets that exist, with the release of Python that is required."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from dev.live import SUITES

ROOT = Path(__file__).parents[3]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def targets_of(text: str) -> set[str]:
    """Return the targets that a workflow makes, by command or by its matrix."""
    called = re.findall(r"\bmake ((?:[a-z-]+ ?)+)$", text, re.MULTILINE)
    jobs = yaml.safe_load(text)["jobs"].values()
    matrices = (each.get("strategy", {}).get("matrix", {}).get("target", ()) for each in jobs)
    return {word for line in called for word in line.split()} | {
        target for matrix in matrices for target in matrix
    }


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda each: each.name)
def test_every_target_exists(path: Path) -> None:
    targets = targets_of(path.read_text())
    assert targets
    assert targets <= TARGETS


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda each: each.name)
def test_every_action_is_pinned_by_its_commit(path: Path) -> None:
    lines = [line.strip() for line in path.read_text().splitlines() if "uses:" in line]
    assert lines
    for line in lines:
        # The comment has the tag, for people and for programs that propose updates.
        assert re.fullmatch(r"- uses: [\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line


def test_what_is_too_long_for_a_push_runs_every_night() -> None:
    text = (ROOT / ".github/workflows/nightly.yml").read_text()
    suites = {each for each in TARGETS if each.startswith("test-")}
    suites |= {"schemathesis", "simulate-long"}
    pushed = targets_of((ROOT / ".github/workflows/ci.yml").read_text())
    # Parts of `make test`.
    parts = {f"test-{each}" for each in ("chart", "guest", *SUITES)}
    assert suites - parts - pushed == targets_of(text)
    minute, hour, *days = yaml.safe_load(text)[True]["schedule"][0]["cron"].split()
    assert minute.isdigit()
    assert hour.isdigit()
    assert days == ["*", "*", "*"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda each: each.name)
def test_the_lowest_python_is_taken(path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = set(re.findall(r'python-version: "(.+)"', path.read_text()))
    assert {f">={each}" for each in versions} == {project["requires-python"]}
