"""From a kind to its whole CustomResourceDefinition, and from all kinds to files.

``cloister crds print`` and ``python -m dev.house generate`` write what `manifests` returns; the
same models always make the same bytes.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

import yaml

from cloister_crds.kinds import KINDS
from cloister_crds.kinds.meta import GROUP, VERSION, Resource, Status
from cloister_crds.schema.generator import SchemaError, structural_schema
from cloister_crds.schema.markers import Column

__all__ = ["custom_resource_definition", "manifests"]

HEADER = "# Generated from crds/cloister_crds/kinds by `make crds`; do not edit.\n"
"""First line of each file."""
STATUS_DEFAULT = {"observedGeneration": -1}
"""Status of an object that nobody has checked: tools that compare generations wait for it."""


def custom_resource_definition(kind: type[Resource]) -> dict[str, Any]:
    """Write the CustomResourceDefinition of a kind.

    Raises
    ------
    SchemaError
        When a field has no structural form, or the kind's status does not begin as `Status` does.
    """
    info = kind.INFO
    version: dict[str, Any] = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _schema(kind)},
        "additionalPrinterColumns": [_column(column) for column in kind.COLUMNS],
    }
    # With the subresource a writer of spec cannot change status, nor the other way round.
    if "status" in kind.model_fields:
        version["subresources"] = {"status": {}}
    names: dict[str, Any] = {
        "kind": info.kind,
        "listKind": f"{info.kind}List",
        "plural": info.plural,
        "singular": info.singular,
        "categories": ["cloister"],
    }
    if info.short_names:
        names["shortNames"] = list(info.short_names)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": info.crd_name,
            "labels": {"app.kubernetes.io/part-of": "cloister"},
        },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced" if info.namespaced else "Cluster",
            "names": names,
            "versions": [version],
        },
    }


@cache
def manifests() -> Mapping[str, str]:
    """Write all CustomResourceDefinitions, once for each process.

    Returns
    -------
    Mapping
        File name to YAML, in the order of `KINDS`.
    """
    return {
        f"{kind.INFO.plural}.yaml": HEADER
        + yaml.safe_dump(
            custom_resource_definition(kind), sort_keys=False, width=100, allow_unicode=True
        )
        for kind in KINDS
    }


def _schema(kind: type[Resource]) -> dict[str, Any]:
    """Return the schema of the object: metadata is the server's, status gets its default."""
    schema = structural_schema(kind)
    properties = schema["properties"]
    schema["description"] = kind.INFO.description
    properties["metadata"] = _metadata(properties["metadata"])
    properties.pop("apiVersion", None)
    properties.pop("kind", None)
    required = [name for name in schema.get("required", ()) if name != "metadata"]
    schema.pop("required", None)
    if required:
        schema["required"] = required
    status = kind.model_fields.get("status")
    if status is not None:
        if not (isinstance(status.annotation, type) and issubclass(status.annotation, Status)):
            raise SchemaError(kind.__name__, "status", "must be made of a subclass of Status")
        properties["status"]["default"] = dict(STATUS_DEFAULT)
    return schema


def _metadata(generated: dict[str, Any]) -> dict[str, Any]:
    """Leave metadata to the server, but for the kind's own bounds of the name."""
    name = generated.get("properties", {}).get("name", {})
    bounds = {key: name[key] for key in ("maxLength", "pattern") if key in name}
    if bounds.get("maxLength") in (None, 253):
        bounds.pop("maxLength", None)
    if not bounds:
        return {"type": "object"}
    return {"type": "object", "properties": {"name": {"type": "string", **bounds}}}


def _column(column: Column) -> dict[str, Any]:
    result: dict[str, Any] = {
        "name": column.name,
        "type": column.type,
        "jsonPath": column.path,
    }
    if column.description:
        result["description"] = column.description
    if column.wide:
        result["priority"] = 1
    return result
