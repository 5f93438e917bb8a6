"""The OpenAPI document as one page: no script, nothing loaded from elsewhere."""

import json
import re
from collections.abc import Iterable, Sequence
from html import escape
from http import HTTPStatus
from typing import Any

from cloister_api.openapi.document import operations

__all__ = ["page"]

STYLE = """\
:root{color-scheme:light dark;--line:#8884;--soft:#8881}
*{box-sizing:border-box}
body{font:16px/1.5 system-ui,sans-serif;margin:0}
main{max-width:56rem;padding:1rem 2rem 4rem}
nav{padding:1rem;font-size:.9rem}
nav a{text-decoration:none}
nav ul{list-style:none;margin:0;padding:0 0 .6rem}
nav li{white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
nav>a{font-weight:bold}
h2{border-bottom:2px solid var(--line);margin:3.5rem 0 1rem;padding-bottom:.3rem}
h2::first-letter{text-transform:uppercase}
h3{margin:2.5rem 0 .5rem;font-size:1.05rem;overflow-wrap:anywhere}
code,pre{font:.875em/1.45 ui-monospace,monospace}
pre{background:var(--soft);border-radius:.4rem;padding:.7rem 1rem;overflow:auto}
table{border-collapse:collapse;width:100%;margin:.5rem 0 1rem;font-size:.92rem}
td,th{border-bottom:1px solid var(--line);padding:.3rem .8rem .3rem 0;text-align:left;
vertical-align:top;overflow-wrap:break-word}
:target{background:var(--soft)}
td:first-child{white-space:nowrap}
.m{font:bold .75rem/1 ui-monospace,monospace;text-transform:uppercase;display:inline-block;
min-width:3.6em;padding:.2em .4em;border-radius:.3em;background:var(--soft);text-align:center}
nav .m{min-width:4.8em;font-size:.65rem}
.get{color:#27a}.post{color:#283}.put,.patch{color:#a60}.delete{color:#b33}
.key{font-size:.85rem;opacity:.75}
@media(min-width:64rem){body{display:grid;grid-template-columns:20rem 1fr}
nav{position:sticky;top:0;height:100vh;overflow:auto;border-right:1px solid var(--line)}}
"""
EVERYWHERE = frozenset({"X-Request-Id", "RateLimit", "RateLimit-Policy"})
"""Headers of every response; `headers_section` explains them."""
Operation = tuple[str, str, dict[str, Any]]
"""Path, method and description."""


def page(described: dict[str, Any]) -> str:
    """Return the page of a document, as HTML.

    Parameters
    ----------
    described
        The OpenAPI document.
    """
    info, components = described["info"], described["components"]
    groups: dict[str, list[Operation]] = {each["name"]: [] for each in described["tags"]}
    for path, method, operation in operations(described):
        groups[operation["tags"][0]].append((path, method, operation))
    parts = [f"<h1>{escape(info['title'])}</h1>", f"<p>{prose(info['description'])}</p>"]
    for tag in described["tags"]:
        parts.append(f'<h2 id="{anchor(tag["name"])}">{escape(tag["name"])}</h2>')
        parts.append(f"<p>{prose(tag['description'])}</p>")
        parts += [section(components, *each) for each in groups[tag["name"]]]
    parts.append('<h2 id="types">types</h2><p>A field with ? may be left out.</p>')
    parts += [type_section(name, schema) for name, schema in components["schemas"].items()]
    parts.append(headers_section(components["headers"]))
    parts.append(errors_section(components["responses"]))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(info['title'])}</title><style>{STYLE}</style></head>\n<body>\n"
        f"{contents(groups)}\n<main>\n" + "\n".join(parts) + "\n</main></body></html>\n"
    )


def contents(groups: dict[str, list[Operation]]) -> str:
    """Return the table of contents: every operation by group, then types, headers and errors."""
    parts = []
    for name, members in groups.items():
        links = "".join(
            f'<li><a href="#{operation["operationId"]}" title="{escape(path)}">'
            f"{badge(method)} {escape(operation['summary'])}</a></li>"
            for path, method, operation in members
        )
        parts.append(f'<a href="#{anchor(name)}">{escape(name)}</a><ul>{links}</ul>')
    parts += [f'<a href="#{name}">{name}</a><ul></ul>' for name in ("types", "headers", "errors")]
    return f"<nav>{''.join(parts)}</nav>"


def section(components: dict[str, Any], path: str, method: str, operation: dict[str, Any]) -> str:
    """Describe one operation."""
    parts = [
        f'<h3 id="{operation["operationId"]}">{badge(method)} <code>{escape(path)}</code></h3>',
        f"<p>{prose(operation['description'])} {security(operation)}</p>",
    ]
    shared = components["parameters"]
    parameters = [
        shared[each["$ref"].split("/")[-1]] if "$ref" in each else each
        for each in operation.get("parameters", ())
    ]
    parts.append(table(("parameter", "in", "type", "meaning"), map(parameter_row, parameters)))
    body = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if body:
        schema = body["schema"]
        parts.append(f"<p>Body: {shape(schema)}</p>{examples(components['schemas'], schema)}")
    parts.append(responses(operation["responses"]))
    return "\n".join(filter(None, parts))


