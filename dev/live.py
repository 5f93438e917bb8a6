"""Runs the suites on real servers: ``python -m dev.live [--nightly] [SUITE …]``.

A failed case runs once more at the end, alone and on fresh clusters. When it passes then, it is
reported as flaky, both reports are kept in ``dist/flaky``, and the run is green.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import click
import pytest

ROOT = Path(__file__).parents[1]

MOST_RERUN = 12
"""Failed cases of a suite that may be flaky; more are a defect, and none of them runs again."""

FAILED, NOTHING = pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED


SUITES = {
    "api": ["tests/api", "--ignore=tests/api/operator"],
    "browser": ["tests/browser"],
    "operator": ["tests/api/operator"],
    "cluster": ["tests/cluster"],
}
"""Name -> what pytest collects."""


def run(suites: dict[str, list[str]], options: list[str], *, workers: int, reports: Path) -> int:
    """Run suites one after the other, then their failed cases once more.

    Parameters
    ----------
    workers
        Processes of pytest, each with clusters of its own; the tests of a module share one.
    reports
        Folder for the reports; those of flaky cases are copied to its neighbour ``flaky``.

    Returns
    -------
    int
        0 when each case passed, at the first try or at the second; otherwise 1.
    """
    kept = reports.parent / "flaky"
    for old in (reports, kept):
        shutil.rmtree(old, ignore_errors=True)
    parallel = ["-n", str(workers), "--dist", "loadfile", "--no-loadscope-reorder"]
    red, flaky = [], []
    again: dict[str, set[str]] = {}
    for name, collected in suites.items():
        code, failed = _pytest(name, "first", [*collected, *options, *parallel], reports)
        if code == FAILED and 0 < len(failed) <= MOST_RERUN:
            again[name] = failed
        elif code not in {0, NOTHING}:
            red.append(f"{name}: pytest ended with {code}, {len(failed)} cases failed")
    for name, first in again.items():
        print(f"\n{name}: what failed runs once more, alone", flush=True)
        code, second = _pytest(name, "second", [*suites[name], *options, "--last-failed"], reports)
        red += [f"{name}: {case} failed twice" for case in sorted(second)]
        if code not in {0, FAILED}:
            red.append(f"{name}: pytest ended with {code} at the second try")
        elif passed := sorted(first - second):
            flaky += [f"{name}: {case}" for case in passed]
            kept.mkdir(exist_ok=True)
            for report in reports.glob(f"{name}-*.xml"):
                shutil.copy(report, kept)
    _list(f"flaky, reports in {kept}:", flaky)
    _list("failed:", red)
    return 1 if red else 0


def _list(title: str, lines: list[str]) -> None:
    if lines:
        print("\n".join(["", title, *(f"  {line}" for line in lines)]), flush=True)


def _pytest(name: str, which: str, options: list[str], reports: Path) -> tuple[int, set[str]]:
    """Run pytest, which remembers failed cases for each suite; return its code and the cases."""
    report = reports / f"{name}-{which}.xml"
    command = [sys.executable, "-m", "pytest", "-q", *options, f"--junitxml={report}"]
    command += ["-o", f"cache_dir={reports / name}"]
    environment = {**os.environ, "CLOISTER_OWN_CLUSTERS": "1"}
    code = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    cases = ET.parse(report).iter("testcase") if report.exists() else ()
    failed = {
        f"{case.get('classname')}::{case.get('name')}"
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    }
    return code, failed


@click.command()
@click.argument("names", nargs=-1, metavar="[SUITE]…", type=click.Choice([*SUITES]))
@click.option("--nightly", is_flag=True, help="Only the cases that are too slow for each change.")
@click.option("--workers", default=2, show_default=True, help="Processes of pytest.")
def main(names: tuple[str, ...], workers: int, *, nightly: bool) -> None:
    """Run suites; all of them where none is named."""
    selection = "nightly" if nightly else "not nightly"
    sys.exit(
        run(
            {name: SUITES[name] for name in names or SUITES},
            ["-m", selection],
            workers=workers,
            reports=ROOT / "dist" / "live",
        )
    )


if __name__ == "__main__":
    main()
