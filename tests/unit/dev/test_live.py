"""The second try of failed cases (`dev.live`), by suites of a few lines that pytest really runs."""

from pathlib import Path

import pytest

from dev.live import MOST_RERUN, run

FLAKY = """
from pathlib import Path

def test_flaky():
    marker = Path(__file__).with_name("tried")
    tried = marker.exists()
    marker.touch()
    assert tried

def test_sound():
    pass
"""
RED = "def test_red():\n    assert False\n"


def attempt(folder: Path, **modules: str) -> int:
    """Run one suite of modules that are written first."""
    tests = folder / "tests"
    tests.mkdir()
    (tests / "pytest.ini").write_text("[pytest]\n")
    for name, text in modules.items():
        (tests / f"test_{name}.py").write_text(text)
    collected = ["-c", str(tests / "pytest.ini"), str(tests)]
    return run({"some": collected}, ["-p", "no:schemathesis"], workers=1, reports=folder / "live")


def test_a_flaky_case_is_green_and_reported(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert attempt(tmp_path, flaky=FLAKY) == 0
    assert "some: test_flaky::test_flaky" in capfd.readouterr().out.split("flaky, reports in")[1]
    assert sorted(each.name for each in (tmp_path / "flaky").iterdir()) == [
        "some-first.xml",
        "some-second.xml",
    ]


def test_a_case_that_fails_twice_is_red(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert attempt(tmp_path, flaky=FLAKY, red=RED) == 1
    said = capfd.readouterr().out.split("flaky, reports in")[1]
    assert "test_flaky" in said
    assert "some: test_red::test_red failed twice" in said


def test_many_failures_are_not_tried_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    cases = f"@pytest.mark.parametrize('number', range({MOST_RERUN + 1}))\n"
    body = "def test_red(number):\n    assert False\n"
    assert attempt(tmp_path, red=f"import pytest\n\n{cases}{body}") == 1
    assert "once more" not in capfd.readouterr().out


def test_what_cannot_be_collected_is_red(tmp_path: Path) -> None:
    assert attempt(tmp_path, broken="import nothing_of_this_name\n") == 1
