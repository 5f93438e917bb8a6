"""The description of the API as one page: no script, nothing loaded from elsewhere."""

import json
import re
from collections.abc import Sequence
from html import escape
from typing import Any

from cloister_api.openapi.document import operations

__all__ = ["page"]

STYLE = """\
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:0 auto;padding:1rem}
nav ul{columns:20rem;list-style:none;padding:0}
h2{border-bottom:1px solid #8888;margin-top:3rem}
h3{margin-top:2rem}
code,pre{font:14px/1.4 ui-monospace,monospace}
pre{background:#8882;padding:.6rem;overflow:auto}
table{border-collapse:collapse;width:100%}
td,th{border-bottom:1px solid #8884;padding:.2rem .6rem .2rem 0;text-align:left;vertical-align:top}
.method{display:inline-block;min-width:4.5rem;text-transform:uppercase;font-weight:bold}
"""


def page(described: dict[str, Any]) -> str:
    """Answer the page of a document, as HTML.

    Parameters
    ----------
    described
        The OpenAPI document.
    """
    info = described["info"]
    groups: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
    for path, method, operation in operations(described):
        groups.setdefault(operation["tags"][0], []).append((path, method, operation))
    parts = [
        f"<h1>{escape(info['title'])}</h1>",
        f"<p>{prose(info['description'])}</p>",
        contents(groups),
    ]
    for tag in sorted(groups):
        parts.append(f"<h2>{escape(tag)}</h2>")
        parts += [section(described, *each) for each in groups[tag]]
    parts.append("<h2>Forms</h2>")
    forms = described["components"]["schemas"]
    parts += [form_section(name, forms[name]) for name in sorted(forms)]
    parts.append(errors_section(described["components"]["responses"]))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(info['title'])}</title><style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def contents(groups: dict[str, list[tuple[str, str, dict[str, Any]]]]) -> str:
    """List all operations with links to them."""
    lines = []
    for tag in sorted(groups):
        links = "".join(
            f'<li><a href="#{operation["operationId"]}"><span class="method">{method}</span> '
            f"<code>{escape(path)}</code></a></li>"
            for path, method, operation in groups[tag]
        )
        lines.append(f"<p>{escape(tag)}</p><ul>{links}</ul>")
    return f"<nav>{''.join(lines)}</nav>"


def section(described: dict[str, Any], path: str, method: str, operation: dict[str, Any]) -> str:
    """Describe one operation."""
    shown = f'<span class="method">{method}</span> <code>{escape(path)}</code>'
    parts = [
        f'<h3 id="{operation["operationId"]}">{shown}</h3>',
        f"<p>{prose(operation.get('description', ''))} {needed(operation)}</p>",
    ]
    if operation.get("parameters"):
        known = described["components"]["parameters"]
        parameters = (
            known[each["$ref"].split("/")[-1]] if "$ref" in each else each
            for each in operation["parameters"]
        )
        rows = [
            (f"<code>{escape(each['name'])}</code>", each["in"], prose(each.get("description", "")))
            for each in parameters
        ]
        parts.append(table(("parameter", "in", "meaning"), rows))
    body = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if body:
        parts.append(f"<p>Body: {shape(body['schema'])}</p>{example(described, body['schema'])}")
    rows = []
    for status, given in operation["responses"].items():
        said = resolved(described, given)
        content = said.get("content", {})
        forms = [each["schema"] for each in content.values()] if "$ref" not in given else []
        named = " or ".join(map(shape, forms))
        rows.append((f"<code>{status}</code>", prose(said["description"]), named))
    parts.append(table(("status", "meaning", "form"), rows))
    return "\n".join(parts)


def form_section(name: str, form: dict[str, Any]) -> str:
    """Describe one form."""
    head = f'<h3 id="form-{name}">{escape(name)}</h3><p>{prose(form.get("description", ""))}</p>'
    if "enum" in form:
        words = ", ".join(f"<code>{escape(str(word))}</code>" for word in form["enum"])
        return f"{head}<p>One of {words}.</p>"
    required = form.get("required", ())
    rows = [
        (
            f"<code>{escape(field)}</code>",
            shape(said),
            "yes" if field in required else "",
            prose(said.get("description", "")),
        )
        for field, said in form.get("properties", {}).items()
    ]
    shown = "".join(f"<pre>{text(one)}</pre>" for one in form.get("examples", ()))
    return f"{head}{table(('field', 'type', 'always', 'meaning'), rows)}{shown}"


def errors_section(responses: dict[str, Any]) -> str:
    """Show an example of every error."""
    parts = ["<h2>Errors</h2>"]
    for name, said in responses.items():
        shown = text(said["content"]["application/json"]["example"])
        parts.append(
            f"<h3>{escape(name)}</h3><p>{prose(said['description'])}</p><pre>{shown}</pre>"
        )
    return "\n".join(parts)


def needed(operation: dict[str, Any]) -> str:
    """Say what an operation needs to know of who asks."""
    if not operation["security"]:
        return "Needs no key."
    (scheme,) = (name for each in operation["security"] for name in each)
    return f"Needs <code>{escape(scheme)}</code>."


def resolved(described: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Follow a reference among the shared answers."""
    if "$ref" not in given:
        return given
    found: dict[str, Any] = described["components"]["responses"][given["$ref"].split("/")[-1]]
    return found


def shape(form: dict[str, Any]) -> str:
    """Say the type of a form in a few words, with links."""
    if "$ref" in form:
        name = form["$ref"].split("/")[-1]
        return f'<a href="#form-{name}">{escape(name)}</a>'
    if "anyOf" in form:
        return " or ".join(shape(each) for each in form["anyOf"])
    words = form.get("enum") or [form[key] for key in ("const",) if key in form]
    if words:
        return " | ".join(f"<code>{escape(json.dumps(each))}</code>" for each in words)
    kind = form.get("type")
    if kind == "array":
        return f"array of {shape(form.get('items', {}))}"
    values = form.get("additionalProperties")
    if isinstance(values, dict):
        return f"object of {shape(values)}"
    known = " or ".join(kind) if isinstance(kind, list) else (kind or "anything")
    return escape(f"{known} ({form['format']})" if "format" in form else known)


def example(described: dict[str, Any], form: dict[str, Any]) -> str:
    """Show the example of the form of a body."""
    if "$ref" not in form:
        return ""
    known = described["components"]["schemas"][form["$ref"].split("/")[-1]]
    return "".join(f"<pre>{text(one)}</pre>" for one in known.get("examples", ()))


def table(heads: tuple[str, ...], rows: Sequence[Sequence[str]]) -> str:
    """Build a table; none without rows."""
    if not rows:
        return ""
    top = "".join(f"<th>{head}</th>" for head in heads)
    lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{top}</tr>{lines}</table>"


def text(value: Any) -> str:
    """Write an example."""
    return escape(json.dumps(value, indent=2, ensure_ascii=False))


def prose(words: str) -> str:
    """Write a description: what stands in backquotes is code."""
    return re.sub(r"`+([^`]+)`+", r"<code>\1</code>", escape(words.strip()))
