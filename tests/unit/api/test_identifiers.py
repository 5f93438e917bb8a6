"""The command that gives restored objects the identifiers that they had."""

import json
from pathlib import Path
from typing import Any

import click
import pytest

from cloister_api.commands.organizations import read_backup, refusal
from cloister_crds.kinds import Domain, Organization

BEFORE = "3f8d9c1e-5a0b-4c57-8f0e-2b6d1a9c7e44"
OTHER = "7d0b2e55-90a1-4be4-b1a7-11d6a8d7c001"


def domain(name: str, uid: str, **status: Any) -> dict[str, Any]:
    return {
        "apiVersion": "cloister.dev/v1alpha1",
        "kind": "Domain",
        "metadata": {"name": name, "namespace": "org-acme", "uid": uid},
        "spec": {"domain": "app.example.com"},
        "status": status,
    }


def test_a_backup_says_who_was_who(tmp_path: Path) -> None:
    file = tmp_path / "backup.json"
    kept = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "core"}}
    items = [domain("a", BEFORE), domain("b", OTHER, id=BEFORE), kept]
    file.write_text(json.dumps({"items": items}))
    found = read_backup(file)
    assert found[Domain] == {("org-acme", "a"): BEFORE, ("org-acme", "b"): BEFORE}
    assert not found[Organization]


@pytest.mark.parametrize("text", ["", "[]", "{}"])
def test_what_is_no_backup_is_refused_with_the_command_that_writes_one(
    tmp_path: Path, text: str
) -> None:
    file = tmp_path / "backup.json"
    file.write_text(text)
    with pytest.raises(click.ClickException, match="kubectl get org,ctr"):
        read_backup(file)


def test_an_identifier_belongs_to_one_object() -> None:
    fresh, holder = Domain.read(domain("a", OTHER)), Domain.read(domain("b", BEFORE))
    assert refusal(fresh, BEFORE, None) == ""
    assert refusal(fresh, OTHER, fresh) == ""
    assert "belongs to org-acme/b" in refusal(fresh, BEFORE, holder)
    assert "apply it first" in refusal(None, BEFORE, None)
    settled = Domain.read(domain("a", OTHER, id="0" * 8 + BEFORE[8:]))
    assert "never changes" in refusal(settled, BEFORE, None)
