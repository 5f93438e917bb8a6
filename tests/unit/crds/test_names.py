"""Names are injective, valid and stable."""

import re

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from cloister_crds.names import (
    ENCLAVE_PREFIX_LIMIT,
    config_map_name,
    deployment_name,
    distinct_label,
    enclave_name,
    generated_hostname,
    host_label,
    object_name,
    preview_hostname,
    preview_service_name,
    secret_object_name,
    service_name,
    short_hash,
    snapshot_name,
)

UNHURRIED = settings(deadline=None, derandomize=True)
"""Slow machines are not a failure, and a test answers the same twice."""

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
LETTER_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
SUBDOMAIN = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?")

CONTAINER_NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,62}[a-z0-9])?", fullmatch=True)
OBJECT_NAMES = st.one_of(
    CONTAINER_NAMES,
    st.from_regex(r"[a-z0-9]([-.a-z0-9]{0,90}[a-z0-9])?", fullmatch=True),
    # Names that look like hashed ones are the dangerous neighbours.
    CONTAINER_NAMES.map(lambda name: f"{name[:20]}--{short_hash(name)}"),
    CONTAINER_NAMES.map(service_name),
)
HOLDERS = st.tuples(CONTAINER_NAMES, OBJECT_NAMES, st.booleans())
SECRET_NAMES = st.one_of(
    st.from_regex(r"[A-Z][A-Z0-9]{0,8}(_[A-Z0-9]{1,8}){0,4}", fullmatch=True),
    st.from_regex(r"[a-z0-9]{1,8}(-[a-z0-9]{1,8}){0,4}", fullmatch=True),
    st.from_regex(r"[A-Za-z0-9_-]{1,30}", fullmatch=True),
)


@pytest.mark.spec("4.2")
@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("a", "a"),
        ("web", "web"),
        ("a" * 63, "a" * 63),
        ("a" * 64, "a" * 51 + "--77qfj7t24d"),
        ("1password", "1password"),
        ("web--production", "web--production"),
        ("web--aaaaaaaaaa", "web--aaaaaaaaaa"),
        ("debug.acme", "debug-acme--r7q6weykqv"),
    ],
)
def test_host_labels_are_stable(name: str, want: str) -> None:
    assert host_label(name) == want


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("acme", "acme"),
        ("a" * 64, "a" * 51 + "--77qfj7t24d"),
        ("web--production", "web-production--ntbbpln36c"),
    ],
)
def test_labels_of_organizations_are_stable(name: str, want: str) -> None:
    assert distinct_label(name) == want


@pytest.mark.spec("4.2")
@UNHURRIED
@given(st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True))
@example("acme--enterprise")
def test_a_host_name_is_made_of_the_names_as_they_are(name: str) -> None:
    host = generated_hostname(name, organization=name, debug=False, containers_domain="d.e")
    assert host == f"{name}.{name}.d.e"


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("web", "web"),
        ("a" * 63, "a" * 63),
        ("a" * 64, "a" * 51 + "--77qfj7t24d"),
        ("web.debug", "web-debug--62etb7re2f"),
        ("1password", "c1password--2wh4rwxqb2"),
        ("9", "c9--dfmb4j66pt"),
    ],
)
def test_service_names_are_stable(name: str, want: str) -> None:
    assert service_name(name) == want


def test_names_of_children_follow_from_the_enclave() -> None:
    enclave = enclave_name("web", "abcdefghij", 3)
    assert enclave == "web-abcdefghij-3"
    assert config_map_name(enclave) == "web-abcdefghij-3-file"
    assert snapshot_name(enclave) == "web-abcdefghij-3-secrets"


@pytest.mark.attack("meeting-names")
@UNHURRIED
@given(OBJECT_NAMES, OBJECT_NAMES)
@example("web", "web--" + short_hash("web."))
def test_two_names_never_meet(one: str, other: str) -> None:
    for function in (distinct_label, service_name):
        assert (function(one) == function(other)) == (one == other)
    first, second = (enclave_name(name, "abcdefghij", 1) for name in (one, other))
    assert (first == second) == (one == other)


@UNHURRIED
@given(OBJECT_NAMES, st.integers(min_value=1, max_value=9_999_999))
def test_labels_are_valid(name: str, attempt: int) -> None:
    assert LABEL.fullmatch(host_label(name))
    assert LETTER_LABEL.fullmatch(service_name(name))
    enclave = enclave_name(name, "abcdefghij", attempt)
    assert LETTER_LABEL.fullmatch(enclave)
    assert enclave.rsplit("-", 2)[0] in {name, enclave.rsplit("-", 2)[0][:ENCLAVE_PREFIX_LIMIT]}


@UNHURRIED
@given(OBJECT_NAMES, OBJECT_NAMES, st.integers(1, 99), st.integers(1, 99))
def test_enclaves_of_two_containers_never_meet(one: str, other: str, a: int, b: int) -> None:
    names = (enclave_name(one, "abcdefghij", a), enclave_name(other, "klmnopqrst", b))
    assert names[0] != names[1]


