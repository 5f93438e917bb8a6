"""The OpenAPI document of the facade: what the routes say of themselves, and what holds for all.

Pure: it follows from the routes alone, so that the committed file can be compared with it.
"""

from collections.abc import Iterable, Iterator
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import APIRouter, FastAPI

from cloister_api.http.middleware import REPORT_PATH, needs_key
from cloister_api.openapi.errors import component
from cloister_api.openapi.examples import EXAMPLES
from cloister_api.routes.shim import CHECK_PATH, CheckKeyRequest
from cloister_api.schemas.account_answers import Valid
from cloister_api.schemas.answers import Error
from cloister_api.usage.events import Attributes, UsageEvent

__all__ = ["document", "operations"]

REQUIRED = frozenset({("/api/billing/time-series", "time")})
"""Parameters that must be there although the framework does not know it."""
METHODS = frozenset({"get", "put", "post", "delete", "patch"})
ADMIN_KEY = "adminKey"
VERSIONED = frozenset(
    {
        "/api/deployments/{deployment_id}",
        "/api/deployments/{deployment_id}/update",
        "/api/domains/{domain}",
        "/api/domains/{domain}/verify",
        "/api/registry-credentials/{registry}",
        "/api/secrets/{name}",
        "/api/ssh-keys/{name}",
    }
)
"""Paths of records beside containers whose changes read If-Match."""
REPEATABLE = frozenset(
    {"/api/containers", "/api/domains", "/api/keys", "/api/secrets", "/api/ssh-keys"}
)
"""Paths of creates that read Idempotency-Key."""
RECORDS: tuple[dict[str, str], ...] = tuple(
    {"$ref": f"#/components/schemas/{name}"}
    for name in ("Container", "Deployment", "Domain", "RegistryStatus", "Secret", "SshKey")
)
"""Forms of records that have an ETag."""
TOKEN_HEADER = "X-Consistency-Token"  # noqa: S105 - the name of a header
OPEN_SECURITY = {
    "/api/shim/cert": "enclaveToken",
    REPORT_PATH: "reporterSignature",
    "/api/webhooks/releases": "webhookSignature",
    "/api/webhooks/stripe": "stripeSignature",
}
"""Schemes of the paths that need no admin key but something else."""
SCHEMES: dict[str, Any] = {
    ADMIN_KEY: {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "admin_…",
        "description": "Admin key of an organization; `cloister admin-key create` makes one.",
    },
    "enclaveToken": {
        "type": "http",
        "scheme": "bearer",
        "description": "Token of an enclave, which its own shim holds.",
    },
    "reporterSignature": {
        "type": "apiKey",
        "in": "header",
        "name": "X-Cloister-Signature",
        "description": "HMAC-SHA256 of a reporter of usage, in hexadecimal; the headers "
        "X-Cloister-Reporter-Id, -Timestamp and -Nonce belong to it. `cloister` in the names is "
        "the setting `service`.",
    },
    "webhookSignature": {
        "type": "apiKey",
        "in": "header",
        "name": "X-Hub-Signature-256",
        "description": "HMAC-SHA256 of the body, in hexadecimal.",
    },
    "stripeSignature": {
        "type": "apiKey",
        "in": "header",
        "name": "Stripe-Signature",
        "description": "Signature of the payment processor.",
    },
}
HEADERS: dict[str, Any] = {
    "RequestId": {
        "description": "Identifier of the request: yours, if you sent one of letters, digits, "
        "`.`, `_` and `-`.",
        "required": True,
        "schema": {"type": "string"},
    },
    "RetryAfter": {
        "description": "Seconds until it is worth trying again.",
        "schema": {"type": "integer", "minimum": 1},
    },
    "ETag": {
        "description": "Version of the record, for If-Match.",
        "schema": {"type": "string"},
    },
    "RateLimitPolicy": {
        "description": "Requests `q` that may be made in `w` seconds; only where there is a limit.",
        "schema": {"type": "string"},
    },
    "RateLimit": {
        "description": "Requests `r` that are left, and seconds `t` until all are there again.",
        "schema": {"type": "string"},
    },
    "Link": {
        "description": 'The next piece of the list, with `rel="next"`; only where there is one.',
        "schema": {"type": "string"},
    },
    "Location": {"description": "Where the record is.", "schema": {"type": "string"}},
    "ConsistencyToken": {
        "description": "Version of what was written; a read that sends it back, at any replica, "
        "sees at least that.",
        "schema": {"type": "string"},
    },
}
PARAMETERS: dict[str, Any] = {
    "ConsistencyToken": {
        "name": TOKEN_HEADER,
        "in": "header",
        "description": "Version that the read must have seen, from the answer of a write.",
        "schema": {"type": "string", "pattern": "^[0-9]{1,18}$"},
    },
    "IfMatch": {
        "name": "If-Match",
        "in": "header",
        "description": "ETag that the record must have; else 412, and nothing is changed.",
        "schema": {"type": "string"},
    },
    "IdempotencyKey": {
        "name": "Idempotency-Key",
        "in": "header",
        "description": "Text of your own: the same request with the same text answers what "
        "it made.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 255},
    },
}
TEXT = """\
Confidential containers for organizations. Every path under `/api` needs an admin key, except \
where an operation says otherwise. Errors have one form and name the field, the problem and the \
remedy. A null in a body counts as left out; unknown fields are refused.
"""


