"""Check of the facade's responses against its OpenAPI document.

Every response that a test receives from a facade is checked. Fields that the document does not name
are refused here, although clients tolerate them: the document must be complete.
"""

import copy
import re
from functools import lru_cache
from typing import Any

import httpx
from jsonschema import Draft202012Validator, FormatChecker

from cloister_api.main import ROUTERS
from cloister_api.openapi.document import document, operations

__all__ = ["check_response", "described", "operation_of"]

FORMS = "#/components/schemas/"
GATE = {401, 403, 404, 405, 429, 501, 503}
"""Allowed statuses for paths and methods that the document does not have."""

TRANSPORT = {"connection", "content-length", "content-type", "date", "server", "transfer-encoding"}
"""Headers of HTTP itself, which no operation declares."""


@lru_cache(maxsize=1)
def described() -> dict[str, Any]:
    """Return the document."""
    return document(ROUTERS)


@lru_cache(maxsize=1)
def strict() -> dict[str, Any]:
    """Return the document with closed objects."""
    closed = copy.deepcopy(described())
    for form in closed["components"]["schemas"].values():
        if form.get("type") == "object" and "properties" in form:
            form.setdefault("additionalProperties", False)
    return closed


@lru_cache(maxsize=1)
def patterns() -> list[tuple[re.Pattern[str], str]]:
    """Return a pattern for each path of the document; those without parameters come first."""
    paths = sorted({path for path, _, _ in operations(described())}, key=lambda path: "{" in path)
    return [(re.compile(re.sub(r"\{[a-z_]+\}", "[^/]+", path) + "$"), path) for path in paths]


def operation_of(method: str, path: str) -> dict[str, Any] | None:
    """Return the operation of a request; None = it is not in the document."""
    for pattern, template in patterns():
        if pattern.match(path):
            found: dict[str, Any] | None = strict()["paths"][template].get(method.lower())
            return found
    return None


async def check_response(response: httpx.Response) -> None:
    """Fail when a response does not conform to the document.

    Parameters
    ----------
    response
        The response; used as an event hook of httpx.
    """
    method, path = response.request.method, response.request.url.raw_path.decode().split("?")[0]
    await response.aread()
    assert response.headers.get("x-request-id"), f"{method} {path}: no X-Request-Id"
    operation = operation_of(method, path)
    if operation is None:
        assert response.status_code in GATE or not path.startswith("/api"), f"{method} {path}"
        return
    status = str(response.status_code)
    reported = f"{method} {path}: {status}"
    assert status in operation["responses"], f"{reported} is not in the document: {response.text}"
    said = operation["responses"][status]
    if "$ref" in said:
        said = strict()["components"]["responses"][said["$ref"].split("/")[-1]]
    check_headers(said.get("headers", {}), response.headers, reported)
    if "content" not in said:
        assert not response.content, f"{reported} has a body"
        return
    kind = response.headers["content-type"].partition(";")[0]
    assert kind in said["content"], f"{reported} is {kind}"
    if kind == "application/json":
        check_form(said["content"][kind]["schema"], response.json(), reported)


def check_headers(declared: dict[str, Any], sent: httpx.Headers, reported: str) -> None:
    """Fail when a response lacks a required header, or has one that the document does not name."""
    for name, header in declared.items():
        form = strict()["components"]["headers"][header["$ref"].split("/")[-1]]
        assert name in sent or not form.get("required"), f"{reported} has no {name}"
    undeclared = set(sent) - TRANSPORT - {name.lower() for name in declared}
    assert not undeclared, f"{reported} has headers that are not in the document: {undeclared}"


def check_form(form: dict[str, Any], value: Any, reported: str) -> None:
    """Fail when a value does not conform to a schema of the document."""
    whole = {"components": strict()["components"], **form}
    validator = Draft202012Validator(whole, format_checker=FormatChecker())
    for error in validator.iter_errors(value):
        raise AssertionError(f"{reported} {error.json_path}: {error.message}")
