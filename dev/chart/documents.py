"""values.yaml, Chart.yaml and the table of values in the documentation, from the model."""

import json
import re
import textwrap
import tomllib
from collections.abc import Iterator
from typing import Any, Final

import yaml

from dev.chart.values import ChartValues, ValuesSection

WIDTH: Final = 100
TABLE: Final = re.compile(r"(<!-- values -->\n).*?(<!-- end of values -->)", re.DOTALL)
"""Place of the table in the page."""
CHART: Final = """\
# Generated from pyproject.toml by `make crds`; do not edit.
apiVersion: v2
name: cloister
description: {description}
type: application
version: {version}
appVersion: {version}
kubeVersion: ">=1.35.0-0"
"""


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
    return CHART.format(version=project["version"], description=project["description"])


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


def with_table(page: str) -> str:
    """Return a page with the table of all values in its place.

    Parameters
    ----------
    page
        Text of the page; one without the place is returned as it is.
    """
    rows = "".join(
        f"| `{name}` | {default} | {text} |\n" for name, default, text in _rows(ChartValues(), "")
    )
    table = f"| value | default | meaning |\n|---|---|---|\n{rows}"
    return TABLE.sub(lambda found: found[1] + table + found[2], page)


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
