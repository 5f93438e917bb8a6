"""The audit of the Go programs that ship, by govulncheck."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dev.audit.outcome import Outcome, Verdict
from dev.cluster import toolchain

ROOT = Path(__file__).parents[2]
PROGRAMS = ("operator/guest",)
"""Modules whose programs run in an installation. Those under dev are for one's own machine."""
DATABASE = "https://vuln.go.dev"
REMEDY = "run it where that can be reached, or name a copy of it with GOVULNDB=URL"


def audit_go(program: str, database: str = DATABASE) -> Outcome:
    """Ask govulncheck which vulnerabilities a module's code calls.

    Parameters
    ----------
    program
        Folder of the module below the root of the repository.
    """
    toolchain.go_version()
    environment = toolchain.environment()
    built = subprocess.run(
        ["go", "tool", "-n", "govulncheck"],
        cwd=ROOT / "dev" / "audit",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode != 0:
        return _unknown(program, f"govulncheck could not be built: {_last(built.stderr)}")
    done = subprocess.run(
        [built.stdout.strip(), "-db", database, "-format", "json", "./..."],
        cwd=ROOT / program,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        return _unknown(program, f"{database}: {_last(done.stderr)}; {REMEDY}")
    return judge_messages(program, done.stdout)


def judge_messages(program: str, output: str) -> Outcome:
    """Return what the messages of govulncheck mean.

    Parameters
    ----------
    output
        Its JSON messages, one after the other. A finding whose trace names a function is a
        vulnerability that the code can reach.
    """
    messages = list(_messages(output))
    modules = [each["SBOM"] for each in messages if "SBOM" in each]
    if not modules:
        return _unknown(program, "govulncheck named no module that it looked at")
    reached: dict[str, str] = {}
    for finding in (each["finding"] for each in messages if "finding" in each):
        trace = finding["trace"][0]
        if "function" in trace:
            fixed = finding.get("fixed_version") or "no release yet"
            version = trace.get("version", "")
            reached[finding["osv"]] = f"{trace['module']} {version} (fixed in {fixed})"
    lines = tuple(f"{name}: {where}" for name, where in sorted(reached.items()))
    return Outcome(_subject(program), Verdict.VULNERABLE if lines else Verdict.CLEAN, lines)


def _messages(output: str) -> Iterator[dict[str, Any]]:
    decoder = json.JSONDecoder()
    rest = output.strip()
    while rest:
        message, end = decoder.raw_decode(rest)
        yield message
        rest = rest[end:].lstrip()


def _unknown(program: str, reason: str) -> Outcome:
    return Outcome(_subject(program), Verdict.UNKNOWN, (reason,))


def _subject(program: str) -> str:
    return f"Go module {program}"


def _last(errors: str) -> str:
    return (errors.strip().splitlines() or ["no message"])[-1]
