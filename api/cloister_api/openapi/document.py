"""The OpenAPI document of the facade.

What its routes declare, the errors of the API, and what holds for all of them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import APIRouter, FastAPI, Request, Response

from cloister_api.http.middleware import needs_key
from cloister_api.openapi.examples import EXAMPLES
from cloister_api.routes.enclaves import CheckKeyRequest
from cloister_api.routes.parameters import (
    RATE_LIMIT,
    RATE_LIMIT_POLICY,
    REQUEST_ID,
    RESPONSE_HEADERS,
    RETRY_AFTER,
    WWW_AUTHENTICATE,
    headers_of,
)
from cloister_api.schemas.forms import ErrorResponse
from cloister_api.usage.events import Attributes, UsageEvent

EXAMPLE_ID = "0f0c6a3e-5b0e-4c79-9d1c-2f5f6f0f7a11"


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """An error by its status."""

    code: str
    """Word for programs."""
    meaning: str
    """When it occurs."""
    example: str
    """A message."""
    more: dict[str, Any] | None = None
    """Further fields of the example; None if there is none."""

    @property
    def body(self) -> dict[str, Any]:
        """The example as it is sent."""
        head = {"error": self.example, "code": self.code, "request_id": EXAMPLE_ID}
        return {**head, **(self.more or {})}


_TAG = "tag: the repository acme/web has no release v9; publish it or name another tag"
KINDS: dict[int, ErrorKind] = {
    400: ErrorKind(
        "BAD_REQUEST",
        "A field is wrong, missing or unknown, or names what cannot be used; `details` has an "
        "entry for each.",
        _TAG,
        {"details": [{"field": "tag", "code": "TagNotFound", "message": _TAG}]},
    ),
    401: ErrorKind(
        "UNAUTHORIZED",
        "No key, an unknown, malformed or expired one, or a wrong signature.",
        "invalid or expired admin API key; send Authorization: Bearer admin_… of this installation",
    ),
    402: ErrorKind(
        "PAYMENT_REQUIRED",
        "No active container subscription, or no active token billing.",
        "the organization has no active container subscription; subscribe, then try again",
    ),
    403: ErrorKind(
        "FORBIDDEN",
        "The key was revoked, an entitlement is missing, or the quota is reached.",
        "quota reached: the organization may have 10 containers (stopped ones count); "
        "delete one or ask the administrator for more",
    ),
    404: ErrorKind(
        "NOT_FOUND",
        "It does not exist; what another organization has is not told apart from what nobody has.",
        "container not found",
    ),
    405: ErrorKind(
        "METHOD_NOT_ALLOWED",
        "The path does not have this method.",
        "the path does not have this method; the Allow header lists those it has",
    ),
    408: ErrorKind(
        "REQUEST_TIMEOUT",
        "The body took too long to arrive.",
        "the body did not arrive within 10 seconds; send it again",
    ),
    409: ErrorKind(
        "CONFLICT",
        "A name is taken, a state forbids the action, something is in use (`used_by` and "
        "`used_by_containers` name the containers), or a GitOps tool manages the field.",
        "secret OPENAI_API_KEY is used by web; relaunch or delete these containers without it",
        {
            "used_by": ["web"],
            "used_by_containers": [
                {"id": "7d3c1a52-8a1e-4e0f-9b57-0c9d3a2f4e10", "name": "web", "debug": False}
            ],
        },
    ),
    412: ErrorKind(
        "PRECONDITION_FAILED",
        "The record is no longer the one that If-Match names.",
        "the container was changed since: it is no longer what If-Match names; read it again",
    ),
    413: ErrorKind(
        "PAYLOAD_TOO_LARGE",
        "The body is too large.",
        "the body is larger than 1048576 bytes; send less",
    ),
    415: ErrorKind(
        "UNSUPPORTED_MEDIA_TYPE",
        "The body is not declared as JSON.",
        "send the body with the header Content-Type: application/json",
    ),
    429: ErrorKind(
        "RATE_LIMITED",
        "More requests than the limits allow; Retry-After says when to try again.",
        "rate limit of this key exceeded; try again in 2 seconds",
    ),
    431: ErrorKind(
        "HEADERS_TOO_LARGE",
        "The headers are too large; sent for any path.",
        "the headers are larger than 65536 bytes; send fewer",
    ),
    500: ErrorKind(
        "INTERNAL_ERROR",
        "A fault of the facade; the log has the rest under the request id.",
        "the facade failed; name the request_id to the administrator",
    ),
    502: ErrorKind(
        "BAD_GATEWAY",
        "The payment processor refuses, or its response is not understood.",
        "the payment processor refuses to tell; the administrator finds the reason in the log",
    ),
    503: ErrorKind(
        "UNAVAILABLE",
        "The cluster, a source or a registry does not answer; Retry-After says when to try again.",
        "the cluster does not answer at present; try again",
    ),
}
"""By status."""
HEADERS = {401: (WWW_AUTHENTICATE,), 429: (RETRY_AFTER,), 503: (RETRY_AFTER,)}
"""Headers of errors, by status."""


def component(status: int) -> tuple[str, dict[str, Any]]:
    """Return the name of an error among the shared responses, and its description."""
    kind = KINDS[status]
    response = {
        "description": kind.meaning,
        "headers": headers_of(REQUEST_ID, *HEADERS.get(status, ()), RATE_LIMIT_POLICY, RATE_LIMIT),
        "content": {
            "application/json": {
                "schema": {"$ref": "#/components/schemas/ErrorResponse"},
                "example": kind.body,
            }
        },
    }
    return HTTPStatus(status).phrase.title().replace(" ", ""), response


METHODS = ("get", "post", "put", "patch", "delete")
ADMIN_KEY = "adminKey"
SESSION = "session"
REF = "#/components/schemas/{name}"
TAGS = {
    "containers": "Containers, the releases they may run, and the hosts they run on.",
    "deployments": "All containers of one repository.",
    "secrets": "Secrets that configuration files name.",
    "domains": "Custom domains of containers.",
    "SSH keys": "Keys that may log in to debug containers.",
    "registry credentials": "Credentials for images of private registries.",
    "keys": "API keys for inference.",
    "usage": "Reports of usage.",
    "billing": "Usage and payments of the organization.",
    "organization": "The organization and its members.",
    "audit": "What was changed, by whom.",
    "catalog": "Hosted models; needs no key.",
    "enclaves": "Requests of enclaves.",
    "webhooks": "Signed events of others.",
    "health": "Liveness and readiness.",
}
"""Groups of operations, in the order of the reference."""
SCHEMES: dict[str, Any] = {
    ADMIN_KEY: {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "admin_…",
        "description": "Admin key of an organization; `cloister admin-key create` makes one.",
    },
    SESSION: {
        "type": "apiKey",
        "in": "cookie",
        "name": "__Host-cloister",
        "description": "Session of the dashboard, at the dashboard's address and for requests of "
        "only its own pages; `cloister` in the name is the setting `service`. Members read, "
        "administrators change. The header X-Organization names the organization where the person "
        "is in several.",
    },
    "enclaveToken": {
        "type": "http",
        "scheme": "bearer",
        "description": "Token of an enclave's Pod, which its own sidecar gets from the kubelet.",
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
TEXT = """\
Confidential containers for organizations. Every path under `/api` needs an admin key or a \
session of the dashboard, except where an operation says otherwise. Errors have one form and name \
the field, the problem and the remedy. A null in a body counts as left out, and a body that is \
null as none where one may be left out. Unknown fields are refused; key checks, usage reports and \
webhooks may have more than is read.
"""


def document(routers: Iterable[APIRouter]) -> dict[str, Any]:
    """Build the document."""
    app = FastAPI(
        title="Cloister Admin API",
        version="1",
        summary="Containers, keys and usage of an organization",
        description=TEXT,
        generate_unique_id_function=lambda route: route.name,
        openapi_tags=[{"name": name, "description": words} for name, words in TAGS.items()],
        separate_input_output_schemas=False,
    )
    for router in routers:
        app.include_router(router)
    made = app.openapi()
    schemas = made["components"]["schemas"]
    # FastAPI declares its own errors, which the API never returns.
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas.update(parsed_by_msgspec())
    schemas.update(error_schemas())
    parameters: dict[str, Any] = {}
    for path, _, operation in operations(made):
        share_header_parameters(operation, parameters)
        complete(path, operation)
    for name, example in EXAMPLES.items():
        schemas[name]["examples"] = [example]
    made["paths"] = dict(sorted(made["paths"].items()))
    made["components"] = {
        "schemas": dict(sorted(schemas.items())),
        "responses": dict(component(int(status)) for status in shared_errors(made)),
        "headers": {header.name: header.described for header in RESPONSE_HEADERS},
        "parameters": dict(sorted(parameters.items())),
        "securitySchemes": SCHEMES,
    }
    return made


def operations(described: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield path, method and description of every operation of a document."""
    for path, item in described["paths"].items():
        for method in METHODS:
            if method in item:
                yield path, method, item[method]


