"""The alerts: each has a test, a runbook and what a person needs, and fires when it should."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.programs.prometheus_package import PACKAGE, find_program
from tests.support.promql import dashboard_queries, metrics_of

FOLDER = Path("charts/cloister/files")
TESTS = Path("tests/data/alerts")
RUNBOOKS = Path("docs/runbooks")
SECTIONS = ("Meaning", "Impact", "Diagnosis", "Mitigation")
ALERTS: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
]
NAMES = [rule["alert"] for rule in ALERTS]


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run promtool; the test is skipped where it cannot be had."""
    program = find_program("promtool")
    if program is None:
        pytest.skip(f"promtool is missing: apt-get install {PACKAGE}")
    return subprocess.run(
        [program, *arguments], capture_output=True, text=True, check=False, timeout=60
    )


def test_each_alert_has_a_test_and_a_runbook_and_the_other_way_round() -> None:
    assert len(NAMES) == len(set(NAMES)) >= 15
    assert sorted(NAMES) == sorted(path.stem for path in TESTS.glob("*.yaml"))
    assert sorted(NAMES) == sorted(path.stem for path in RUNBOOKS.glob("*.md"))


@pytest.mark.parametrize("rule", ALERTS, ids=NAMES)
def test_an_alert_says_how_bad_it_is_and_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert rule["annotations"]["summary"]
    assert rule["annotations"]["runbook_url"] == f"docs/runbooks/{rule['alert']}.md"
    page = (RUNBOOKS / f"{rule['alert']}.md").read_text(encoding="utf-8")
    assert page.startswith(f"# {rule['alert']}\n\nSeverity {rule['labels']['severity']}.")
    assert tuple(re.findall(r"^## (.+)$", page, re.MULTILINE)) == SECTIONS


@pytest.mark.parametrize("name", NAMES)
def test_a_test_of_an_alert_lets_it_fire_and_be_quiet(name: str) -> None:
    document = yaml.safe_load((TESTS / f"{name}.yaml").read_text(encoding="utf-8"))
    cases = [case for group in document["tests"] for case in group["alert_rule_test"]]
    assert {case["alertname"] for case in cases} == {name}
    assert {bool(case["exp_alerts"]) for case in cases} == {True, False}


def test_promtool_accepts_the_rules_and_their_tests() -> None:
    checked = run("check", "rules", FOLDER / "alerts.yaml")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    tested = run("test", "rules", *sorted(TESTS.glob("*.yaml")))
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_the_metrics_of_a_query_are_found() -> None:
    query = 'sum by (le) (rate(a_bucket{le="b"}[5m]) and on (job) c) - time() > 2e3 or vector(0)'
    assert metrics_of(query) == {"a_bucket", "c"}


def test_each_dashboard_can_be_imported() -> None:
    names = ("api", "operator", "organization")
    for name in names:
        dashboard = json.loads((FOLDER / "dashboards" / f"{name}.json").read_text(encoding="utf-8"))
        assert dashboard["uid"] == f"cloister-{name}"
        identifiers = [panel["id"] for panel in dashboard["panels"]]
        assert len(identifiers) == len(set(identifiers))
    assert len(list(dashboard_queries())) > 40


def test_promtool_parses_each_query_of_a_dashboard(tmp_path: Path) -> None:
    rules = [
        {"record": f"query:{number}", "expr": expr.replace("$namespace", "org-acme")}
        for number, (_, expr) in enumerate(dashboard_queries())
    ]
    path = tmp_path / "queries.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboards", "rules": rules}]}))
    checked = run("check", "rules", path)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_manual_lists_each_alert_with_its_severity() -> None:
    manual = Path("docs/operations.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[(\w+)\]\(runbooks/\1\.md\) \| (\w+) \| .+ \|$", manual, re.MULTILINE)
    assert rows == [(rule["alert"], rule["labels"]["severity"]) for rule in ALERTS]