def test_a_debug_container_has_a_level_of_its_own() -> None:
    plain = generated_hostname(
        "web", organization="acme", debug=False, containers_domain="containers.example.test"
    )
    debug = generated_hostname(
        "web", organization="acme", debug=True, containers_domain="containers.example.test"
    )
    assert plain == "web.acme.containers.example.test"
    assert debug == "web.debug.acme.containers.example.test"


@pytest.mark.attack("meeting-names")
@UNHURRIED
@given(HOLDERS, HOLDERS)
@example(("web", "debug.acme", False), ("web", "acme", True))
def test_two_containers_never_share_a_host_name(
    one: tuple[str, str, bool], other: tuple[str, str, bool]
) -> None:
    """But for a name of 64 characters and what it is cut to; claims settle that."""
    cut = host_label
    assume(not any(len(a[0]) > 63 and cut(a[0]) == b[0] for a, b in ((one, other), (other, one))))
    first, second = (
        generated_hostname(name, organization=slug, debug=debug, containers_domain="d.e")
        for name, slug, debug in (one, other)
    )
    assert (first == second) == (one == other)


def test_the_facade_takes_the_first_free_object_name() -> None:
    assert object_name("web", debug=False) == "web"
    assert object_name("web", debug=True) == "web.debug"
    assert object_name("web", debug=False, taken={"web"}) == "web.2"
    assert object_name("web", debug=True, taken={"web.debug", "web.debug.2"}) == "web.debug.3"


@UNHURRIED
@given(st.tuples(CONTAINER_NAMES, st.booleans()), st.tuples(CONTAINER_NAMES, st.booleans()))
def test_object_names_of_two_containers_never_meet(
    one: tuple[str, bool], other: tuple[str, bool]
) -> None:
    first, second = (object_name(name, debug=debug) for name, debug in (one, other))
    assert (first == second) == (one == other)


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("OPENAI_API_KEY", "openai-api-key.env"),
        ("openai-api-key", "openai-api-key"),
        ("A", "a.env"),
        ("a", "a"),
        ("A" * 249, "a" * 249 + ".env"),
        ("a" * 253, "a" * 253),
    ],
)
def test_names_of_secrets_are_stable(name: str, want: str) -> None:
    assert secret_object_name(name) == want


@pytest.mark.spec("8.3")
def test_a_repositorys_secret_has_a_name_of_its_own() -> None:
    hashed = short_hash("acme/web")
    assert secret_object_name("API_KEY", "acme/web") == f"api-key.env.{hashed}"
    assert secret_object_name("tls-key", "acme/web") == f"tls-key.{hashed}"
    names = [
        secret_object_name(name, repo)
        for name in ("API_KEY", "api-key", "A" * 249, "a" * 253)
        for repo in (None, "acme/web", "acme/other")
    ]
    assert len(set(names)) == len(names)
    assert all(SUBDOMAIN.fullmatch(name) and len(name) <= 253 for name in names)


@UNHURRIED
@given(SECRET_NAMES, SECRET_NAMES)
@example("OPENAI_API_KEY", "openai-api-key")
@example("A" * 250, "A" * 251)
def test_two_secrets_never_meet(one: str, other: str) -> None:
    first, second = secret_object_name(one), secret_object_name(other)
    assert (first == second) == (one == other)
    assert SUBDOMAIN.fullmatch(first)
    assert len(first) <= 253


@UNHURRIED
@given(
    st.from_regex(
        r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,60}/[A-Za-z0-9_][A-Za-z0-9_.-]{0,60}", fullmatch=True
    )
)
def test_names_of_deployments_are_valid(repo: str) -> None:
    assert LETTER_LABEL.fullmatch(deployment_name(repo))


def test_names_of_deployments_are_stable_and_told_apart() -> None:
    assert deployment_name("acme/site") == "r-acme-site-" + short_hash("acme/site")
    assert deployment_name("acme/Site") != deployment_name("acme/site")
    assert deployment_name("a-b/c") != deployment_name("a/b-c")


@given(CONTAINER_NAMES, CONTAINER_NAMES)
def test_a_preview_has_a_service_of_its_own(one: str, other: str) -> None:
    name = preview_service_name(one)
    assert LETTER_LABEL.fullmatch(name)
    assert name != service_name(other)
    assert (name == preview_service_name(other)) == (one == other)


@pytest.mark.parametrize(
    ("debug", "want"),
    [(False, "web.preview.acme.example.org"), (True, "web.preview.debug.acme.example.org")],
)
def test_preview_hostnames_are_stable(debug: bool, want: str) -> None:  # noqa: FBT001 - a case
    got = preview_hostname("web", organization="acme", debug=debug, containers_domain="example.org")
    assert got == want
