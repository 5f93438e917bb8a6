"""Headers of requests: what a route reads it declares, and what it declares it reads."""

from typing import Any

import httpx
import pytest
from fastapi import APIRouter, FastAPI, Request
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from typing_extensions import override

from cloister_api.openapi.document import operations
from cloister_api.routes.dependencies import StrictRoute
from cloister_api.routes.parameters import IfMatch
from cloister_api.schemas.accounts import MessageResponse
from cloister_api.wire import JsonResponse
from tests.support.clients.openapi_check import described
from tests.support.programs.routes_only import bare_app, bare_client
from tests.unit.api.routes.test_every_operation import READ_WITH_QUERY, example, filled, form_of

FRAMEWORK = {"content-type", "cookie", "accept"}
"""Headers that the framework reads by itself, and one that a document must not declare (OpenAPI
3.1, "Parameter Object")."""
ALL = [(method.upper(), path) for path, method, _ in operations(described())]


class RecordingHeaders(Headers):
    """Headers that remember which of them were read."""

    read: set[str]

    @override
    def __getitem__(self, key: str) -> str:
        """Record a name, read or only looked for."""
        self.read.add(key.lower())
        return super().__getitem__(key)

    @override
    def __contains__(self, key: Any) -> bool:
        """Record a name that is looked for."""
        self.read.add(str(key).lower())
        return super().__contains__(key)

    @override
    def getlist(self, key: str) -> list[str]:
        """Record a name of which all values are read."""
        self.read.add(key.lower())
        return super().getlist(key)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Collect the names of headers that are read through requests."""
    names: set[str] = set()

    def headers(connection: HTTPConnection) -> Headers:
        recording = RecordingHeaders(scope=connection.scope)
        recording.read = names
        return recording

    monkeypatch.setattr(HTTPConnection, "headers", property(headers))
    return names


def declared(operation: dict[str, Any], document: dict[str, Any]) -> set[str]:
    """Return the headers that an operation declares, those of its security among them."""
    components = document["components"]
    names: set[str] = set()
    for each in operation.get("parameters", ()):
        parameter = each
        if "$ref" in each:
            parameter = components["parameters"][each["$ref"].rsplit("/", 1)[-1]]
        if parameter["in"] == "header":
            names.add(parameter["name"].lower())
    for scheme in (name for each in operation["security"] for name in each):
        form = components["securitySchemes"][scheme]
        is_cookie = form.get("in") == "cookie"
        names.add("cookie" if is_cookie else form.get("name", "authorization").lower())
    return names


@pytest.mark.spec("13.1")
@pytest.mark.parametrize(("method", "path"), ALL)
async def test_a_route_reads_the_headers_that_it_declares_and_no_others(
    read: set[str], method: str, path: str
) -> None:
    operation = described()["paths"][path][method.lower()]
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    body = None
    if content is not None:
        named = "$ref" in content["schema"] or "anyOf" in content["schema"]
        body = example(form_of(method, path)) if named else {}
    async with bare_client(bare_app()) as client:
        # With a version to be seen no request takes the short way past the framework.
        client.headers["x-consistency-token"] = "1"
        await client.request(method, filled(path), json=body, params=READ_WITH_QUERY.get(path))
    names = declared(operation, described())
    assert read - FRAMEWORK <= names
    # The guard authenticates, and services judge signatures before the guard reads bodies.
    judged = {"x-cloister-signature", "x-gitea-signature", "x-hub-signature-256"}
    assert names - read <= {"authorization", "cookie", "stripe-signature", *judged}


async def test_an_undeclared_header_is_noticed(read: set[str]) -> None:
    router = APIRouter(route_class=StrictRoute)

    @router.get("/probe")
    async def probe(request: Request, match: IfMatch = None) -> JsonResponse[MessageResponse]:
        """Read two headers and declare one."""
        return JsonResponse(MessageResponse(message=request.headers.get("X-Secret", match or "")))

    app = FastAPI()
    app.include_router(router)
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://facade.test") as client:
        assert (await client.get("/probe")).json() == {"message": ""}
    assert read - FRAMEWORK == {"if-match", "x-secret"}
