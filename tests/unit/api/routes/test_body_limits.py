"""Every limit of a request body: what lies on it is taken, what lies beyond it names the field."""

import json
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from cloister_api.errors import from_model
from cloister_api.schemas.accounts import CreateAdminKeyRequest
from cloister_api.schemas.containers import (
    CreateContainerRequest,
    RelaunchRequest,
    ValidateNameRequest,
    ValidateReleaseRequest,
)
from cloister_api.schemas.forms import EmptyRequest, RequestBody
from cloister_api.schemas.keys import (
    METADATA_BYTES,
    ChangeApiKeyRequest,
    CreateApiKeyRequest,
    KeyUsageRequest,
    SignCertificateRequest,
    UpdateApiKeyRequest,
)
from cloister_api.schemas.resources import (
    CreateDomainRequest,
    CreateSecretRequest,
    CreateSshKeyRequest,
    UpdateDeploymentRequest,
    UpdateSecretRequest,
)

CONTAINER = {"name": "web", "repo": "acme/web", "tag": "v1"}
SECRET = {"name": "API_KEY", "value": "x"}
KEY = {"name": "ada", "public_key": "ssh-ed25519 AAAA"}
LABELS = ".".join(["a" * 63] * 3)


def names(count: int) -> list[str]:
    """Return names that differ."""
    return [f"a{number}" for number in range(count)]


def host(length: int) -> str:
    """Return a host name of a length above 191."""
    return f"{LABELS}.{'b' * (length - len(LABELS) - 1)}"


def document(size: int) -> dict[str, str]:
    """Return an object of a size as compact JSON."""
    return {"a": "b" * (size - len('{"a":""}'))}


def variables(count: int) -> dict[str, str]:
    """Return variables."""
    return dict.fromkeys(names(count), "x")


