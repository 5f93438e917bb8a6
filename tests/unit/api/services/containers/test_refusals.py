"""From problems and exceptions to the errors of the API."""

from datetime import UTC, datetime
from typing import Any

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
    in_use,
    problems_of_file,
    unavailable,
)
from cloister_api.schemas.containers import CreateContainerRequest, RelaunchRequest, api_name
from cloister_api.schemas.forms import ContainerUser
from cloister_api.services.containers.refusals import refused_change, to_wire
from cloister_api.services.containers.resolution import refusal_of_source
from cloister_api.services.containers.specs import changed_spec, checked, spec_of, spec_patch
from cloister_clients.kube import Forbidden, Unavailable
from cloister_clients.sources import RateLimited, RepositoryNotFound, TagNotFound
from cloister_crds.kinds.container import ContainerSpec
from cloister_crds.kinds.request import RequestRecord
from cloister_crds.lifecycle.admission.quotas import quota_reached
from cloister_crds.lifecycle.request import record, with_request
from cloister_crds.lifecycle.state.reasons import REASONS, ReasonKind
from cloister_crds.problems import Problem, Severity

NOW = datetime(2026, 11, 22, tzinfo=UTC)
BODY = {"name": "web", "repo": "team/web", "tag": "v1"}


def problem(code: str, field: str = "cpus") -> Problem:
    return Problem(field, code, f"{field} has {code}")


@pytest.mark.spec("3.6", "20.12")
def test_payment_precedes_entitlements_and_mistakes() -> None:
    everything = [
        problem("Wrong"),
        problem("EntitlementRequired"),
        problem("SubscriptionRequired"),
    ]
    found = [refused_change(everything[:place]) for place in range(4)]
    assert [one.status if one else None for one in found] == [None, 400, 403, 402]
    limit = refused_change([Problem("", "LimitReached", "quota reached: no more")])
    assert limit is not None
    assert (limit.status, limit.message) == (403, "quota reached: no more")


def test_warnings_refuse_nothing() -> None:
    assert refused_change([Problem("a", "Unused", "b", severity=Severity.WARNING)]) is None


@pytest.mark.spec("3.2", "20.8")
def test_all_problems_are_reported_and_counted() -> None:
    error = problems_of_file([problem("A"), problem("B", "memory"), problem("C")])
    assert error.message == "cpus: cpus has A (and 2 more, see details)"
    assert [detail.code for detail in error.details] == ["A", "B", "C"]
    assert error.code == "BAD_REQUEST"


@pytest.mark.spec("12.13")
@pytest.mark.parametrize(
    ("resource", "what"),
    [
        ("secrets.cloister.dev", "secrets"),
        ("sshkeys.cloister.dev", "SSH keys"),
        ("secrets", "core Secrets in its namespace"),
    ],
)
def test_a_refusal_by_the_quota_of_the_namespace_is_the_same_403(resource: str, what: str) -> None:
    """As the API server words it (Kubernetes, "Resource Quotas")."""
    count = f"count/{resource}"
    message = (
        f'{resource} "a" is forbidden: exceeded quota: cloister-limits, requested: {count}=1, '
        f"used: {count}=100, limited: {count}=100"
    )
    error = from_kube(Forbidden(403, "Forbidden", message, details={"kind": resource}))
    assert (error.status, error.code) == (403, "FORBIDDEN")
    assert error.message == quota_reached(what, 100, 100)


def test_a_quota_that_has_not_counted_yet_is_503() -> None:
    message = 'secrets "a" is forbidden: status unknown for quota: cloister-limits, resources: a'
    error = from_kube(Forbidden(403, "Forbidden", message, details={"kind": "secrets"}))
    assert (error.status, error.code) == (503, "UNAVAILABLE")


@pytest.mark.spec("20.9")
def test_an_unreachable_registry_is_distinguished_from_a_wrong_file() -> None:
    image = problem("RegistryUnavailable", "containers[0].image")
    only = refused_change([image])
    assert only is not None
    assert (only.status, only.code) == (503, "UNAVAILABLE")
    assert only.message.startswith("containers[0].image: ")
    both = refused_change([image, problem("Wrong")])
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


@pytest.mark.spec("20.9")
def test_sources_name_the_field_they_are_about() -> None:
    tag = refusal_of_source(TagNotFound("a/b", "v1"))
    repo = refusal_of_source(RepositoryNotFound("a/b"))
    assert [tag.details[0].field, repo.details[0].field] == ["tag", "repo"]
    away = refusal_of_source(RateLimited("busy", retry_after=17))
    assert (away.status, away.retry_after) == (503, 17)


