"""What holds for every operation, whatever it does: bodies, types, methods, paths, one form.

The operations come from the OpenAPI document, so that a new one cannot be forgotten.
"""

import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from cloister_api.errors import ApiError
from cloister_api.http.bodies import MAX_BODY
from cloister_api.openapi.document import operations
from cloister_api.payments.webhook import customer_of
from cloister_api.routes.enclaves import CHECK_PATH, CheckKeyRequest, read
from cloister_api.services.releases import repository_of
from cloister_api.usage.events import read_report
from cloister_api.wire import MAX_DEPTH, TOO_DEEP, DepthError, StrictRequest, parse
from tests.support.clients.openapi_check import described
from tests.support.programs.routes_only import REACHED, bare_app, bare_client, reported

FORMS = described()["components"]["schemas"]
IGNORED = {"group_name": "old", "group_order": 1, "display_order": "x"}
"""Names that old clients send (spec 20.1)."""
VALUES = {
    "{container_id}": "0b6d7f0e-3a4c-4f0e-9d55-0c1f2e3d4a5b",
    "{deployment_id}": "0b6d7f0e-3a4c-4f0e-9d55-0c1f2e3d4a5b",
    "{name}": "some-name",
    "{domain}": "api.example.com",
    "{registry}": "ghcr",
    "{key}": "tk_made-up",
    "{number}": "7",
    "{user}": "ada@example.test",
    "{key_id}": "0b6d7f0e-3a4c-4f0e-9d55-0c1f2e3d4a5b",
}
METHODS = {"GET", "POST", "PUT", "PATCH", "DELETE"}
ADMIN = [
    (method.upper(), path)
    for path, method, operation in operations(described())
    if {"session": []} in operation["security"]
]
"""Every operation for holders of an admin key, or for sessions alone."""
READ_WITH_QUERY = {
    "/api/billing/time-series": {"time": "5m"},
    "/api/billing/breakdown": {"time": "5m"},
    "/api/releases": {"repo": "acme/web"},
}


@cache
def one_app() -> FastAPI:
    """Return the application, which keeps nothing between requests."""
    return bare_app()


def form_of(method: str, path: str) -> str:
    """Return the name of the form of an operation's body; empty = it takes none."""
    operation = described()["paths"][path][method.lower()]
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if content is None:
        return ""
    form = content["schema"]
    form = next((each for each in form.get("anyOf", ()) if "$ref" in each), form)
    return str(form["$ref"].rsplit("/", 1)[-1])


WITH_BODY = [(method, path, form_of(method, path)) for method, path in ADMIN if method != "GET"]
WITH_BODY = [each for each in WITH_BODY if each[2]]


@pytest.fixture
def client() -> httpx.AsyncClient:
    """Return a client with a key."""
    return bare_client(one_app())


def filled(path: str) -> str:
    """Return a path with values for its parameters."""
    for parameter, value in VALUES.items():
        path = path.replace(parameter, value)
    assert "{" not in path
    return path


def longer(path: str) -> int:
    """Return the status of a GET of what is below a path: 405 where that may be a name."""
    return 405 if path.startswith("/api/members") else 404


def example(form: str) -> dict[str, Any]:
    """Return the example of a form."""
    found: dict[str, Any] = FORMS[form]["examples"][0]
    return dict(found)


def fields(form: str) -> dict[str, Any]:
    """Return the fields of a form that are read."""
    named = FORMS[form].get("properties", {})
    return {name: shape for name, shape in named.items() if name not in IGNORED}


def types(shape: dict[str, Any]) -> set[str]:
    """Return the JSON types that a field takes."""
    shapes = shape.get("anyOf", [shape])
    return {each.get("type", "") for each in shapes} - {"null"}


async def came_through(client: httpx.AsyncClient, method: str, path: str, **more: Any) -> None:
    """Check that a request reaches the services."""
    answer = await client.request(method, filled(path), **more)
    assert reported(answer, 404)["error"] == REACHED


@pytest.mark.spec("2.1")
@pytest.mark.parametrize(("method", "path"), ADMIN)
async def test_the_example_comes_through_and_without_a_key_nothing_does(
    client: httpx.AsyncClient, method: str, path: str
) -> None:
    form = form_of(method, path)
    more: dict[str, Any] = {"json": example(form)} if form else {}
    more["params"] = READ_WITH_QUERY.get(path)
    await came_through(client, method, path, **more)
    async with bare_client(one_app(), key=None) as stranger:
        reported(await stranger.request(method, filled(path), **more), 401)


