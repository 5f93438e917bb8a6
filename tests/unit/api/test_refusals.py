"""From problems and exceptions to the answers of the API."""

from datetime import UTC, datetime

import msgspec
import pytest
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from cloister_api.errors import (
    ApiError,
    error_response,
    from_framework,
    from_kube,
    from_validation,
    problems_of_file,
    unavailable,
)
from cloister_api.resolution import refusal_of_source
from cloister_api.schemas.containers import Changes, Create
from cloister_api.services.refusals import refusal, to_wire
from cloister_api.services.specs import changed_keys, restored, spec_of
from cloister_clients.kube import Forbidden, Unavailable
from cloister_clients.sources import RateLimited, RepositoryNotFound, TagNotFound
from cloister_crds.kinds.container import ContainerSpec
from cloister_crds.lifecycle.observed import Failed
from cloister_crds.lifecycle.request import record
from cloister_crds.problems import Problem, Severity

NOW = datetime(2026, 11, 22, tzinfo=UTC)
BODY = {"name": "web", "repo": "team/web", "tag": "v1"}


def problem(code: str, field: str = "cpus") -> Problem:
    return Problem(field, code, f"{field} has {code}")


def test_money_comes_before_rights_before_mistakes() -> None:
    everything = [
        problem("Wrong"),
        problem("EntitlementRequired"),
        problem("SubscriptionRequired"),
        problem("NotSupportedYet"),
    ]
    found = [refusal(everything[:place]) for place in range(5)]
    assert [one.status if one else None for one in found] == [None, 400, 403, 402, 402]
    limit = refusal([Problem("", "LimitReached", "quota reached: no more")])
    assert limit is not None
    assert (limit.status, limit.message) == (403, "quota reached: no more")


def test_warnings_refuse_nothing() -> None:
    assert refusal([Problem("a", "Unused", "b", severity=Severity.WARNING)]) is None


def test_all_problems_are_told_and_counted() -> None:
    error = problems_of_file([problem("A"), problem("B", "memory"), problem("C")])
    assert error.message == "cpus: cpus has A (and 2 more, see details)"
    assert [detail.code for detail in error.details] == ["A", "B", "C"]
    assert error.code == "BAD_REQUEST"
    assert problems_of_file([problem("NotSupportedYet")]).code == "NotSupportedYet"


def test_a_registry_that_is_away_is_told_from_a_wrong_file() -> None:
    away = Failed("RegistryUnavailable", "no answer", transient=True, at=NOW)
    image = problem("RegistryUnavailable", "containers[0].image")
    only = refusal([image], [away])
    assert only is not None
    assert (only.status, only.code) == (503, "UNAVAILABLE")
    assert only.message.startswith("containers[0].image: ")
    both = refusal([image, problem("Wrong")], [away])
    assert both is not None
    assert both.status == 400


@pytest.mark.parametrize(
    ("field", "wire"),
    [
        ("spec.host", "host_name"),
        ("host.tee", "host_name"),
        ("spec.secrets[3]", "secrets[3]"),
        ("spec.sshKeys", "ssh_keys"),
        ("containers[0].image", "containers[0].image"),
        ("spec.hostname", "spec.hostname"),
        ("", ""),
    ],
)
def test_fields_have_the_names_of_the_api(field: str, wire: str) -> None:
    assert to_wire(problem("A", field)).field == wire


def test_sources_name_the_field_they_are_about() -> None:
    tag = refusal_of_source(TagNotFound("a/b", "v1"))
    repo = refusal_of_source(RepositoryNotFound("a/b"))
    assert [tag.details[0].field, repo.details[0].field] == ["tag", "repo"]
    away = refusal_of_source(RateLimited("busy", retry_after=17))
    assert (away.status, away.retry_after) == (503, 17)


def test_what_the_cluster_says_stays_inside() -> None:
    hidden = from_kube(Forbidden(403, "Forbidden", "pods of kube-system"))
    assert hidden.status == 500
    assert "kube-system" not in hidden.message
    assert from_kube(Unavailable(429, "", "busy", retry_after=3)).retry_after == 3