@pytest.mark.spec("20.8")
def test_problems_of_request_and_release_are_reported_together() -> None:
    early = [problem("SecretNotFound", "spec.secrets[0]"), problem("DomainNotFound", "tag")]
    error = refusal_of_source(TagNotFound("a/b", "v1"), early)
    assert (error.status, error.code) == (400, "BAD_REQUEST")
    assert [detail.field for detail in error.details] == ["secrets[0]", "tag", "tag"]
    assert error.details[2].code == "TagNotFound"
    busy = refusal_of_source(RateLimited("busy", retry_after=17), early)
    assert (busy.status, len(busy.details)) == (400, 2)
    noted = [Problem("a", "Unused", "b", severity=Severity.WARNING)]
    assert refusal_of_source(RateLimited("busy", retry_after=17), noted).status == 503


TRANSIENT = sorted(each.word for each in REASONS.values() if each.kind is ReasonKind.TRANSIENT)


@pytest.mark.spec("20.9")
@pytest.mark.parametrize("code", TRANSIENT)
def test_what_the_operator_waits_for_is_503(code: str) -> None:
    waits = problem(code, "spec.host")
    error = refused_change([waits])
    assert error is not None
    assert (error.status, error.code) == (503, "UNAVAILABLE")
    assert error.retry_after
    assert "host_name" in error.message
    lasting = refused_change([waits, problem("HostNotFound")])
    assert lasting is not None
    assert (lasting.status, len(lasting.details)) == (400, 2)
    away = refusal_of_source(RateLimited("busy", retry_after=17), [waits])
    assert (away.status, away.retry_after) == (503, 17)
    assert refusal_of_source(TagNotFound("a/b", "v1"), [waits]).status == 400


@pytest.mark.spec("3.2")
def test_errors_of_the_cluster_are_not_exposed() -> None:
    hidden = from_kube(Forbidden(403, "Forbidden", "pods of kube-system"))
    assert hidden.status == 500
    assert "kube-system" not in hidden.message
    assert from_kube(Unavailable(429, "", "busy", retry_after=3)).retry_after == 3


@pytest.mark.parametrize("kind", ["secrets", "configmaps", "events"])
def test_rights_that_the_operator_has_not_given_yet_are_503(kind: str) -> None:
    refused = Forbidden(403, "Forbidden", "no", details={"kind": kind})
    assert from_kube(refused).status == 503
    policy = Forbidden(403, "Invalid", "ValidatingAdmissionPolicy", details={"kind": kind})
    assert from_kube(policy).status == 500


@pytest.mark.spec("3.1", "20.8", "20.9")
def test_error_responses_have_one_form() -> None:
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


@pytest.mark.spec("3.2", "20.8")
@pytest.mark.parametrize(
    ("kind", "location", "field", "words"),
    [
        ("json_invalid", ("body", 5), "", "not JSON"),
        ("extra_forbidden", ("body", "colour"), "colour", "unknown field"),
        ("missing", ("body", "tag"), "tag", "required field is missing"),
        ("missing", ("body",), "", "JSON object is needed"),
        ("model_attributes_type", ("body",), "", "must be a JSON object"),
        ("string_type", ("body", "variables", "A"), "variables.A", "string"),
    ],
)
def test_what_the_framework_finds_is_named(
    kind: str, location: tuple[str | int, ...], field: str, words: str
) -> None:
    found = {"type": kind, "loc": location, "msg": "text", "ctx": {"error": "x"}}
    error = from_validation(RequestValidationError([found]))
    assert (error.status, error.details[0].field) == (400, field)
    assert words in error.message


@pytest.mark.spec("20.1")
def test_bodies_leave_out_null_and_legacy_names() -> None:
    body = CreateContainerRequest.model_validate({
        **BODY, "gpus": None, "group_name": "a", "group_order": 1, "display_order": 2,
    })  # fmt: skip
    assert body.gpus is None
    with pytest.raises(ValidationError, match="colour"):
        CreateContainerRequest.model_validate({**BODY, "colour": "red"})


@pytest.mark.spec("20.8")
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
        CreateContainerRequest.model_validate({**BODY, **change})


