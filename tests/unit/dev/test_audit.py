"""What `make audit` says of the reports of pip-audit and govulncheck."""

import json

from dev.audit import Verdict
from dev.audit.goprograms import judge_messages
from dev.audit.python import judge_report

SBOM = {"SBOM": {"go_version": "go1.26.8", "modules": [{"path": "cloister.dev/guest"}]}}


def test_packages_without_vulnerabilities_are_clean() -> None:
    report = {"dependencies": [{"name": "acme", "version": "5.9.0", "vulns": []}], "fixes": []}
    assert judge_report(json.dumps(report), "").verdict is Verdict.CLEAN


def test_a_vulnerable_package_is_named_with_the_release_that_is_fixed() -> None:
    found = {"id": "PYSEC-1", "fix_versions": ["5.9.1"], "aliases": [], "description": "…"}
    report = {"dependencies": [{"name": "acme", "version": "5.9.0", "vulns": [found]}]}
    outcome = judge_report(json.dumps(report), "Found 1 known vulnerability in 1 package")
    assert outcome.verdict is Verdict.VULNERABLE
    assert outcome.lines == ("acme 5.9.0: PYSEC-1 (fixed in 5.9.1)",)


def test_packages_that_the_database_does_not_know_are_not_called_clean() -> None:
    skipped = [{"name": name, "skip_reason": "not found"} for name in "abcd"]
    outcome = judge_report(json.dumps({"dependencies": skipped}), "")
    assert outcome.verdict is Verdict.UNKNOWN
    assert "pypi.org does not know 4 of them (a, b, c, d)" in outcome.lines[0]


def test_a_database_that_does_not_respond_is_told_by_its_name() -> None:
    outcome = judge_report("", "WARNING: again\nERROR:pip_audit._cli:could not connect")
    assert outcome.verdict is Verdict.UNKNOWN
    assert outcome.lines[0].startswith("pypi.org: ERROR:pip_audit._cli:could not connect; run it")


def test_code_that_calls_nothing_vulnerable_is_clean() -> None:
    imported = {"finding": {"osv": "GO-1", "trace": [{"module": "stdlib", "version": "v1.26.8"}]}}
    output = f"{json.dumps(SBOM, indent=2)}\n{json.dumps(imported, indent=2)}\n"
    assert judge_messages("operator/guest", output).verdict is Verdict.CLEAN


def test_a_vulnerability_that_the_code_reaches_is_named_once() -> None:
    trace = [{"module": "stdlib", "version": "v1.26.8", "package": "net/http", "function": "Do"}]
    finding = json.dumps({"finding": {"osv": "GO-1", "fixed_version": "v1.27", "trace": trace}})
    outcome = judge_messages("operator/guest", f"{json.dumps(SBOM)}\n{finding}\n{finding}\n")
    assert outcome.verdict is Verdict.VULNERABLE
    assert outcome.lines == ("GO-1: stdlib v1.26.8 (fixed in v1.27)",)


def test_a_scan_of_nothing_is_not_called_clean() -> None:
    assert judge_messages("operator/guest", '{"config": {}}').verdict is Verdict.UNKNOWN