@pytest.mark.spec("20.1")
@pytest.mark.parametrize(("method", "path", "form"), WITH_BODY)
async def test_an_unknown_field_is_named_and_an_old_one_ignored(
    client: httpx.AsyncClient, method: str, path: str, form: str
) -> None:
    body = {**example(form), "colour": "red", "Größe": 1}
    refused = reported(await client.request(method, filled(path), json=body), 400)
    assert {(each["field"], each["code"]) for each in refused["details"]} == {
        ("colour", "UnknownField"),
        ("Größe", "UnknownField"),
    }
    await came_through(client, method, path, json={**example(form), **IGNORED})


@pytest.mark.spec("20.2", "20.3", "20.8")
@pytest.mark.parametrize(("method", "path", "form"), WITH_BODY)
async def test_null_is_left_out_and_what_is_missing_is_named_at_once(
    client: httpx.AsyncClient, method: str, path: str, form: str
) -> None:
    required = set(FORMS[form].get("required", ()))
    absent = dict.fromkeys(fields(form).keys() - required)
    given = {**absent, **example(form)}
    await came_through(client, method, path, json=given)
    for body in ({}, dict.fromkeys(required)):
        answer = await client.request(method, filled(path), json=body)
        if required:
            refused = reported(answer, 400)
            assert {each["field"] for each in refused["details"]} == required
        elif form != "GithubConnectionRequest":
            assert reported(answer, 404)["error"] == REACHED


@pytest.mark.spec("20.8")
@pytest.mark.parametrize(("method", "path", "form"), WITH_BODY)
async def test_fields_of_another_type_are_named_at_once(
    client: httpx.AsyncClient, method: str, path: str, form: str
) -> None:
    shapes = fields(form)
    wrong = {name: True if "integer" in types(shape) else 5 for name, shape in shapes.items()}
    answer = await client.request(method, filled(path), json=wrong)
    if wrong:
        refused = reported(answer, 400)
        assert {each["field"] for each in refused["details"]} == shapes.keys()


def not_objects() -> Iterator[bytes]:
    """Return bodies that are no JSON objects."""
    yield from (b"{", b"[]", b"[{}]", b'"text"', b"5", b"true", b"\xff\xfe{}", b"[" * 100_000)
    yield b'{"a": 1} {"a": 2}'


@pytest.mark.spec("1.2")
@pytest.mark.parametrize(("method", "path", "form"), WITH_BODY)
async def test_what_is_no_object_is_refused(
    client: httpx.AsyncClient, method: str, path: str, form: str
) -> None:
    headers = {"content-type": "application/json"}
    for content in not_objects():
        answer = await client.request(method, filled(path), content=content, headers=headers)
        reported(answer, 400)


@pytest.mark.spec("20.3")
@pytest.mark.parametrize(("method", "path", "form"), WITH_BODY)
@pytest.mark.parametrize("content", [b"", b"null", b" null\n"])
async def test_no_body_and_null_are_the_same(
    client: httpx.AsyncClient, method: str, path: str, form: str, content: bytes
) -> None:
    """Go encodes a body that is nil as ``null``."""
    body = described()["paths"][path][method.lower()]["requestBody"]
    nullable = {"type": "null"} in body["content"]["application/json"]["schema"].get("anyOf", ())
    assert nullable != body.get("required", False)
    headers = {"content-type": "application/json"}
    answer = await client.request(method, filled(path), content=content, headers=headers)
    if body.get("required"):
        (missing,) = reported(answer, 400)["details"]
        assert (missing["field"], missing["code"]) == ("", "Missing")
    else:
        assert reported(answer, 404)["error"] == REACHED


@pytest.mark.parametrize(("method", "path", "form"), WITH_BODY)
async def test_a_value_of_another_type_is_told_what_to_write(
    client: httpx.AsyncClient, method: str, path: str, form: str
) -> None:
    for name, shape in fields(form).items():
        (kind, *others) = types(shape) - {"null"} or {"any"}
        if others or kind not in OF_ANOTHER_TYPE:
            continue
        wrong, words = OF_ANOTHER_TYPE[kind]
        answer = await client.request(method, filled(path), json={**example(form), name: wrong})
        messages = {each["field"]: each["message"] for each in reported(answer, 400)["details"]}
        assert words in messages[name], (name, messages)


@pytest.mark.spec("1.2")
@pytest.mark.parametrize(("method", "path", "form"), WITH_BODY)
async def test_text_that_is_no_unicode_breaks_nothing(
    client: httpx.AsyncClient, method: str, path: str, form: str
) -> None:
    half = "half of a character: \ud800"
    for name, shape in fields(form).items():
        nested: Any = {"a": half} if types(shape) == {"object"} else [half]
        value = nested if types(shape) & {"object", "array"} else half
        content = json.dumps({**example(form), name: value})
        headers = {"content-type": "application/json"}
        answer = await client.request(method, filled(path), content=content, headers=headers)
        assert answer.status_code in {400, 404}, (name, answer.text)