def document(routers: Iterable[APIRouter]) -> dict[str, Any]:
    """Answer the document.

    Parameters
    ----------
    routers
        All routers of the facade.
    """
    app = FastAPI(
        title="Cloister Admin API",
        version="1",
        summary="Containers, keys and usage of an organization",
        description=TEXT,
        generate_unique_id_function=lambda route: route.name,
        separate_input_output_schemas=False,
    )
    for router in routers:
        app.include_router(router)
    made = app.openapi()
    schemas = made["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    add_plain_paths(made)
    for path, method, operation in operations(made):
        complete(path, method, operation)
    made["paths"] = dict(sorted(made["paths"].items()))
    made["components"] = {
        "schemas": dict(sorted({**schemas, **described_errors()}.items())),
        "responses": dict(component(int(status)) for status in used_errors(made)),
        "headers": HEADERS,
        "parameters": PARAMETERS,
        "securitySchemes": SCHEMES,
    }
    for name, example in EXAMPLES.items():
        made["components"]["schemas"][name]["examples"] = [example]
    return made


def operations(described: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Answer path, method and description of every operation of a document.

    Parameters
    ----------
    described
        The document.
    """
    for path, item in described["paths"].items():
        for method in sorted(item.keys() & METHODS):
            yield path, method, item[method]


def add_plain_paths(made: dict[str, Any]) -> None:
    """Describe what is no route of the framework: the key check, and bodies read as bytes."""
    _, forms = msgspec.json.schema_components(
        [CheckKeyRequest, event_form()], ref_template="#/components/schemas/{name}"
    )
    schemas = made["components"]["schemas"]
    for name, form in forms.items():
        schemas[name] = without_null_defaults(form)
    schemas["Report"] = {
        "type": "object",
        "description": "Events that are sent together.",
        "properties": {
            "delivery_id": {"type": "string", "minLength": 1, "maxLength": 200},
            "events": {
                "type": "array",
                "maxItems": 1000,
                "items": {"$ref": "#/components/schemas/Event"},
            },
        },
        "required": ["delivery_id", "events"],
        "additionalProperties": False,
    }
    schemas["Valid"] = Valid.model_json_schema()
    schemas["Valid"].pop("title", None)
    made["paths"][CHECK_PATH] = {
        "post": {
            "tags": ["enclaves"],
            "summary": "Check Key",
            "description": "Answer whether a regular key may be used; only the status counts.",
            "operationId": "check_key",
            "requestBody": json_body("CheckKeyRequest"),
            "responses": {
                "200": {
                    "description": "The key may be used.",
                    "content": {
                        "application/json": {"schema": {"$ref": "#/components/schemas/Valid"}}
                    },
                },
                **{str(status): {} for status in (400, 401, 402, 403, 429, 503)},
            },
        }
    }
    made["paths"][REPORT_PATH]["post"]["requestBody"] = json_body("Report")
    for who in ("releases", "stripe"):
        made["paths"][f"/api/webhooks/{who}"]["post"]["requestBody"] = {
            "description": "The event as it is sent.",
            "required": True,
            "content": {"application/json": {"schema": {"type": "object"}}},
        }


def event_form() -> type[msgspec.Struct]:
    """Answer the form of an event with its attributes, which are read apart from the rest."""
    rest = [each for each in msgspec.structs.fields(UsageEvent) if each.name != "attributes"]
    return msgspec.defstruct(
        "Event",
        [
            *((each.name, each.type) for each in rest if each.required),
            *((each.name, each.type, None) for each in rest if not each.required),
            ("attributes", Attributes | None, None),
        ],
        namespace={"__doc__": UsageEvent.__doc__},
        forbid_unknown_fields=True,
    )


def without_null_defaults(form: dict[str, Any]) -> dict[str, Any]:
    """Leave out defaults that only say that something may be left out."""
    for field in form.get("properties", {}).values():
        if field.get("default", 0) is None:
            del field["default"]
    return form


def json_body(name: str) -> dict[str, Any]:
    """Describe a body of a form."""
    form = {"$ref": f"#/components/schemas/{name}"}
    return {"required": True, "content": {"application/json": {"schema": form}}}


def complete(path: str, method: str, operation: dict[str, Any]) -> None:
    """Add to an operation what holds for all of its kind."""
    for each in operation.get("parameters", ()):
        # The route takes its absence, to name the windows in the error.
        each["required"] = each.get("required", False) or (path, each["name"]) in REQUIRED
    for name in headers_of(path, method):
        operation.setdefault("parameters", []).append({"$ref": f"#/components/parameters/{name}"})
    said = operation["responses"]
    said.pop("422", None)
    # What follows in the docstring is for those who read the code.
    operation["description"] = operation["description"].split("\n\nRaises\n")[0]
    errors = {413, 415, 500}
    if "requestBody" in operation:
        errors.add(400)
        operation["requestBody"].setdefault("description", "What is asked for.")
    if needs_key(path):
        operation["security"] = [{ADMIN_KEY: []}]
        # 400: parameters of the query that nobody reads are refused everywhere.
        errors |= {400, 401, 403, 429, 503}
    elif path in OPEN_SECURITY:
        operation["security"] = [{OPEN_SECURITY[path]: []}]
        errors |= {429, 503}
    else:
        operation["security"] = []
    for error in errors:
        said.setdefault(str(error), {})
    for status, answer in said.items():
        if int(status) < HTTPStatus.BAD_REQUEST:
            describe_success(path, method, int(status), answer, operation.get("parameters", []))
        elif not is_own(answer):
            name, _ = component(int(status))
            said[status] = {"$ref": f"#/components/responses/{name}"}
    operation["responses"] = dict(sorted(said.items()))


def headers_of(path: str, method: str) -> Iterator[str]:
    """Answer the headers that an operation reads."""
    if path.startswith("/api/containers/{container_id}") or (path, method) == (
        "/api/containers",
        "get",
    ):
        yield "ConsistencyToken"
    if method != "get" and (path.startswith("/api/containers/{container_id}") or path in VERSIONED):
        yield "IfMatch"
    if method == "post" and path in REPEATABLE:
        yield "IdempotencyKey"


def is_own(answer: dict[str, Any]) -> bool:
    """Tell whether an answer has a form of its own rather than that of all errors."""
    form = answer.get("content", {}).get("application/json", {}).get("schema", {})
    return bool(form) and form != {"$ref": "#/components/schemas/Error"}


def describe_success(
    path: str,
    method: str,
    status: int,
    answer: dict[str, Any],
    parameters: list[dict[str, Any]],
) -> None:
    """Add the headers of a success."""
    if answer.get("description") in {None, "Successful Response"}:
        answer["description"] = HTTPStatus(status).phrase
    headers = {"X-Request-Id": {"$ref": "#/components/headers/RequestId"}}
    # The value of a key is a secret, so no path leads to it.
    if status == HTTPStatus.CREATED and path != "/api/keys":
        headers["Location"] = {"$ref": "#/components/headers/Location"}
    if path.startswith("/api/containers") and method != "get" and "validate" not in path:
        headers[TOKEN_HEADER] = {"$ref": "#/components/headers/ConsistencyToken"}
    form = answer.get("content", {}).get("application/json", {}).get("schema", {})
    if form in RECORDS:
        headers["ETag"] = {"$ref": "#/components/headers/ETag"}
    if any(each.get("name") == "cursor" for each in parameters):
        headers["Link"] = {"$ref": "#/components/headers/Link"}
    if needs_key(path):
        headers["RateLimit-Policy"] = {"$ref": "#/components/headers/RateLimitPolicy"}
        headers["RateLimit"] = {"$ref": "#/components/headers/RateLimit"}
    if status == HTTPStatus.ACCEPTED and path == "/api/shim/cert":
        headers["Retry-After"] = {"$ref": "#/components/headers/RetryAfter"}
    answer["headers"] = headers


def used_errors(made: dict[str, Any]) -> list[str]:
    """Answer the statuses of all errors that operations name."""
    return sorted(
        {
            status
            for _, _, operation in operations(made)
            for status, answer in operation["responses"].items()
            if "$ref" in answer
        }
    )


def described_errors() -> dict[str, Any]:
    """Answer the forms of errors."""
    form = Error.model_json_schema(ref_template="#/components/schemas/{model}")
    return {**form.pop("$defs"), "Error": form}
