"""values.schema.json: the chart's values, with the settings of both programs in their places."""

import ast
import inspect
import json
import textwrap
from collections.abc import Iterator
from typing import Any, Final

from pydantic.json_schema import models_json_schema

from cloister_api.settings import ApiSettings
from cloister_clients.settings import SettingsSection
from cloister_operator.settings import OperatorSettings
from dev.chart.values import ChartValues

Schema = dict[str, Any]

TAKEN_OUT: Final = {
    "OperatorSettings": (
        *("containersDomain", "sources", "registry"),  # at the top of the values
        *("shimImage", "guestImage"),  # from images
        *("kubeconfig", "context", "operatorNamespace", "accounts"),
    ),
    "HealthSettings": ("host", "port"),
    "CustomDomainSettings": ("installationKeyFile",),
    "ApiSettings": (
        *("sources", "registry", "ledger"),  # at the top of the values
        *("kubeconfig", "kubeContext", "operatorNamespace", "development"),
        *("listen", "metrics"),
    ),
    "DashboardSettings": ("listen",),
}
"""Settings that the chart makes itself, by their model."""
MADE_BY_AUTHORITY: Final = {
    "CertificateSettings": ("issuer",),
    "OwnAuthoritySettings": ("certificate", "key"),
}
"""Required settings that the chart makes with `authority.enabled`, by their model."""
SQLITE_SENTENCE: Final = (
    "more than one replica needs ledger.postgresql.existingSecret, since SQLite is a file that one "
    "Pod writes"
)
"""An error of a schema has no text of its own, but it lists the values that are allowed: what
stands among them is read. The type of the value does not allow it."""
FILE: Final[Schema] = {
    "description": "A key of a Secret or ConfigMap of the release's namespace.",
    "type": "object",
    "properties": {
        "secret": {"type": "string", "minLength": 1, "description": "Name of the Secret."},
        "configMap": {"type": "string", "minLength": 1, "description": "Name of the ConfigMap."},
        "key": {"type": "string", "minLength": 1, "description": "Key of its data."},
    },
    "required": ["key"],
    "oneOf": [{"required": ["secret"]}, {"required": ["configMap"]}],
    "additionalProperties": False,
}
"""What a setting that names a file takes in its place."""


def schema() -> Schema:
    """Return the JSON schema of the chart's values."""
    models = [(model, "validation") for model in (ChartValues, OperatorSettings, ApiSettings)]
    _, made = models_json_schema(models, by_alias=True)  # type: ignore[arg-type]  # literal modes
    definitions: dict[str, Schema] = made["$defs"]
    for name, settings in TAKEN_OUT.items():
        _take_out(definitions[name], settings)
    for name, settings in MADE_BY_AUTHORITY.items():
        _make_optional(definitions[name], settings)
    for name, descriptions in _descriptions(definitions):
        for alias, text in descriptions.items():
            if alias in definitions[name]["properties"]:
                definitions[name]["properties"][alias]["description"] = text
    _place(definitions["ChartValues"], "sources", "SourceSettings")
    _place(definitions["ChartValues"], "registry", "RegistrySettings")
    _place(definitions["OperatorValues"], "settings", "OperatorSettings")
    _place(definitions["ApiValues"], "settings", "ApiSettings")
    definitions["FileReference"] = FILE
    root = definitions.pop("ChartValues")
    tidy: Schema = _tidied({**root, "$defs": dict(sorted(definitions.items())), **_sqlite()})
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **tidy}


def schema_text() -> str:
    """Return the schema as the file holds it."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


def _take_out(definition: Schema, settings: tuple[str, ...]) -> None:
    for name in settings:
        del definition["properties"][name]
    _make_optional(definition, settings)


def _make_optional(definition: Schema, settings: tuple[str, ...]) -> None:
    required = [name for name in definition.get("required", ()) if name not in settings]
    definition.pop("required", None)
    if required:
        definition["required"] = required


def _place(definition: Schema, value: str, model: str) -> None:
    """Let a value of the chart be the settings of a program."""
    described = definition["properties"][value].get("description", "")
    definition["properties"][value] = {
        "description": described,
        "allOf": [{"$ref": f"#/$defs/{model}"}],
    }


def _sqlite() -> Schema:
    """Return the rule that SQLite has one replica."""
    chosen = {"ledger": {"postgresql": {"existingSecret": {"const": ""}}}}
    one = {"replicas": {"enum": [None, 1, SQLITE_SENTENCE]}}
    fixed = {"autoscaling": _nested({"enabled": {"enum": [False, SQLITE_SENTENCE]}})}
    ledger = _nested({"postgresql": _nested(chosen["ledger"]["postgresql"])})
    return {"if": _nested({"ledger": ledger}), "then": _nested({"api": _nested(one | fixed)})}


def _nested(properties: Schema) -> Schema:
    return {"properties": properties}


def _tidied(part: Any) -> Any:
    """Return a part without titles and defaults, with files in place of paths."""
    if isinstance(part, list):
        return [_tidied(each) for each in part]
    if not isinstance(part, dict):
        return part
    if part.get("format") == "path":
        return {"$ref": "#/$defs/FileReference"}
    noise = {"title"} if isinstance(part.get("title"), str) else set()
    if not isinstance(part.get("default"), dict) or "type" in part or "$ref" in part:
        noise.add("default")
    return {name: _tidied(each) for name, each in part.items() if name not in noise}


def _descriptions(definitions: dict[str, Schema]) -> Iterator[tuple[str, dict[str, str]]]:
    """Return the docstrings of settings, by the name of their model and as the file names them."""
    for model in _sections(SettingsSection):
        if model.__name__ not in definitions:
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(model))).body[0]
        assert isinstance(body, ast.ClassDef)
        found = {}
        for before, after in zip(body.body, body.body[1:], strict=False):
            match before, after:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    alias = model.model_fields[name].alias or name
                    found[alias] = inspect.cleandoc(text).replace("\n", " ")
                case _:
                    pass
        yield model.__name__, found


def _sections(model: type[SettingsSection]) -> Iterator[type[SettingsSection]]:
    for each in model.__subclasses__():
        yield each
        yield from _sections(each)
