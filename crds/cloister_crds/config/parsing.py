"""Parses a configuration file, and describes it for editors (JSON Schema)."""

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Any

from cloister_crds.config.limits import Rules
from cloister_crds.config.model import ServiceConfig
from cloister_crds.config.rules.containers import CONTAINER
from cloister_crds.config.rules.environment import variable_problems
from cloister_crds.config.rules.file import FILE, validate
from cloister_crds.config.rules.images import MODEL
from cloister_crds.config.rules.networks import NETWORK
from cloister_crds.config.rules.processes import HEALTHCHECK
from cloister_crds.config.rules.shim import SHIM
from cloister_crds.config.syntax.document import read_document
from cloister_crds.config.syntax.reading import Field, ProblemReport, Table
from cloister_crds.problems import Problem, Severity

__all__ = ["ParsedConfig", "json_schema", "json_schema_text", "parse"]


def json_schema() -> dict[str, Any]:
    """Build the schema.

    Returns
    -------
    dict[str, Any]
        A schema of draft 2020-12 that accepts every file that `parse` accepts with its usual
        settings, and refuses unknown keys and values that are wrong by themselves.
    """
    tables = {
        "container": CONTAINER,
        "healthcheck": HEALTHCHECK,
        "model": MODEL,
        "network": NETWORK,
        "shim": SHIM,
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "service-config.yml",
        "description": "Containers of one enclave, their networks and the way in.",
        **_object(FILE),
        "$defs": {name: _object(table) for name, table in tables.items()},
    }


def json_schema_text() -> str:
    """Return the schema as the published file has it."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def _object(table: Table) -> dict[str, Any]:
    """Build the schema of a map."""
    inert = {
        key: {"deprecated": True, "description": message} for key, message in table.ignored.items()
    }
    return {
        "type": "object",
        "properties": {entry.key: _property(entry) for entry in table.fields} | inert,
        "required": [entry.key for entry in table.fields if entry.required],
        "additionalProperties": table.unknown is Severity.WARNING,
    }


def _property(entry: Field) -> dict[str, Any]:
    return {"description": entry.about, **entry.schema}


@dataclass(frozen=True, slots=True)
class ParsedConfig:
    """The verdict about a file."""

    raw: bytes
    """The bytes as they were given: they are what is measured."""
    digest: str
    """``sha256:<hex>`` of `raw`."""
    config: ServiceConfig | None
    """The normalised form; None when there are errors."""
    problems: tuple[Problem, ...]
    """All problems in the order of the file."""

    @property
    def valid(self) -> bool:
        """Whether there is no error."""
        return self.config is not None

    @property
    def errors(self) -> tuple[Problem, ...]:
        """The problems that forbid a deployment."""
        return tuple(one for one in self.problems if one.severity is Severity.ERROR)

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """The problems that are only reported."""
        return tuple(one for one in self.problems if one.severity is Severity.WARNING)


def parse(raw: bytes, *, rules: Rules = Rules()) -> ParsedConfig:  # noqa: B008 - frozen
    """Validate a configuration file.

    Parameters
    ----------
    raw
        The bytes of the file, whatever they are: it never raises.
    rules
        The settings that it is validated by.

    Returns
    -------
    ParsedConfig
        All problems, and the normalised form when none of them is an error.
    """
    digest = "sha256:" + hashlib.sha256(raw).hexdigest()
    document = read_document(raw, max_bytes=rules.max_bytes)
    report = ProblemReport(rules)
    for problem in document.problems:
        report.keep(problem)
    config = None
    if document.root is not None:
        config = validate(document.root, report)
    problems = [*report.problems, *_size_problems(raw, rules)]
    # A size problem is found after validation and must still withhold the normalised form.
    if any(one.severity is Severity.ERROR for one in problems):
        config = None
    if config is not None and rules.variables is not None:
        for problem in variable_problems(config, rules.variables):
            line, column = report.spots.get(problem.field, (None, None))
            problems.append(replace(problem, line=line, column=column))
    # Rules report in their own order; a reader goes through the file from the top.
    problems.sort(key=lambda one: (one.line or 0, one.column or 0))
    return ParsedConfig(raw, digest, config, tuple(problems))


def _size_problems(raw: bytes, rules: Rules) -> list[Problem]:
    """Validate the length of a file that is short enough to be read."""
    most = rules.deployable_bytes
    if not most < len(raw) <= rules.max_bytes:
        return []
    message = (
        f"the file has {len(raw)} bytes, and files of at most {most} are deployed: shorten it, or "
        "have sources.maxFileBytes of the operator raised"
    )
    return [Problem("", "FileNotDeployable", message, 1, 1, Severity.WARNING)]
