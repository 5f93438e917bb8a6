"""values.yaml, Chart.yaml and the README of the chart, from the model."""

import base64
import json
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

import cloister_api
from cloister_crds.crd_manifests import manifests
from dev.chart.program_values import ValuesSection
from dev.chart.values import ChartValues

WIDTH: Final = 100
MARK: Final = Path(cloister_api.__file__).parent / "dashboard" / "static" / "mark.svg"
"""The project's picture."""
KEYWORDS: Final = ("confidential computing", "containers", "enclave", "attestation", "tenants")
README: Final = """\
<!-- Generated from dev/chart/values.py by `make crds`; do not edit. -->
# The chart of Cloister

{description}. One chart installs all of it: kinds, roles, admission policies, operator, \
API and dashboard. There is one installation in a cluster.

```
kubectl create namespace cloister-system
kubectl label namespace cloister-system pod-security.kubernetes.io/enforce=restricted
helm install cloister oci://REGISTRY/charts/cloister --version VERSION \\
  -n cloister-system --wait --set containersDomain=containers.example.com
helm test cloister -n cloister-system --logs
```

It needs Kubernetes 1.35 or newer, Helm 4 or 3.22, a domain, and a StorageClass or PostgreSQL. \
[Install](../../docs/install.md) has everything else, and what stays after an uninstall; \
[upgrade](../../docs/operations/upgrade.md) what each version changes. A wrong or misspelt value \
is refused by the chart's schema, settings of the two programs included.

## Values

{table}"""


def values_text() -> str:
    """Return values.yaml: every value with its default and its comment."""
    head = "# Generated from dev/chart/values.py by `make crds`; do not edit.\n"
    return head + "\n".join(_lines(ChartValues(), 0)) + "\n"


def chart_text(pyproject: str) -> str:
    """Return Chart.yaml.

    Parameters
    ----------
    pyproject
        Content of pyproject.toml, which has the version.
    """
    project = tomllib.loads(pyproject)["project"]
    picture = base64.b64encode(MARK.read_bytes()).decode()
    described = {
        "apiVersion": "v2",
        "name": "cloister",
        "description": project["description"],
        "type": "application",
        "version": project["version"],
        "appVersion": project["version"],
        "kubeVersion": ">=1.35.0-0",
        "icon": f"data:image/svg+xml;base64,{picture}",
        "keywords": list(KEYWORDS),
        "maintainers": [{"name": "The Cloister authors"}],
        "annotations": {
            "artifacthub.io/category": "security",
            "artifacthub.io/license": project["license"],
            "artifacthub.io/operator": "true",
        },
    }
    head = "# Generated from pyproject.toml by `make crds`; do not edit.\n"
    kinds = yaml.safe_dump(list(_kinds()), sort_keys=False, width=WIDTH - 4)
    listed = f"  artifacthub.io/crds: |\n{textwrap.indent(kinds, '    ')}"
    return head + yaml.safe_dump(described, sort_keys=False) + listed


def _kinds() -> Iterator[dict[str, str]]:
    """Return the kinds as Artifact Hub shows them."""
    for text in manifests().values():
        spec = yaml.safe_load(text)["spec"]
        version = spec["versions"][-1]
        yield {
            "kind": spec["names"]["kind"],
            "version": version["name"],
            "name": f"{spec['names']['plural']}.{spec['group']}",
            "displayName": spec["names"]["kind"],
            "description": version["schema"]["openAPIV3Schema"]["description"].split("\n\n")[0],
        }


def namespace_text(name: str) -> str:
    """Return the manifest of the installation's namespace, which Helm makes by itself."""
    labels = {
        "app.kubernetes.io/part-of": "cloister",
        "pod-security.kubernetes.io/enforce": "restricted",
    }
    metadata = {"name": name, "labels": labels}
    return yaml.safe_dump(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}, sort_keys=False
    )


def readme_text(pyproject: str) -> str:
    """Return the README of the chart, with a table of all values.

    Parameters
    ----------
    pyproject
        As for `chart_text`.
    """
    rows = "".join(
        f"| `{name}` | {default} | {text} |\n" for name, default, text in _rows(ChartValues(), "")
    )
    table = f"| value | default | meaning |\n|---|---|---|\n{rows}"
    description = tomllib.loads(pyproject)["project"]["description"]
    return README.format(description=description, table=table)


def _fields(section: ValuesSection) -> Iterator[tuple[str, str, Any]]:
    """Return name, description and default of each value of a section.

    Raises
    ------
    ValueError
        When a value has no description.
    """
    for field, info in type(section).model_fields.items():
        name = info.alias or field
        if not info.description:
            raise ValueError(f"{type(section).__name__}.{field} has no docstring; write one")
        yield name, " ".join(info.description.split()), getattr(section, field)


def _lines(section: ValuesSection, indent: int) -> Iterator[str]:
    margin = " " * indent
    for name, text, default in _fields(section):
        for line in textwrap.wrap(text, WIDTH - indent - 2, break_long_words=False):
            yield f"{margin}# {line}"
        if isinstance(default, ValuesSection):
            yield f"{margin}{name}:"
            yield from _lines(default, indent + 2)
        else:
            written = yaml.safe_dump({name: default}, sort_keys=False)
            yield textwrap.indent(written.rstrip("\n"), margin)


def _rows(section: ValuesSection, prefix: str) -> Iterator[tuple[str, str, str]]:
    for name, text, default in _fields(section):
        if isinstance(default, ValuesSection):
            yield from _rows(default, f"{prefix}{name}.")
        else:
            shown = "" if default in ("", None) else f"`{json.dumps(default)}`".replace('"', "")
            yield f"{prefix}{name}", shown, text.replace("|", "\\|")