def parameter_row(parameter: dict[str, Any]) -> tuple[str, ...]:
    """Return the row of one parameter."""
    needed = "" if parameter["in"] == "path" or not parameter["required"] else " Required."
    return (
        f"<code>{escape(parameter['name'])}</code>",
        parameter["in"],
        shape(parameter["schema"]),
        prose(parameter.get("description", "")) + needed,
    )


def responses(described: dict[str, Any]) -> str:
    """Describe the responses of an operation; errors of the common form are only named."""
    rows, errors = [], []
    for status, response in described.items():
        if "$ref" in response:
            errors.append(f'<a href="#error-{status}">{status}</a>')
            continue
        body = " or ".join(shape(each["schema"]) for each in response.get("content", {}).values())
        headers = ", ".join(
            f"<code>{escape(name)}</code>" for name in response["headers"] if name not in EVERYWHERE
        )
        rows.append((f"{status} {escape(response['description'])}", body, headers))
    shown = table(("response", "body", "headers"), rows)
    return f"{shown}<p>Errors: {', '.join(errors)}.</p>" if errors else shown


def type_section(name: str, schema: dict[str, Any]) -> str:
    """Describe one type."""
    head = f'<h3 id="type-{name}">{escape(name)}</h3><p>{prose(schema.get("description", ""))}</p>'
    if "enum" in schema:
        return f"{head}<p>{words_of(schema['enum'])}</p>"
    required = schema.get("required", ())
    rows = [
        (
            f"<code>{escape(field)}</code>{'' if field in required else ' ?'}",
            shape(described),
            prose(described.get("description", "")),
        )
        for field, described in schema.get("properties", {}).items()
    ]
    shown = "".join(f"<pre>{text(each)}</pre>" for each in schema.get("examples", ()))
    return f"{head}{table(('field', 'type', 'meaning'), rows)}{shown}"


def errors_section(described: dict[str, Any]) -> str:
    """Show an example of every error."""
    parts = ['<h2 id="errors">errors</h2>']
    for name, response in described.items():
        shown = response["content"]["application/json"]["example"]
        status = next(each for each in HTTPStatus if name == each.phrase.title().replace(" ", ""))
        parts.append(
            f'<h3 id="error-{status.value}">{status.value} {escape(status.phrase)}</h3>'
            f"<p>{prose(response['description'])}</p><pre>{text(shown)}</pre>"
        )
    return "\n".join(parts)


def headers_section(described: dict[str, Any]) -> str:
    """Explain the headers of responses."""
    rows = (
        (f"<code>{escape(name)}</code>", prose(header["description"]))
        for name, header in described.items()
    )
    return f'<h2 id="headers">headers</h2>{table(("header", "meaning"), rows)}'


def security(operation: dict[str, Any]) -> str:
    """Return what authenticates a request; the admin key is the rule and not repeated."""
    schemes = [name for each in operation["security"] for name in each]
    if not schemes:
        return '<span class="key">Needs no key.</span>'
    if schemes == ["adminKey"]:
        return ""
    return f'<span class="key">Needs <code>{escape(schemes[0])}</code>.</span>'


def shape(schema: dict[str, Any]) -> str:
    """Return the type of a schema in a few words, with links."""
    if "$ref" in schema:
        name = schema["$ref"].split("/")[-1]
        return f'<a href="#type-{name}">{escape(name)}</a>'
    if "anyOf" in schema:
        return " or ".join(map(shape, schema["anyOf"]))
    words = schema.get("enum") or [schema[key] for key in ("const",) if key in schema]
    if words:
        return words_of(words)
    kind = schema.get("type")
    if kind == "array":
        return f"array of {shape(schema.get('items', {}))}"
    values = schema.get("additionalProperties")
    if isinstance(values, dict):
        return f"object of {shape(values)}"
    known = " or ".join(kind) if isinstance(kind, list) else (kind or "anything")
    return escape(f"{known} ({schema['format']})" if "format" in schema else known)


def words_of(words: Iterable[Any]) -> str:
    """Return the values that an enum may have."""
    return " | ".join(f"<code>{escape(json.dumps(each))}</code>" for each in words)


def examples(schemas: dict[str, Any], schema: dict[str, Any]) -> str:
    """Return the examples of a body."""
    named = [
        each["$ref"].split("/")[-1] for each in schema.get("anyOf", [schema]) if "$ref" in each
    ]
    known = [each for name in named for each in schemas[name].get("examples", ())]
    return "".join(f"<pre>{text(each)}</pre>" for each in known)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Build a table; an empty text without rows."""
    lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    top = "".join(f"<th>{head}</th>" for head in heads)
    return f"<table><tr>{top}</tr>{lines}</table>" if lines else ""


def badge(method: str) -> str:
    """Return a method as a badge."""
    return f'<span class="m {method}">{method}</span>'


def anchor(name: str) -> str:
    """Return the anchor of a group."""
    return f"group-{name.lower().replace(' ', '-')}"


def text(value: Any) -> str:
    """Return an example as text."""
    return escape(json.dumps(value, indent=2, ensure_ascii=False))


def prose(words: str) -> str:
    """Return a description; what is in backquotes is code."""
    return re.sub(r"`{1,2}([^`]+)`{1,2}", r"<code>\1</code>", escape(words.strip()))