def test_answers_have_one_form() -> None:
    response = error_response(unavailable("later", retry_after=0.2), "r1")
    assert msgspec.json.decode(response.body) == {
        "error": "later",
        "code": "UNAVAILABLE",
        "request_id": "r1",
    }
    assert response.headers["retry-after"] == "1"
    assert error_response(ApiError(401, "UNAUTHORIZED", "no"), "r").headers["www-authenticate"]
    assert from_framework(HTTPException(404)).code == "NOT_FOUND"
    assert from_framework(HTTPException(405)).code == "METHOD_NOT_ALLOWED"
    assert from_framework(HTTPException(400, "unreadable")).message == "unreadable"


@pytest.mark.parametrize(
    ("kind", "location", "field", "words"),
    [
        ("json_invalid", ("body", 5), "", "not JSON"),
        ("extra_forbidden", ("body", "colour"), "colour", "unknown field"),
        ("missing", ("body", "tag"), "tag", "required field is missing"),
        ("missing", ("body",), "", "JSON object is needed"),
        ("model_attributes_type", ("body",), "", "must be a JSON object"),
        ("string_type", ("body", "variables", "A"), "variables.A", "text"),
    ],
)
def test_what_the_framework_finds_is_named(
    kind: str, location: tuple[str | int, ...], field: str, words: str
) -> None:
    found = {"type": kind, "loc": location, "msg": "text", "ctx": {"error": "x"}}
    error = from_validation(RequestValidationError([found]))
    assert (error.status, error.details[0].field) == (400, field)
    assert words in error.message


def test_bodies_leave_out_null_and_legacy_names() -> None:
    body = Create.model_validate({
        **BODY, "gpus": None, "group_name": "a", "group_order": 1, "display_order": 2,
    })  # fmt: skip
    assert body.gpus is None
    with pytest.raises(ValidationError, match="colour"):
        Create.model_validate({**BODY, "colour": "red"})


@pytest.mark.parametrize(
    "change",
    [
        {"debug": "yes"}, {"debug": 1}, {"gpus": True}, {"gpus": -1}, {"name": "a" * 65},
        {"variables": {"1A": "x"}}, {"variables": {"A": "\x00"}}, {"variables": {"A": None}},
        {"secrets": ["A", "A"]}, {"secrets": [""]}, {"custom_domain": "nodots"},
        {"host_name": "UPPER"}, {"repo": "a/b/c"}, {"tag": "a\x00"},
    ],
)  # fmt: skip
def test_wrong_bodies_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Create.model_validate({**BODY, **change})


def test_rules_between_fields_are_the_kinds() -> None:
    body = Create.model_validate({**BODY, "ssh_keys": ["mine"]})
    with pytest.raises(ApiError) as caught:
        spec_of(body)
    assert caught.value.status == 400
    assert "debug" in caught.value.message


def test_a_relaunch_patches_what_changes_and_nothing_else() -> None:
    spec = spec_of(Create.model_validate({**BODY, "variables": {"A": "1", "B": "2"}}))
    body = Changes.model_validate({
        "tag": "v1", "variables": {"A": "1"}, "custom_domain": "", "debug": False,
    })  # fmt: skip
    assert changed_keys(spec, body) == {"variables": [{"name": "A", "value": "1"}]}
    assert changed_keys(spec, Changes.model_validate({"tag": "v2"})) == {"tag": "v2"}
    assert changed_keys(spec, Changes.model_validate({"host_name": "h"})) == {"host": "h"}
    named = spec.model_copy(update={"custom_domain": "www.example.test"})
    back = Changes.model_validate({"custom_domain": ""})
    assert changed_keys(named, back) == {"customDomain": None}


def test_cancel_writes_back_what_the_update_changed() -> None:
    earlier = ContainerSpec.model_validate({"repo": "a/b", "tag": "v1", "commit": "a" * 40})
    later = earlier.model_copy(update={"tag": "v2", "commit": "b" * 40, "relaunch": "x"})
    assert restored(record(earlier), later) == {
        "tag": "v1",
        "commit": "a" * 40,
        "relaunch": None,
    }
    assert restored(record(earlier), earlier) == {}