@pytest.mark.spec("8.5")
def test_rules_between_fields_are_the_kinds() -> None:
    body = CreateContainerRequest.model_validate({**BODY, "ssh_keys": ["mine"]})
    with pytest.raises(ApiError) as caught:
        spec_of(body)
    assert caught.value.status == 400
    assert "debug" in caught.value.message


def keys_changed(spec: ContainerSpec, body: RelaunchRequest) -> dict[str, Any]:
    """Return the merge patch of what a body changes."""
    return spec_patch(spec, changed_spec(spec, body))


@pytest.mark.spec("6.7", "21.6")
def test_a_relaunch_patches_what_changes_and_nothing_else() -> None:
    spec = spec_of(
        CreateContainerRequest.model_validate({**BODY, "variables": {"A": "1", "B": "2"}})
    )
    body = RelaunchRequest.model_validate({
        "tag": "v1", "variables": {"A": "1"}, "custom_domain": "", "debug": False,
    })  # fmt: skip
    assert keys_changed(spec, body) == {"variables": [{"name": "A", "value": "1"}]}
    assert keys_changed(spec, RelaunchRequest.model_validate({"tag": "v2"})) == {"tag": "v2"}
    assert keys_changed(spec, RelaunchRequest.model_validate({"host_name": "h"})) == {"host": "h"}
    named = spec.model_copy(update={"custom_domain": "www.example.test"})
    back = RelaunchRequest.model_validate({"custom_domain": ""})
    assert keys_changed(named, back) == {"customDomain": None}
    placed = spec.model_copy(update={"host": "h1"})
    back = RelaunchRequest.model_validate({"host_name": ""})
    assert keys_changed(placed, back) == {"host": None}
    assert keys_changed(spec, back) == {}
    as_it_is = RelaunchRequest.model_validate({"host_name": None, "gpus": None})
    assert keys_changed(placed, as_it_is) == {}


WRITTEN = {
    "variables": ({"A": "1"}, {"variables": [{"name": "A", "value": "1"}]}),
    "secrets": (["API_KEY"], {"secrets": ["API_KEY"]}),
    "ssh_keys": (["ada"], {"sshKeys": ["ada"]}),
    "debug": (True, {"debug": True}),
    "staging": (True, {"staging": True}),
    "custom_domain": ("api.example.test", {"customDomain": "api.example.test"}),
    "host_name": ("h1", {"host": "h1"}),
    "gpus": (8, {"gpus": 8}),
    "disable_cc_mode": (True, {"disableConfidential": True}),
    "tag": ("v2", {"tag": "v2"}),
    "name": ("other", {"name": "other"}),
    "repo": ("team/other", {"repo": "team/other"}),
}
"""Field of a body -> value, and what of spec says it."""
DEBUG_ALONE = {"ssh_keys", "disable_cc_mode"}
"""Fields that debug containers alone have."""


@pytest.mark.spec("21.5")
@pytest.mark.parametrize(
    "field",
    sorted(set(map(api_name, CreateContainerRequest.model_fields)) - {"replace_container_id"}),
)
def test_every_field_of_a_create_reaches_the_spec(field: str) -> None:
    value, written = WRITTEN[field]
    base = {**BODY, "debug": True} if field in DEBUG_ALONE else BODY
    before = spec_of(CreateContainerRequest.model_validate(base)).wire()
    after = spec_of(CreateContainerRequest.model_validate({**base, field: value})).wire()
    assert {key: after[key] for key in after if after[key] != before.get(key)} == written


@pytest.mark.spec("20.8")
@pytest.mark.parametrize("field", sorted(ContainerSpec.model_fields))
def test_what_the_kind_refuses_is_named_as_the_api_has_it(field: str) -> None:
    with pytest.raises(ApiError) as caught:
        checked({"repo": "a/b", "tag": "v1", field: object()})
    assert [detail.field for detail in caught.value.details] == [api_name(field)]
    assert caught.value.message.startswith(f"{api_name(field)}: ")
    assert "Input should" not in caught.value.message


@pytest.mark.spec("12.14")
def test_variables_of_too_many_bytes_are_named_at_create_and_relaunch() -> None:
    variables = {"A": "\N{GRINNING FACE}" * 32_768}
    spec = spec_of(CreateContainerRequest.model_validate(BODY))
    with pytest.raises(ApiError) as created:
        spec_of(CreateContainerRequest.model_validate({**BODY, "variables": variables}))
    with pytest.raises(ApiError) as relaunched:
        keys_changed(spec, RelaunchRequest.model_validate({"variables": variables}))
    for caught in (created, relaunched):
        assert [detail.field for detail in caught.value.details] == ["variables"]
        assert "more than 131072 bytes" in caught.value.message