LIMITS: list[tuple[type[RequestBody], dict[str, Any], str, Any, Any]] = [
    (CreateAdminKeyRequest, {"name": "ci"}, "name", "a" * 128, "a" * 129),
    (CreateAdminKeyRequest, {"name": "ci"}, "name", "a", ""),
    (CreateAdminKeyRequest, {"name": "ci"}, "days", 3650, 3651),
    (CreateAdminKeyRequest, {"name": "ci"}, "days", 1, 0),
    (CreateContainerRequest, CONTAINER, "name", "a" * 64, "a" * 65),
    (CreateContainerRequest, CONTAINER, "name", "a", ""),
    (CreateContainerRequest, CONTAINER, "repo", f"a/{'b' * 198}", f"a/{'b' * 199}"),
    (CreateContainerRequest, CONTAINER, "tag", "v" * 255, "v" * 256),
    (CreateContainerRequest, CONTAINER, "tag", "v", ""),
    (CreateContainerRequest, CONTAINER, "variables", variables(256), variables(257)),
    (CreateContainerRequest, CONTAINER, "variables", {"A" * 256: ""}, {"A" * 257: ""}),
    (CreateContainerRequest, CONTAINER, "variables", {"A": "é" * 32_768}, {"A": "é" * 32_769}),
    (CreateContainerRequest, CONTAINER, "secrets", names(256), names(257)),
    (CreateContainerRequest, CONTAINER, "secrets", ["a" * 253], ["a" * 254]),
    (CreateContainerRequest, CONTAINER, "ssh_keys", names(64), names(65)),
    (CreateContainerRequest, CONTAINER, "ssh_keys", ["a" * 253], ["a" * 254]),
    (CreateContainerRequest, CONTAINER, "custom_domain", host(253), host(254)),
    (CreateContainerRequest, CONTAINER, "host_name", "a" * 253, "a" * 254),
    (CreateContainerRequest, CONTAINER, "gpus", 64, 65),
    (CreateContainerRequest, CONTAINER, "gpus", 0, -1),
    (CreateContainerRequest, CONTAINER, "replace_container_id", "a" * 64, "a" * 65),
    (RelaunchRequest, {}, "tag", "v" * 255, "v" * 256),
    (RelaunchRequest, {}, "variables", variables(256), variables(257)),
    (RelaunchRequest, {}, "secrets", names(256), names(257)),
    (RelaunchRequest, {}, "ssh_keys", names(64), names(65)),
    (RelaunchRequest, {}, "gpus", 64, 65),
    (RelaunchRequest, {}, "custom_domain", host(253), host(254)),
    (RelaunchRequest, {}, "host_name", "a" * 253, "a" * 254),
    (
        ValidateReleaseRequest,
        {"repo": "a/b", "tag": "v1"},
        "repo",
        f"a/{'b' * 198}",
        f"a/{'b' * 199}",
    ),
    (
        ValidateReleaseRequest,
        {"repo": "a/b", "tag": "v1"},
        "variables",
        variables(256),
        variables(257),
    ),
    (ValidateReleaseRequest, {"repo": "a/b", "tag": "v1"}, "secrets", names(256), names(257)),
    (ValidateReleaseRequest, {"repo": "a/b", "tag": "v1"}, "ssh_keys", names(64), names(65)),
    (ValidateReleaseRequest, {"repo": "a/b", "tag": "v1"}, "gpus", 64, 65),
    (ValidateReleaseRequest, {"repo": "a/b", "tag": "v1"}, "custom_domain", host(253), host(254)),
    (ValidateReleaseRequest, {"repo": "a/b", "tag": "v1"}, "host_name", "a" * 253, "a" * 254),
    (ValidateReleaseRequest, {"repo": "a/b", "tag": "v1"}, "tag", "v" * 255, "v" * 256),
    (ValidateReleaseRequest, {"repo": "a/b", "tag": "v1"}, "instance_name", "a" * 253, "a" * 254),
    (ValidateReleaseRequest, {"repo": "a/b", "tag": "v1"}, "container_id", "a" * 64, "a" * 65),
    (
        ValidateReleaseRequest,
        {"repo": "a/b", "tag": "v1"},
        "replace_container_id",
        "a" * 64,
        "a" * 65,
    ),
    (ValidateNameRequest, {}, "name", "a" * 1024, "a" * 1025),
    (ValidateNameRequest, {"name": "a"}, "custom_domain", "a" * 1024, "a" * 1025),
    (ValidateNameRequest, {"name": "a"}, "container_id", "a" * 64, "a" * 65),
    (CreateSecretRequest, SECRET, "name", "A" * 253, "A" * 254),
    (CreateSecretRequest, SECRET, "value", "é" * 524_288, "é" * 524_289),
    (CreateSecretRequest, SECRET, "value", " ", ""),
    (CreateSecretRequest, SECRET, "repo", f"a/{'b' * 198}", f"a/{'b' * 199}"),
    (UpdateSecretRequest, {}, "value", "é" * 524_288, "é" * 524_289),
    (CreateSshKeyRequest, KEY, "name", "a" * 253, "a" * 254),
    (CreateSshKeyRequest, KEY, "public_key", "a" * 16_384, "a" * 16_385),
    (CreateDomainRequest, {}, "domain", host(253), host(254)),
    (UpdateDeploymentRequest, {"tag": "v1"}, "tag", "v" * 255, "v" * 256),
    (UpdateDeploymentRequest, {"tag": "v1"}, "instance_ids", names(1000), names(1001)),
    (UpdateDeploymentRequest, {"tag": "v1"}, "instance_ids", ["a" * 64], ["a" * 65]),
    (SignCertificateRequest, {}, "csr", "a" * 16_384, "a" * 16_385),
    (CreateApiKeyRequest, {}, "name", "a" * 128, "a" * 129),
    (CreateApiKeyRequest, {"name": "a"}, "max_tokens", 2**53 - 1, 2**53),
    (CreateApiKeyRequest, {"name": "a"}, "max_tokens", 0, -1),
    (
        CreateApiKeyRequest,
        {"name": "a"},
        "metadata",
        document(METADATA_BYTES),
        document(METADATA_BYTES + 1),
    ),
    (UpdateApiKeyRequest, {"key": "tk_x"}, "name", "a" * 128, "a" * 129),
    (UpdateApiKeyRequest, {"key": "tk_x"}, "max_tokens", 2**53 - 1, 2**53),
    (ChangeApiKeyRequest, {}, "name", "a" * 128, "a" * 129),
    (ChangeApiKeyRequest, {}, "max_tokens", 2**53 - 1, 2**53),
]
"""Form, body, field, what is taken, what is not."""
FORMS: list[tuple[type[RequestBody], dict[str, Any], str, tuple[Any, ...], tuple[Any, ...]]] = [
    (
        CreateContainerRequest, CONTAINER, "name",
        ("a", "0", "a-b", "a--b", "0-0"),
        ("-a", "a-", "-", "A", "a_b", "a.b", "a b", "ä", "a\n", "\n", "a/b", "٣"),
    ),
    (
        CreateContainerRequest, CONTAINER, "repo",
        ("a/b", "Acme/My.repo_1-x"),
        ("a", "a/", "/b", "a/b/c", "a//b", "https://a/b", "../b", "a/..", "a b/c", "ä/b", "a/b\n"),
    ),
    (
        CreateSecretRequest, SECRET, "name",
        ("A", "API_KEY", "API_KEY_2", "tls-key", "a", "tls-key-2"),
        ("", "api_key", "API-KEY", "Api", "_A", "A_", "A__B", "-a", "a-", "a--b", "Ä", "A\n",
         "a.b"),
    ),
    (
        CreateSshKeyRequest, KEY, "name",
        ("a", "ada-laptop", "a-1"),
        ("", "Ada", "a_b", "a.b", "-a", "a-", "a--b", "ä", "a\n", "a b"),
    ),
    (
        CreateDomainRequest, {}, "domain",
        ("api.example.com", "a.b", "xn--bcher-kva.example"),
        ("example", "https://a.b", "a.b/c", "*.a.b", "a.b:443", "A.b", "a..b", ".a.b", "a.b.",
         "-a.b", "bücher.example", "a.b\n", " a.b", f"{'a' * 64}.b"),
    ),
    (
        CreateApiKeyRequest, {}, "name",
        ("a", "A-b_c d.e", "0", ".", "ci bot ", " a", " "),
        ("", "a/b", "naïve", "a\n", "a\tb", "a,b", "😀"),
    ),
]  # fmt: skip
"""Form, body, field, texts that have its form, texts that have not."""


