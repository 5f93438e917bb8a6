"""The statement of where a release comes from."""

import hashlib

from dev.images.release import ROOT, Release
from dev.release.provenance import LOCKS, _commit, _lock, statement

RELEASE = Release("1.2.3", "0123abcd", 1_700_000_000, "https://git.example.com/cloister")


def test_a_statement_names_what_it_is_about_by_digest() -> None:
    made = statement({"b": "2" * 64, "a": "1" * 64}, {"buildDefinition": {}})
    assert [each["name"] for each in made["subject"]] == ["a", "b"]
    assert made["subject"][0]["digest"] == {"sha256": "1" * 64}
    assert made["predicateType"] == "https://slsa.dev/provenance/v1"


def test_materials_are_the_commit_and_every_lock() -> None:
    assert _commit(RELEASE) == {
        "name": "cloister",
        "uri": "git+https://git.example.com/cloister@0123abcd",
        "digest": {"gitCommit": "0123abcd"},
    }
    assert "uri" not in _commit(Release("1.2.3", "0123abcd", 0))
    for name in LOCKS:
        content = (ROOT / name).read_bytes()
        assert _lock(name)["digest"] == {"sha256": hashlib.sha256(content).hexdigest()}