@pytest.mark.spec("20.9", "20.14")
@pytest.mark.parametrize(("method", "path", "form"), WITH_BODY)
async def test_bodies_are_json_by_their_name_and_bounded(
    client: httpx.AsyncClient, method: str, path: str, form: str
) -> None:
    content = json.dumps(example(form)).encode()
    for name in ("text/plain", "application/x-www-form-urlencoded", "application/json5", ""):
        answer = await client.request(
            method, filled(path), content=content, headers={"content-type": name}
        )
        reported(answer, 415)
    headers = {"content-type": "application/json; charset=utf-8"}
    await came_through(client, method, path, content=content, headers=headers)
    whole = content + b" " * (MAX_BODY - len(content))
    await came_through(client, method, path, content=whole, headers=headers)
    larger = await client.request(method, filled(path), content=whole + b" ", headers=headers)
    reported(larger, 413)


@pytest.mark.spec("3.1", "3.2", "7.4", "20.9")
@pytest.mark.parametrize("path", sorted({path for _, path in ADMIN}))
async def test_other_methods_and_longer_paths_are_refused_in_the_same_form(
    client: httpx.AsyncClient, path: str
) -> None:
    known = {method.upper() for method in described()["paths"][path] if method.upper() in METHODS}
    for method in sorted(METHODS - known):
        answer = await client.request(method, filled(path))
        reported(answer, 405)
        assert answer.headers["allow"] == ", ".join(sorted(known))
    for more in ("/", "/no/such/path", "//"):
        reported(await client.get(filled(path) + more), longer(path))


@pytest.mark.spec("20.7")
@pytest.mark.parametrize("path", sorted({path for _, path in ADMIN}))
async def test_browsers_of_other_sites_are_told_nothing(
    client: httpx.AsyncClient, path: str
) -> None:
    """No CORS under /api (spec 20.7)."""
    asking = {
        "origin": "https://elsewhere.test",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization",
    }
    reported(await client.options(filled(path), headers=asking), 405)
    reported(await client.get(filled(path) + "/no/such", headers=asking), longer(path))


@pytest.mark.spec("20.4")
@pytest.mark.parametrize(("method", "path"), ADMIN)
async def test_parameters_of_the_query_are_read_or_refused(
    client: httpx.AsyncClient, method: str, path: str
) -> None:
    form = form_of(method, path)
    more: dict[str, Any] = {"json": example(form)} if form else {}
    known = {
        each["name"]
        for each in described()["paths"][path][method.lower()].get("parameters", ())
        if each.get("in") == "query"
    }
    wrong = (("colour", "red"), ("Größe", "1"))
    refused = reported(await client.request(method, filled(path), params=wrong, **more), 400)
    assert {(each["field"], each["code"]) for each in refused["details"]} == {
        ("colour", "UnknownParameter"),
        ("Größe", "UnknownParameter"),
    }
    assert all(name in refused["details"][0]["message"] for name in known)
    for name in known:
        twice = ((name, "5m"), (name, "24h"))
        refused = reported(await client.request(method, filled(path), params=twice, **more), 400)
        assert [(each["field"], each["code"]) for each in refused["details"]] == [
            (name, "Duplicate")
        ]


@pytest.mark.spec("20.4")
@pytest.mark.parametrize(("method", "path", "form"), WITH_BODY)
async def test_a_repeated_field_is_named(
    client: httpx.AsyncClient, method: str, path: str, form: str
) -> None:
    headers = {"content-type": "application/json"}
    pairs = [*example(form).items(), ("group_name", {"a": [{"b": 1}]})]
    whole = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in pairs]
    content = f"{{{', '.join(whole)}}}"
    await came_through(client, method, path, content=content, headers=headers)
    for (name, _), pair in zip(pairs, whole, strict=True):
        answer = await client.request(
            method, filled(path), content=f"{{{', '.join([*whole, pair])}}}", headers=headers
        )
        (refused,) = reported(answer, 400)["details"]
        assert (refused["field"], refused["code"]) == (name, "Duplicate")
    inside = content.replace('{"b": 1}', '{"b": 1, "b": 1}')
    answer = await client.request(method, filled(path), content=inside, headers=headers)
    (refused,) = reported(answer, 400)["details"]
    assert (refused["field"], refused["code"]) == ("group_name.a.0.b", "Duplicate")