def parsed_by_msgspec() -> dict[str, Any]:
    """Return the schemas of bodies that routes parse by themselves, by name."""
    _, schemas = msgspec.json.schema_components([CheckKeyRequest, event_schema()], ref_template=REF)
    report = {
        "type": "object",
        "description": "Events that are sent together.",
        "properties": {
            "delivery_id": {"type": "string", "minLength": 1, "maxLength": 200},
            "events": {
                "anyOf": [
                    {
                        "type": "array",
                        "maxItems": 1000,
                        "items": {"$ref": REF.format(name="Event")},
                    },
                    {"type": "null"},
                ],
            },
        },
        "required": ["delivery_id", "events"],
    }
    return {
        **{name: without_null_defaults(each) for name, each in schemas.items()},
        "Report": report,
    }


def event_schema() -> type[msgspec.Struct]:
    """Return the type of an event with its objects, which are parsed apart from the rest or not."""
    raw = {"attributes": Attributes | None, "reporter": dict[str, Any] | None}
    rest = [each for each in msgspec.structs.fields(UsageEvent) if each.name not in raw]
    return msgspec.defstruct(
        "Event",
        [
            *((each.name, each.type) for each in rest if each.required),
            *((each.name, each.type, None) for each in rest if not each.required),
            *((name, form, None) for name, form in raw.items()),
        ],
        namespace={"__doc__": UsageEvent.__doc__},
    )


