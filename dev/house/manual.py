"""The bodies of requests in the manual: tables whose second column follows from the models."""

import re
from typing import Any

from cloister_api.openapi.document import operations

HEAD = "| call | body | response |"
"""First line of such a table."""
CALL = re.compile(r"`(?P<method>POST|PUT|PATCH) (?P<path>[^`?]+)[^`]*`")


class BodyTableError(ValueError):
    """A table names a call that the API does not have, or that is ambiguous."""


def with_bodies(text: str, described: dict[str, Any]) -> str:
    """Return a page with the fields of the bodies in its tables of calls.

    Parameters
    ----------
    text
        The page, in Markdown. Cells of calls without a body stay as they are.

    Raises
    ------
    BodyTableError
        When a call of a table is not exactly one operation of the document.
    """
    lines, inside = [], False
    for line in text.splitlines(keepends=True):
        inside = line.startswith(HEAD) or (inside and line.startswith("|"))
        call = CALL.search(line.split("|")[1]) if inside else None
        lines.append(line if call is None else _with_body(line, call, described))
    return "".join(lines)


def _with_body(line: str, call: re.Match[str], described: dict[str, Any]) -> str:
    """Return the row of a call with the fields of its body."""
    first, _, response = line.strip().strip("|").split("|", 2)
    fields = _fields(_operation(call["method"], call["path"], described), described)
    return f"|{first}|{f' {fields} ' if fields else ' '}|{response}|\n"


def _operation(method: str, path: str, described: dict[str, Any]) -> dict[str, Any]:
    """Return the operation of a call; ``…`` stands for the beginning of its path."""
    ends = path.startswith("…")
    wanted = re.sub(r":\w+", "{}", path.removeprefix("…"))
    found = [
        operation
        for known, word, operation in operations(described)
        if word == method.lower() and _matches(re.sub(r"\{\w+\}", "{}", known), wanted, ends=ends)
    ]
    if len(found) != 1:
        raise BodyTableError(
            f"{method} {path} is {len(found)} operations of the API; write one of them"
        )
    return found[0]


def _matches(known: str, wanted: str, *, ends: bool) -> bool:
    return known.endswith(wanted) if ends else known == wanted


def _fields(operation: dict[str, Any], described: dict[str, Any]) -> str:
    """Return the fields of a body in a few words; empty = it has none."""
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    form = content.get("schema", {})
    names = [each["$ref"].split("/")[-1] for each in form.get("anyOf", [form]) if "$ref" in each]
    if not names:
        return ""
    schema = described["components"]["schemas"][names[0]]
    known = [name for name, each in schema["properties"].items() if not each.get("deprecated")]
    required = [f"`{name}`" for name in known if name in schema.get("required", ())]
    optional = [f"`{name}`" for name in known if name not in schema.get("required", ())]
    parts = [", ".join(required), f"optional {', '.join(optional)}" if optional else ""]
    return "; ".join(filter(None, parts))
