"""The JSON Schema of the file, for editors: made of the same tables that the rules read by.

It says what one value can say about itself; what must fit among several is for `parse`. The
published file ``crds/manifests/service-config.schema.json`` is `json_schema_text`; a test keeps
it current.
"""

import json
from typing import Any

from cloister_crds.config.rules.containers import CONTAINER
from cloister_crds.config.rules.file import FILE
from cloister_crds.config.rules.healthcheck import HEALTHCHECK
from cloister_crds.config.rules.models import MODEL
from cloister_crds.config.rules.networks import NETWORK
from cloister_crds.config.rules.shim import SHIM
from cloister_crds.config.syntax.reading import Field, Table
from cloister_crds.problems import Severity

__all__ = ["json_schema", "json_schema_text"]


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
