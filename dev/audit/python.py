"""The audit of the locked Python packages, by pip-audit."""

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from dev.audit.outcome import Outcome, Verdict

ROOT = Path(__file__).parents[2]
SUBJECT = "Python packages of uv.lock"
DATABASE = "pypi.org"
REMEDY = f"run it where {DATABASE} itself can be reached: mirrors of it have no vulnerabilities"


def audit_python(uv: Path) -> Outcome:
    """Ask pip-audit for every package that an installation of Cloister gets.

    pip-audit has an environment of its own (`.venv-audit`), so that what it needs decides about
    no version of ours.
    """
    environment = os.environ | {"UV_PROJECT_ENVIRONMENT": str(ROOT / ".venv-audit")}
    _run(uv, "sync", "--frozen", "--no-install-project", "--only-group", "audit", env=environment)
    with tempfile.TemporaryDirectory() as folder:
        listed, report = Path(folder, "requirements.txt"), Path(folder, "report.json")
        shipped = ("--all-extras", "--no-default-groups", "--no-emit-project")
        _run(uv, "export", "--frozen", *shipped, "--output-file", listed, env=environment)
        program = ROOT / ".venv-audit" / "bin" / "pip-audit"
        options = ("--disable-pip", "--require-hashes", "--progress-spinner", "off")
        done = subprocess.run(
            [program, *options, "--requirement", listed, "--format", "json", "--output", report],
            capture_output=True,
            text=True,
            check=False,
        )
        # It exits with 1 for vulnerabilities and for failures: only the latter leave no report.
        found = report.read_text() if report.exists() else ""
    return judge_report(found, done.stderr)


def judge_report(report: str, errors: str) -> Outcome:
    """Return what a report of pip-audit means.

    Parameters
    ----------
    report
        Its JSON; empty = it could not finish.
    errors
        What it wrote to its standard error, the last line of which is the reason.
    """
    if not report:
        reason = (errors.strip().splitlines() or ["pip-audit failed without a message"])[-1]
        return Outcome(SUBJECT, Verdict.UNKNOWN, (f"{DATABASE}: {reason}; {REMEDY}",))
    packages: list[dict[str, Any]] = json.loads(report)["dependencies"]
    vulnerable = tuple(line for package in packages for line in _vulnerabilities(package))
    skipped = [package for package in packages if "skip_reason" in package]
    lines = vulnerable
    if skipped:
        names = ", ".join(package["name"] for package in skipped)
        lines += (f"{DATABASE} does not know {len(skipped)} of them ({names}); {REMEDY}",)
    if vulnerable:
        return Outcome(SUBJECT, Verdict.VULNERABLE, lines)
    return Outcome(SUBJECT, Verdict.UNKNOWN if skipped or not packages else Verdict.CLEAN, lines)


def _vulnerabilities(package: dict[str, Any]) -> list[str]:
    return [
        f"{package['name']} {package['version']}: {each['id']}"
        f" (fixed in {', '.join(each['fix_versions']) or 'no release yet'})"
        for each in package.get("vulns", ())
    ]


def _run(uv: Path, *arguments: str | Path, env: dict[str, str]) -> None:
    subprocess.run(
        [uv, "--quiet", *arguments], cwd=ROOT, env=env, check=True, stdout=subprocess.DEVNULL
    )
