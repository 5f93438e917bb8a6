"""Errors of the facade: one exception, one body.

``{error, code, request_id, used_by?, details?}`` (spec 3, 20.8). Services
raise `ApiError`; routes and middleware never build the response of an error by themselves.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from cloister_api.ledger.availability import is_away
from cloister_api.schemas.containers import PATTERN_WORDS
from cloister_api.schemas.forms import ContainerUser, Detail, ErrorCode, ErrorResponse
from cloister_api.schemas.keys import KEY_PATTERN_WORDS
from cloister_api.schemas.vocabulary import in_api_words
from cloister_api.wire import REFUSALS, DepthError, JsonResponse, shown
from cloister_clients.kube import Forbidden, KubeError, NotFound, Unavailable
from cloister_crds.kinds.meta import GROUP
from cloister_crds.kinds.secret import SECRET_NAME_PATTERN
from cloister_crds.kinds.sshkey import KEBAB_PATTERN
from cloister_crds.lifecycle.admission.quotas import QUOTA_MESSAGE, QUOTA_UNKNOWN, quota_reached
from cloister_crds.problems import Problem

WORDS_OF_PATTERNS = {
    **PATTERN_WORDS,
    **KEY_PATTERN_WORDS,
    SECRET_NAME_PATTERN: "write UPPER_SNAKE_CASE or kebab-case, such as OPENAI_API_KEY or tls-key",
    KEBAB_PATTERN: "write kebab-case: lowercase letters and digits, single hyphens between them",
}
"""What to write instead of a text that does not fit a pattern."""
WORDS_OF_WRONG_VALUES = {
    "bool_type": "is not a boolean: write true or false, without quotes",
    "bool_parsing": "is not a boolean: write true or false",
    "string_type": "is not a string: write one, in quotes",
    "int_type": "is not a whole number: write one, without quotes",
    "int_parsing": "is not a whole number: write one",
    "int_from_float": "is not a whole number: write one",
    "list_type": "is not a list: write one, in brackets",
    "tuple_type": "is not a list: write one, in brackets",
    "dict_type": "is not an object: write one, in braces",
    # Beyond a bound:
    "string_too_long": "is too long: the maximum is {max_length} characters",
    "string_too_short": "is too short: the minimum length is {min_length}",
    "too_long": "has too many entries: the maximum is {max_length}",
    "too_short": "has too few entries: the minimum is {min_length}",
    "greater_than_equal": "is too small: the minimum is {ge}",
    "less_than_equal": "is too large: the maximum is {le}",
    "literal_error": "must be one of: {expected}",
    "enum": "must be one of: {expected}",
}
"""What to write instead of a value that is wrong, with what pydantic says of its bounds."""
MOST_DETAILS = 50
"""How many problems a response names; a last entry counts the rest."""


QUOTA_NUMBERS = re.compile(
    r"used: count/(?P<resource>[a-z.]{1,80})=(?P<used>[0-9]{1,9}), "
    r"limited: count/[a-z.]{1,80}=(?P<most>[0-9]{1,9})"
)
"""The first count in a refusal by a ResourceQuota."""
QUOTA_WORDS = {"secrets": "core Secrets in its namespace", f"sshkeys.{GROUP}": "SSH keys"}
"""What a count is of, where its name does not say it."""


class ApiError(Exception):
    """A response that is not a success."""

    def __init__(
        self,
        status: int,
        code: ErrorCode,
        message: str,
        details: Sequence[Detail] = (),
        *,
        retry_after: int | None = None,
        used_by: Sequence[ContainerUser] = (),
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        """HTTP status."""
        self.code = code
        """Word for programs (spec 3.2, 20.9)."""
        self.message = message
        """Sentence for people: what is wrong and what to do."""
        self.details = first_of(details)
        """One entry for each problem, as far as a response names them; empty when the message says
        all."""
        self.retry_after = retry_after
        """Seconds for Retry-After; None means no such header."""
        self.used_by = tuple(used_by)
        """Containers that keep something from being deleted; empty if none do."""
        self.headers = tuple(headers)
        """Headers of its own; empty if there is none."""

    @property
    def result(self) -> str:
        """Status and code as the audit trail writes them."""
        return f"{self.status} {self.code}"


def bad_request(field: str, message: str, *, code: str = "Invalid") -> ApiError:
    """400 about one field."""
    return ApiError(400, "BAD_REQUEST", message, [Detail(field, code, message)])


def too_deep(error: DepthError) -> ApiError:
    """400: the body is nested too deeply."""
    return bad_request("", error.msg, code="TooDeep")


def payment_required() -> ApiError:
    """402: no active container subscription."""
    return ApiError(
        402,
        "PAYMENT_REQUIRED",
        "the organization has no active container subscription; subscribe, then try again",
    )


def forbidden(message: str) -> ApiError:
    """403."""
    return ApiError(403, "FORBIDDEN", message)


def broken_rule(field: str, error: ValidationError) -> ApiError:
    """400: a field of a body breaks a rule of the custom resource that it becomes.

    Parameters
    ----------
    error
        What the contract's model reports; its input may be secret and is left out.
    """
    problem = error.errors(include_url=False, include_input=False)[0]
    return bad_request(field, f"{field}: {in_api_words(words_of(problem))}")


def not_found(what: str) -> ApiError:
    """404 of something named by the path."""
    return ApiError(404, "NOT_FOUND", f"{what} not found")


def conflict(message: str) -> ApiError:
    """409."""
    return ApiError(409, "CONFLICT", message)


def changed_since(what: str = "container") -> ApiError:
    """412: the record is no longer the one that the client has read."""
    return ApiError(
        412,
        "PRECONDITION_FAILED",
        f"the {what} was changed since: it is no longer what If-Match names; read it again",
    )


def in_use(what: str, users: Sequence[ContainerUser]) -> ApiError:
    """409 that names the containers which use something (spec 3.3, 24.6)."""
    names = ", ".join(f"{each.name} (debug)" if each.debug else each.name for each in users)
    return ApiError(
        409,
        "CONFLICT",
        f"{what} is used by {names}; relaunch or delete these containers without it",
        used_by=users,
    )


def unavailable(message: str, *, retry_after: float | None = None) -> ApiError:
    """503: the same request may work later."""
    return ApiError(503, "UNAVAILABLE", message, retry_after=max(1, round(retry_after or 5)))


def problems_of_file(problems: Iterable[Problem]) -> ApiError:
    """400 with every problem of a configuration file or of what it requests."""
    listed = [Detail(each.field, each.code, each.message) for each in problems]
    first = listed[0]
    where = f"{first.field}: " if first.field else ""
    more = f" (and {len(listed) - 1} more, see details)" if len(listed) > 1 else ""
    return ApiError(400, "BAD_REQUEST", f"{where}{first.message}{more}", listed)


def beyond_quota(message: str) -> str:
    """Return the sentence for a refusal by the quota of a namespace.

    Parameters
    ----------
    message
        What the API server says: requested, used and limited counts.
    """
    found = QUOTA_NUMBERS.search(message)
    if found is None:
        return "quota reached: delete something or ask the administrator for more"
    resource = found["resource"]
    what = QUOTA_WORDS.get(resource, resource.removesuffix(f".{GROUP}"))
    return quota_reached(what, int(found["used"]), int(found["most"]))


def from_kube(error: KubeError) -> ApiError:
    """Translate a refusal of the API server that no service expected."""
    if isinstance(error, Unavailable):
        return unavailable(
            "the cluster does not answer at present; try again", retry_after=error.retry_after
        )
    if isinstance(error, NotFound) and error.details.get("kind") == "namespaces":
        return unavailable(
            "the namespace of the organization does not exist yet; try again when the "
            "Organization is Ready"
        )
    if isinstance(error, Forbidden) and QUOTA_MESSAGE in error.message:
        return forbidden(beyond_quota(error.message))
    if isinstance(error, Forbidden) and QUOTA_UNKNOWN in error.message:
        return unavailable(
            "the cluster has not counted yet what the organization has; try again in a moment"
        )
    # A policy's refusal is not: it stays one.
    bound = isinstance(error, Forbidden) and "ValidatingAdmissionPolicy" not in error.message
    if bound and error.details.get("kind") in {"secrets", "configmaps", "events", "pods"}:
        return unavailable(
            "the operator has not yet given the API its rights in the namespace of the "
            "organization; try again in a moment, and when it stays so, ask the administrator for "
            "the RoleBinding cloister-api-organization there"
        )
    # The server's message may name objects of the platform; it is only in the log.
    return ApiError(500, "INTERNAL_ERROR", "the cluster refused a request of the facade")


def from_ledger(error: Exception) -> ApiError | None:
    """Translate an error of the ledger that nobody expected; None if it is a fault."""
    if not is_away(error):
        return None
    return unavailable("the database of the API does not respond at present; try again")


def from_validation(error: RequestValidationError) -> ApiError:
    """Translate the problems that the framework found in a request into 400 with details."""
    return refused_fields([detail_of(problem) for problem in error.errors()])


def from_model(error: ValidationError) -> ApiError:
    """Translate the problems of a body that was built of a form into 400 with details."""
    return refused_fields([detail_of(dict(problem)) for problem in error.errors()])


def refused_fields(details: list[Detail]) -> ApiError:
    """400 that names every problem of the fields of a request."""
    first = details[0]
    more = f" (and {len(details) - 1} more, see details)" if len(details) > 1 else ""
    message = f"{first.field}: {first.message}{more}" if first.field else first.message
    return ApiError(400, "BAD_REQUEST", message, details)


def first_of(details: Sequence[Detail]) -> tuple[Detail, ...]:
    """Return the first problems and, if there are more, an entry that counts them."""
    rest = len(details) - MOST_DETAILS
    if rest <= 0:
        return tuple(details)
    more = Detail("", "MoreProblems", f"{rest} more problems are not listed; correct these first")
    return (*details[:MOST_DETAILS], more)


def detail_of(problem: dict[str, Any]) -> Detail:
    """Translate one problem that the framework found."""
    kind = problem["type"]
    if kind == "json_invalid":
        return not_json(problem.get("ctx", {}).get("error", ""))
    location = [shown(str(part)) for part in problem["loc"]]
    field = ".".join(location[1:] if location[:1] in (["body"], ["query"]) else location)
    if kind == "extra_forbidden":
        return Detail(field, "UnknownField", "unknown field; remove it or check the spelling")
    if kind == "missing":
        what = "required field is missing" if field else "a JSON object is needed as the body"
        return Detail(field, "Missing", what)
    if kind in {"model_attributes_type", "dict_type", "model_type"} and not field:
        return Detail("", "Invalid", "the body must be a JSON object")
    if kind == "string_pattern_mismatch":
        wanted = WORDS_OF_PATTERNS.get(problem["ctx"]["pattern"], str(problem["msg"]))
        return Detail(field, "Invalid", f"does not have the form it must have: {wanted}")
    return Detail(field, "Invalid", words_of(problem))


def words_of(problem: Mapping[str, Any]) -> str:
    """Return what is wrong with a value, of a body or of the custom resource that it becomes."""
    context = problem.get("ctx", {})
    if context.get("min_length") == 1:
        return "must not be empty"
    words = WORDS_OF_WRONG_VALUES.get(problem["type"])
    return str(problem["msg"]) if words is None else words.format_map(context)


def not_json(reason: str) -> Detail:
    """Return why a body was not parsed."""
    if reason in REFUSALS:
        return Detail("", REFUSALS[reason], reason)
    return Detail("", "InvalidJson", f"the body is not JSON: {reason}")


WORDS: dict[HTTPStatus, tuple[ErrorCode, str]] = {
    HTTPStatus.NOT_FOUND: (
        "NOT_FOUND",
        "there is no such path: check its spelling against docs/admin-api.md",
    ),
    HTTPStatus.METHOD_NOT_ALLOWED: (
        "METHOD_NOT_ALLOWED",
        "the path does not have this method; the Allow header lists those it has",
    ),
}


def wrong_method(methods: Iterable[str]) -> ApiError:
    """405 with the methods that a path knows."""
    code, message = WORDS[HTTPStatus.METHOD_NOT_ALLOWED]
    return ApiError(405, code, message, headers=[("allow", ", ".join(sorted(methods)))])


def from_framework(error: HTTPException) -> ApiError:
    """Translate an exception of the framework: no such path, no such method, unreadable body."""
    found: tuple[ErrorCode, str] = ("BAD_REQUEST", str(error.detail))
    code, message = WORDS.get(HTTPStatus(error.status_code), found)
    return ApiError(error.status_code, code, message)


def error_response(
    error: ApiError, request_id: str, headers: dict[str, str] | None = None
) -> Response:
    """Build the response of an error."""
    body = ErrorResponse(
        error=error.message,
        code=error.code,
        request_id=request_id,
        used_by=[each.name for each in error.used_by] or None,
        used_by_containers=list(error.used_by) or None,
        details=list(error.details) or None,
    )
    response = JsonResponse(body, error.status, headers)
    for name, value in error.headers:
        response.headers[name] = value
    if error.retry_after is not None:
        response.headers["retry-after"] = str(error.retry_after)
    if error.status == HTTPStatus.UNAUTHORIZED:
        response.headers["www-authenticate"] = "Bearer"
    return response


def request_id_of(request: Request) -> str:
    """Return the identifier that the middleware gave a request."""
    return str(request.scope["state"]["request_id"])
