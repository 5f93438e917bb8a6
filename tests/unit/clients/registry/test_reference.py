"""References of images, taken apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloister_clients.registry import ImageReference, ReferenceInvalid, parse_reference

A = "sha256:" + "a" * 64
B = "sha512:" + "b" * 128


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("nginx", ImageReference("docker.io", "library/nginx")),
        ("nginx:1.27", ImageReference("docker.io", "library/nginx", "1.27")),
        (f"nginx@{A}", ImageReference("docker.io", "library/nginx", None, A)),
        ("acme/app", ImageReference("docker.io", "acme/app")),
        ("docker.io/nginx", ImageReference("docker.io", "library/nginx")),
        ("index.docker.io/acme/app", ImageReference("docker.io", "acme/app")),
        (f"ghcr.io/acme/app:v1@{A}", ImageReference("ghcr.io", "acme/app", "v1", A)),
        (f"ghcr.io/acme/app@{B}", ImageReference("ghcr.io", "acme/app", None, B)),
        ("localhost/app", ImageReference("localhost", "app")),
        ("localhost:5000/app", ImageReference("localhost:5000", "app")),
        ("127.0.0.1:5000/a/b/c:x", ImageReference("127.0.0.1:5000", "a/b/c", "x")),
        ("[::1]:5000/app", ImageReference("[::1]:5000", "app")),
        ("Registry/app", ImageReference("Registry", "app")),
        ("a__b/c--d/e.f_g", ImageReference("docker.io", "a__b/c--d/e.f_g")),
    ],
)
def test_a_reference_has_its_parts(text: str, want: ImageReference) -> None:
    assert parse_reference(text) == want
    assert parse_reference(str(want)) == want


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "name"),
        ("Nginx", "name"),
        ("ghcr.io/", "name"),
        ("ghcr.io/acme//app", "name"),
        ("ghcr.io/acme/App", "name"),
        ("acme/-app", "name"),
        ("acme/../app", "name"),
        ("a b", "name"),
        ("ghcr.io/" + "a" * 256, "name"),
        ("https://ghcr.io/acme/app", "registry|tag"),
        ("ghcr.io:port/app", "registry"),
        ("ghcr.io:99999/app", "registry"),
        ("-ghcr.io/app", "registry"),
        ("user@ghcr.io/app", "digest"),
        ("nginx:", "tag"),
        ("nginx:-x", "tag"),
        ("nginx:" + "x" * 129, "tag"),
        ("nginx@", "digest"),
        ("nginx@sha256:abc", "digest"),
        ("nginx@sha256:" + "A" * 64, "digest"),
        ("nginx@md5:" + "a" * 32, "digest"),
        (f"nginx@{A}@{A}", "digest"),
        (f"nginx@{A}\n", "digest"),
        ("nginx\n", "name"),
        ("x" * 2000, "too long"),
    ],
)
def test_a_wrong_part_is_named(text: str, part: str) -> None:
    with pytest.raises(ReferenceInvalid, match=part):
        parse_reference(text)


def test_a_pinned_reference_has_no_tag() -> None:
    assert parse_reference(f"nginx:1@{A}").pinned == f"docker.io/library/nginx@{A}"
    with pytest.raises(ReferenceInvalid, match="has no digest"):
        _ = parse_reference("nginx:1").pinned


@given(st.text(max_size=80) | st.text("aZ0.:/@_-[]", max_size=40))
def test_any_text_is_a_reference_or_refused(text: str) -> None:
    try:
        found = parse_reference(text)
    except ReferenceInvalid:
        return
    assert parse_reference(str(found)) == found