def problems(form: type[RequestBody], body: dict[str, Any]) -> set[str]:
    """Return the fields that are wrong."""
    try:
        form.model_validate(body)
    except ValidationError as error:
        return {str(each["loc"][0]) for each in error.errors()}
    return set()


@pytest.mark.spec("12.4")
@pytest.mark.parametrize(
    ("form", "body", "field", "taken", "refused"),
    LIMITS,
    ids=[f"{form.__name__}.{field}-{number}" for number, (form, _, field, *_) in enumerate(LIMITS)],
)
def test_each_limit_is_exact(
    form: type[RequestBody], body: dict[str, Any], field: str, taken: Any, refused: Any
) -> None:
    assert problems(form, {**body, field: taken}) == set()
    assert problems(form, {**body, field: refused}) == {field}


@pytest.mark.spec("8.10", "12.2", "12.4", "12.5")
@pytest.mark.parametrize(
    ("form", "body", "field", "taken", "refused"),
    FORMS,
    ids=[f"{form.__name__}.{field}" for form, _, field, *_ in FORMS],
)
def test_each_form_is_exact(
    form: type[RequestBody],
    body: dict[str, Any],
    field: str,
    taken: tuple[Any, ...],
    refused: tuple[Any, ...],
) -> None:
    assert [text for text in taken if problems(form, {**body, field: text})] == []
    assert [text for text in refused if problems(form, {**body, field: text}) != {field}] == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "a" * 65}, "is too long: the maximum is 64 characters"),
        ({"name": ""}, "must not be empty"),
        ({"gpus": 65}, "is too large: the maximum is 64"),
        ({"gpus": -1}, "is too small: the minimum is 0"),
        ({"secrets": ["A"] * 257}, "has too many entries: the maximum is 256"),
    ],
)
def test_a_value_beyond_a_bound_is_refused_in_plain_words(
    change: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        CreateContainerRequest.model_validate_json(json.dumps({**CONTAINER, **change}))
    assert [each.message for each in from_model(caught.value).details] == [words]


@pytest.mark.spec("12.3", "25.2")
def test_metadata_is_measured_in_bytes_of_compact_json() -> None:
    """5 KB are 5,120 bytes of UTF-8 without spaces (spec 25.2)."""
    two_bytes = {"a": "é" * ((METADATA_BYTES - len('{"a":""}')) // 2)}
    assert len(json.dumps(two_bytes, ensure_ascii=False, separators=(",", ":")).encode()) == 5120
    assert problems(CreateApiKeyRequest, {"name": "a", "metadata": two_bytes}) == set()
    more = {"a": two_bytes["a"] + "é"}
    assert problems(CreateApiKeyRequest, {"name": "a", "metadata": more}) == {"metadata"}


BOUNDS = {"maxLength", "maxItems", "maxProperties", "maximum"}


def bounded(shape: Any) -> bool:
    """Return whether a field has an upper bound somewhere."""
    if isinstance(shape, dict):
        return bool(BOUNDS & shape.keys()) or any(map(bounded, shape.values()))
    return isinstance(shape, list) and any(map(bounded, shape))


def parts_of(form: type[RequestBody]) -> list[type[RequestBody]]:
    """Return the bodies of requests that extend one; what services derive is sent by nobody."""
    return [
        each
        for each in form.__subclasses__()
        if not each.__module__.startswith("cloister_api.services.")
    ]


def test_no_limit_is_missing_here() -> None:
    here = {(form, field) for form, _, field, *_ in LIMITS}
    forms = parts_of(RequestBody)
    for form in forms:
        forms.extend(parts_of(form))
    assert {CreateContainerRequest, RelaunchRequest, KeyUsageRequest, EmptyRequest} <= set(forms)
    lacking = [
        f"{form.__name__}.{field}"
        for form in forms
        if form.__module__.startswith("cloister_api.") and not parts_of(form)
        for field, shape in TypeAdapter(form).json_schema()["properties"].items()
        if bounded(shape) and (form, field) not in here
    ]
    assert lacking == []


@pytest.mark.parametrize(
    ("model", "body", "field"),
    [
        (CreateContainerRequest, CONTAINER, "gpus"),
        (RelaunchRequest, {}, "gpus"),
        (ValidateReleaseRequest, {"repo": "a/b", "tag": "v1"}, "gpus"),
        (CreateApiKeyRequest, {"name": "ada"}, "max_tokens"),
        (CreateAdminKeyRequest, {"name": "ci"}, "days"),
    ],
)
def test_a_number_without_a_fraction_is_the_integer_that_it_is(
    model: type[RequestBody], body: dict[str, Any], field: str
) -> None:
    """JSON has one kind of number (JSON Schema Core, 4.2.3): 2.0 is the integer 2."""
    read = model.model_validate_json(json.dumps({**body, field: 2.0}))
    assert repr(getattr(read, field)) == "2"
    for wrong in (2.5, True, "2"):
        with pytest.raises(ValidationError, match=field):
            model.model_validate_json(json.dumps({**body, field: wrong}))