@pytest.mark.spec("20.8")
def test_a_malformed_domain_of_a_relaunch_is_named() -> None:
    spec = spec_of(CreateContainerRequest.model_validate(BODY))
    body = RelaunchRequest.model_validate({"custom_domain": "API.example.org"})
    with pytest.raises(ApiError) as caught:
        keys_changed(spec, body)
    assert [detail.field for detail in caught.value.details] == ["custom_domain"]


def test_the_container_that_is_replaced_reaches_the_spec() -> None:
    assert spec_of(CreateContainerRequest.model_validate(BODY), replaces="old").replaces == "old"


@pytest.mark.spec("21.6")
@pytest.mark.parametrize("field", sorted(map(api_name, RelaunchRequest.model_fields)))
def test_every_field_of_a_relaunch_reaches_the_spec(field: str) -> None:
    value, written = WRITTEN[field]
    base = {**BODY, "debug": True} if field in DEBUG_ALONE else BODY
    spec = spec_of(CreateContainerRequest.model_validate(base))
    assert keys_changed(spec, RelaunchRequest.model_validate({field: value})) == written
    assert keys_changed(spec, RelaunchRequest()) == {}


@pytest.mark.spec("21.6")
def test_a_production_container_loses_what_only_debug_ones_have() -> None:
    body = {**BODY, "debug": True, "ssh_keys": ["ada"], "disable_cc_mode": True}
    debug = spec_of(CreateContainerRequest.model_validate(body))

    def changed(**change: object) -> dict[str, object]:
        return keys_changed(debug, RelaunchRequest.model_validate(change))

    production = {"debug": False, "sshKeys": [], "disableConfidential": False}
    assert changed(debug=False) == production
    assert changed(debug=False, disable_cc_mode=False, ssh_keys=[]) == production
    assert changed(disable_cc_mode=False) == {"disableConfidential": False}
    assert changed(tag="v2") == {"tag": "v2"}
    for field, value in (("ssh_keys", ["ada"]), ("disable_cc_mode", True)):
        with pytest.raises(ApiError, match=f"{field}: .*set debug: true or leave {field} out"):
            changed(debug=False, **{field: value})


@pytest.mark.spec("3.3", "24.6")
def test_what_is_used_names_its_users() -> None:
    pairs = (("a1", "api", False), ("w1", "web", False), ("w2", "web", True))
    users = [ContainerUser(id=uid, name=name, debug=debug) for uid, name, debug in pairs]
    error = in_use("the secret API_KEY", users)
    body = msgspec.json.decode(error_response(error, "r1").body)
    assert (error.status, body["code"]) == (409, "CONFLICT")
    assert body["used_by"] == ["api", "web", "web"]
    assert body["used_by_containers"][1:] == [
        {"id": "w1", "name": "web", "debug": False},
        {"id": "w2", "name": "web", "debug": True},
    ]
    assert "used by api, web, web (debug);" in body["error"]


def restored(request: RequestRecord, spec: ContainerSpec) -> dict[str, Any]:
    """Return the merge patch that restores a request."""
    return spec_patch(spec, with_request(spec, request))


def test_cancel_writes_back_what_the_update_changed() -> None:
    earlier = ContainerSpec.model_validate({"repo": "a/b", "tag": "v1", "commit": "a" * 40})
    later = earlier.model_copy(update={"tag": "v2", "commit": "b" * 40, "relaunch": "x"})
    assert restored(record(earlier), later) == {
        "tag": "v1",
        "commit": "a" * 40,
        "relaunch": None,
    }
    assert restored(record(earlier), earlier) == {}


@pytest.mark.spec("22.3")
def test_cancel_keeps_the_order_of_lists() -> None:
    earlier = ContainerSpec.model_validate({"repo": "a/b", "tag": "v1", "secrets": ["B", "A"]})
    asked = record(earlier)
    moved = earlier.model_copy(update={"tag": "v2"})
    assert restored(asked, moved) == {"tag": "v1"}
    rebound = moved.model_copy(update={"secrets": ("A", "C")})
    assert restored(asked, rebound) == {"tag": "v1", "secrets": ["B", "A"]}
    sorted_by_an_earlier_release = asked.model_copy(update={"secrets": ("A", "B")})
    assert restored(sorted_by_an_earlier_release, moved) == {"tag": "v1"}
