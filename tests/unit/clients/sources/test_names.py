"""Names are checked as git checks them."""

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister_clients.sources import NameInvalid
from cloister_clients.sources.release import check_commit, check_repository, check_tag


@pytest.mark.parametrize(
    "repo", ["acme/app", "A-b_c/x.y-z_1", "_x/_y", "a/" + "b" * 100, "1/2", "acme/.app"[:5] + "a"]
)
def test_a_repository_is_an_owner_and_a_name(repo: str) -> None:
    assert "/".join(check_repository(repo)) == repo


@pytest.mark.parametrize(
    "repo",
    ["", "/", "acme/", "/app", "a/b/c", "./app", "../app", "acme/..", "acme/.app", "acme/app.",
     "-x/app", "acme/-app", "a b/c", "a%2fb/c", "acme/app.git", "acme/app.lock", "acme/app\n",
     "é/app", "a/" + "b" * 101, "acme/a?b", "acme/a#b", "a:b/c", "a@b/c"],
)  # fmt: skip
def test_what_is_no_repository_is_refused(repo: str) -> None:
    with pytest.raises(NameInvalid, match="write owner/name"):
        check_repository(repo)


@pytest.mark.parametrize("tag", ["v1", "v1.2.3-rc.1+build", "rel/2026/1", "1", "é", "a@b", "a{b}"])
def test_a_tag_is_one_of_git(tag: str) -> None:
    assert check_tag(tag) == tag


@pytest.mark.parametrize("tag", ["-v1", "x" * 201, "v1\udc80", "@"])
def test_some_tags_are_refused_beyond_the_rules_of_git(tag: str) -> None:
    with pytest.raises(NameInvalid, match="not a tag name"):
        check_tag(tag)


def by_git(tag: str) -> bool:
    """Ask git itself."""
    command = ["git", "check-ref-format", f"refs/tags/{tag}"]
    return subprocess.run(command, check=False).returncode == 0


ALPHABET = "av1/.-~^:?*[\\@{} \t\x7f\x01é"
TAGS = st.one_of(
    st.text(ALPHABET, min_size=1, max_size=6),
    st.sampled_from(["a.lock", "a/b.lock", "a.lock/b", "a//b", "a/", "/a", ".a", "a/.b", "a..b"]),
)


@given(TAGS)
@settings(max_examples=75, deadline=None)
def test_the_rules_are_those_of_git(tag: str) -> None:
    try:
        check_tag(tag)
    except NameInvalid:
        assert not by_git(tag) or tag.startswith("-") or tag == "@"
    else:
        assert by_git(tag)


def test_a_commit_is_forty_digits() -> None:
    assert check_commit("0" * 40) == "0" * 40
    for wrong in ("", "0" * 39, "0" * 64, "A" * 40, "HEAD", "0" * 40 + "\n"):
        with pytest.raises(NameInvalid, match="40 hexadecimal digits"):
            check_commit(wrong)