@pytest.mark.spec("20.4")
@pytest.mark.parametrize(
    ("body", "names"),
    [
        (b'{"a": 1, "b": {"a": 2}, "c": [{"a": 1}, {"a": 1}]}', []),
        (b'{"a": 1, "a": 1, "b": {"c": 1, "c": {"d": 1, "d": 2}}}', ["a", "b.c", "b.c.d"]),
        (b'{"\\u0061": 1, "a": 2}', ["a"]),
        (b'[{"a": 1, "a": 2}, {"a": 1}]', ["0.a"]),
        (b"5", []),
    ],
)
def test_repeated_names_have_paths(body: bytes, names: list[str]) -> None:
    assert parse(body) == (json.loads(body), names)


@pytest.mark.parametrize("body", [b'{"a": 1, "a": 2', b"\xff\xfe", b"[" * 100_000])
async def test_a_body_that_is_not_json_has_no_repeated_names_and_is_parsed_once(
    body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[bytes] = []

    def counted(text: bytes) -> Any:
        parsed.append(text)
        return parse(text)

    monkeypatch.setattr("cloister_api.wire.parse", counted)
    request = StrictRequest({"type": "http", "headers": []})
    request._body = body
    assert await request.repeated_names() == []
    for _ in range(2):
        with pytest.raises((ValueError, RecursionError)):
            await request.json()
    assert parsed == [body]


async def test_a_body_is_parsed_once(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[str | bytes] = []

    def counted(text: str | bytes, **options: Any) -> Any:
        parsed.append(text)
        return loads(text, **options)

    loads = json.loads
    monkeypatch.setattr(json, "loads", counted)
    response = await client.post("/api/containers", json=example("CreateContainerRequest"))
    monkeypatch.undo()
    assert reported(response, 404)["error"] == REACHED
    assert len(parsed) == 1


def nested(levels: int) -> tuple[bytes, ...]:
    """Return JSON in which values are nested, in the ways in which they can be."""
    return (
        b"[" * levels + b"]" * levels,
        b'{"a":' * levels + b"1" + b"}" * levels,
        b'{"group_name":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}",
        b'{"a": "[[[\\"{", "b":' + b"[1," * (levels - 1) + b"1" + b"]" * (levels - 1) + b"}",
    )


TAKING_BODIES = sorted(
    (method.upper(), path)
    for path, method, operation in operations(described())
    if "requestBody" in operation
)
"""Every operation that takes a body, whoever may call it."""
OF_ANOTHER_TYPE: dict[str, tuple[Any, str]] = {
    "boolean": ("yes", "write true or false, without quotes"),
    "integer": ("7", "whole number: write one, without quotes"),
    "string": (7, "write"),
    "array": ("a", "is not a list: write one, in brackets"),
}
"""Type of a field -> a value of another type, and the words that say what to write."""
READ_BY_SERVICES = {"/api/internal/usage-reports", "/api/webhooks/releases", "/api/webhooks/stripe"}
"""Paths whose services read the body once its signature is verified."""


@pytest.mark.spec("20.24")
@pytest.mark.parametrize(("method", "path"), TAKING_BODIES)
async def test_values_that_are_nested_deeply_are_refused_with_a_sentence(
    client: httpx.AsyncClient, method: str, path: str
) -> None:
    headers = {"content-type": "application/json"}
    for levels in (MAX_DEPTH + 1, 20_000):
        for content in nested(levels):
            answer = await client.request(method, filled(path), content=content, headers=headers)
            if path in READ_BY_SERVICES:
                assert reported(answer, 404)["error"] == REACHED
                continue
            refused = reported(answer, 400)
            if path != CHECK_PATH:  # It skips what it does not know, and lacks the key.
                assert refused["error"] == TOO_DEEP
                assert [each["code"] for each in refused["details"]] == ["TooDeep"]


@pytest.mark.spec("20.24")
@pytest.mark.parametrize("read", [read_report, repository_of, customer_of, read])
def test_services_refuse_values_that_are_nested_deeply(read: Callable[[bytes], object]) -> None:
    for content in nested(20_000):
        with pytest.raises(ApiError) as caught:
            read(content)
        assert caught.value.status == 400


@pytest.mark.spec("20.1")
def test_a_shim_of_a_later_release_may_send_more_in_a_key_check() -> None:
    """A shim and the facade are not updated at the same moment."""
    more = {"method": "POST", "client": {"address": "192.0.2.1"}, "models": None, "path": None}
    assert read(json.dumps({"api_key": "tk_x", **more}).encode()) == CheckKeyRequest("tk_x")


@pytest.mark.spec("20.24")
def test_the_depth_of_a_body_is_exact() -> None:
    for content in nested(MAX_DEPTH):
        assert parse(content)[0] is not None
    for content in nested(MAX_DEPTH + 1):
        with pytest.raises(DepthError):
            parse(content)
    brackets = b'["' + b"[" * 1000 + b'\\"' + b"{" * 1000 + b'"]'
    assert parse(brackets)[0] == json.loads(brackets)