def without_null_defaults(schema: dict[str, Any]) -> dict[str, Any]:
    """Leave out defaults that only say that something may be left out."""
    for field in schema.get("properties", {}).values():
        if field.get("default", 0) is None:
            del field["default"]
    return schema


def share_header_parameters(operation: dict[str, Any], shared: dict[str, Any]) -> None:
    """Replace header parameters by references to the shared ones, and simplify all others."""
    listed: list[dict[str, Any]] = []
    for parameter in map(simplified, operation.get("parameters", ())):
        if parameter["in"] != "header":
            listed.append(parameter)
            continue
        name = parameter["name"].removeprefix("X-").replace("-", "")
        assert shared.setdefault(name, parameter) == parameter
        listed.append({"$ref": f"#/components/parameters/{name}"})
    if listed:
        operation["parameters"] = listed


def simplified(parameter: dict[str, Any]) -> dict[str, Any]:
    """Return a parameter without null, which none can be, and with one description."""
    schema = dict(parameter["schema"])
    forms = [each for each in schema.pop("anyOf", ()) if each != {"type": "null"}]
    for each in forms:
        schema = {**each, **schema}
    schema.pop("description", None)
    return {**parameter, "schema": schema}


def complete(path: str, operation: dict[str, Any]) -> None:
    """Add to an operation what holds for all of its kind."""
    described = operation["responses"]
    described.pop("422", None)
    # What follows in the docstring is for those who read the code.
    operation["description"] = operation["description"].split("\n\nRaises\n")[0]
    errors = {500}
    if "requestBody" in operation:
        errors |= {400, 408, 413, 415, 503}
        complete_body(operation["requestBody"])
    if needs_key(path):
        operation.setdefault("security", [{ADMIN_KEY: []}, {SESSION: []}])
        # 400: parameters of the query that nobody reads are refused everywhere.
        errors |= {400, 401, 403, 408, 413, 415, 429, 503}
    elif operation.setdefault("security", []):
        errors |= {429, 503}
    for error in errors:
        described.setdefault(str(error), {})
    for status, response in described.items():
        if int(status) < HTTPStatus.BAD_REQUEST:
            complete_success(path, int(status), response)
        elif not has_own_body(response):
            name, _ = component(int(status))
            described[status] = {"$ref": f"#/components/responses/{name}"}
        else:
            response["headers"] = headers_of(REQUEST_ID)
    operation["responses"] = dict(sorted(described.items()))


def complete_body(body: dict[str, Any]) -> None:
    """Describe a body, and null, which is the same as none where it may be left out."""
    body.setdefault("description", "The request.")
    if not body.get("required"):
        content = body["content"]["application/json"]
        form = content["schema"]
        form.pop("default", None)
        content["schema"] = {"anyOf": [*form.get("anyOf", [form]), {"type": "null"}]}


def complete_success(path: str, status: int, response: dict[str, Any]) -> None:
    """Add to a success what the middleware adds."""
    if response.get("description") in {None, "Successful Response"}:
        response["description"] = HTTPStatus(status).phrase
    limits = (RATE_LIMIT_POLICY, RATE_LIMIT) if needs_key(path) else ()
    response["headers"] = {
        **headers_of(REQUEST_ID),
        **response.get("headers", {}),
        **headers_of(*limits),
    }


def has_own_body(response: dict[str, Any]) -> bool:
    """Return whether a response has a body of its own rather than that of all errors."""
    schema = response.get("content", {}).get("application/json", {}).get("schema", {})
    return bool(schema) and schema != {"$ref": REF.format(name="ErrorResponse")}


def shared_errors(made: dict[str, Any]) -> list[str]:
    """Return the statuses of all errors that operations refer to."""
    return sorted(
        {
            status
            for _, _, operation in operations(made)
            for status, response in operation["responses"].items()
            if "$ref" in response
        }
    )


def error_schemas() -> dict[str, Any]:
    """Return the schemas of errors, by name."""
    schema = ErrorResponse.model_json_schema(ref_template=REF.replace("{name}", "{model}"))
    return {**schema.pop("$defs"), "ErrorResponse": schema}


router = APIRouter(include_in_schema=False)


@router.get("/openapi.json")
async def get_openapi(request: Request) -> Response:
    """Return the OpenAPI document."""
    return Response(encoded(request.app), media_type="application/json")


@lru_cache(maxsize=1)
def encoded(app: FastAPI) -> bytes:
    """Return the document, which the first request builds."""
    return msgspec.json.encode(document(app.state.routers))
