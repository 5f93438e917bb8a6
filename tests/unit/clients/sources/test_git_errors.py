"""What git says that no server of the other tests makes it say."""

import pytest

from cloister_clients.sources import (
    RepositoryNotFound,
    SourceError,
    SourceRefused,
    SourceUnauthorized,
    SourceUnavailable,
    TagNotFound,
)
from cloister_clients.sources.git.remote import cleaned, explain


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ("Host key verification failed.\nfatal: Could not read from remote", SourceRefused),
        ("git@h: Permission denied (publickey).\nfatal: Could not read", SourceUnauthorized),
        ("ERROR: Repository not found.\nfatal: Could not read", RepositoryNotFound),
        ("fatal: transport 'http' not allowed", SourceRefused),
        ("fatal: dumb http transport does not support shallow capabilities", SourceRefused),
        ("fatal: couldn't find remote ref refs/tags/v1", TagNotFound),
        ("fatal: unable to access 'x': SSL certificate problem: expired", SourceUnavailable),
        ("", SourceUnavailable),
    ],
)
def test_a_sentence_of_git_has_its_meaning(said: str, error: type[SourceError]) -> None:
    found = explain(said, repo="acme/app", tag="v1", token_sent=False, max_fetch_bytes=7)
    assert type(found) is error
    assert "acme/app" in str(found) or error in {SourceRefused, SourceUnauthorized}


def test_output_in_a_message_is_one_clean_line() -> None:
    assert cleaned("remote: one\nfatal: two\x1b[31m\x00three\n") == "two [31m three"
    assert cleaned("no word before\nthe last line\n") == "the last line"
    assert cleaned("") == "git said nothing"
    assert len(cleaned("fatal: " + "x" * 5000)) == 300
