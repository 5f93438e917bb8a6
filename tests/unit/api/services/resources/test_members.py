"""Who is a member after a change, and what is refused."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cloister_api.cache import OwnedOrganization, member_owners_of
from cloister_api.errors import ApiError
from cloister_api.services.resources.members import (
    added,
    manifest_of,
    require_unchanged,
    with_role,
    without,
)
from cloister_crds.kinds import Organization
from cloister_crds.kinds.organization import Member

ADA, BOB, EVE = "ada@example.com", "bob@example.com", "https://id.example.com#eve"


def organization(**roles: str) -> Organization:
    """Return an Organization whose members are named in short."""
    users = {"ada": ADA, "bob": BOB}
    members = [{"user": users[name], "role": role} for name, role in roles.items()]
    spec = {"namespace": "org-acme", "members": members}
    return Organization.model_validate({"metadata": {"name": "acme"}, "spec": spec})


def pairs(members: tuple[Member, ...]) -> list[tuple[str, str]]:
    """Return users with their roles."""
    return [(each.user, each.role.value) for each in members]


def test_one_is_added_at_the_end() -> None:
    found = added(organization(ada="Admin"), EVE, "Member")
    assert pairs(found) == [(ADA, "Admin"), (EVE, "Member")]


def test_to_add_again_changes_nothing() -> None:
    present = organization(ada="Admin", bob="Member")
    assert added(present, BOB, "Member") is present.spec.members


def test_who_is_there_with_another_role_is_not_added() -> None:
    with pytest.raises(ApiError, match="already, as Member; change the role") as refused:
        added(organization(ada="Admin", bob="Member"), BOB, "Admin")
    assert refused.value.status == 409


@pytest.mark.parametrize(
    ("user", "role", "fields"),
    [
        ("", "Member", {"user"}),
        ("two words", "Member", {"user"}),
        ("ümit@example.com", "Member", {"user"}),
        ("x" * 254, "Member", {"user"}),
        (EVE, "Owner", {"role"}),
        (EVE, "", {"role"}),
        ("a\tb", "admin", {"user", "role"}),
    ],
)
def test_names_and_roles_are_those_of_the_kind(user: str, role: str, fields: set[str]) -> None:
    with pytest.raises(ApiError) as refused:
        added(organization(ada="Admin"), user, role)
    assert refused.value.status == 400
    assert {each.field for each in refused.value.details} == fields


def test_a_role_changes_in_its_place() -> None:
    present = organization(bob="Member", ada="Admin")
    assert pairs(with_role(present, BOB, "Admin")) == [(BOB, "Admin"), (ADA, "Admin")]
    assert with_role(present, BOB, "Member") == present.spec.members


def test_a_role_of_nobody_is_not_found() -> None:
    with pytest.raises(ApiError, match="member not found") as refused:
        with_role(organization(ada="Admin"), BOB, "Admin")
    assert refused.value.status == 404


def test_one_is_removed_and_again() -> None:
    present = organization(ada="Admin", bob="Admin")
    assert pairs(without(present, BOB)) == [(ADA, "Admin")]
    assert without(present, EVE) == present.spec.members


@pytest.mark.parametrize("others", [{}, {"bob": "Member"}])
def test_the_last_administrator_stays(others: dict[str, str]) -> None:
    present = organization(ada="Admin", **others)
    with pytest.raises(ApiError, match="make somebody else an administrator first") as removed:
        without(present, ADA)
    with pytest.raises(ApiError, match="make somebody else an administrator first") as demoted:
        with_role(present, ADA, "Member")
    assert (removed.value.status, demoted.value.status) == (409, 409)


def test_a_change_of_another_generation_is_refused() -> None:
    require_unchanged("", 7)
    require_unchanged("7", 7)
    for shown in ("6", "8", "x"):
        with pytest.raises(ApiError, match="changed since") as refused:
            require_unchanged(shown, 7)
        assert refused.value.status == 412


def test_the_manifest_for_a_repository_is_read_as_it_was_meant() -> None:
    members = added(organization(ada="Admin"), "yes", "Member")
    document = yaml.safe_load(manifest_of("123", members))
    assert document["kind"] == "Organization"
    assert document["metadata"] == {"name": "123"}
    assert document["spec"] == {
        "members": [{"user": ADA, "role": "Admin"}, {"user": "yes", "role": "Member"}]
    }


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=253))
def test_every_name_is_read_as_it_is(user: str) -> None:
    document = yaml.safe_load(manifest_of("acme", [Member(user=user)]))
    assert document["spec"]["members"] == [{"user": user, "role": "Member"}]


def managed(manager: str, fields: dict[str, Any], **more: str) -> dict[str, Any]:
    """Return an entry of managedFields."""
    return {"manager": manager, "fieldsV1": {"f:spec": fields}, **more}


def test_who_manages_which_member_is_known() -> None:
    ada = 'k:{"user":"ada@example.com"}'
    bob = 'k:{"user":"bob@example.com"}'
    fields = [
        managed("flux", {"f:members": {".": {}, ada: {".": {}, "f:role": {}}}}),
        managed("kubectl", {"f:members": {ada: {"f:role": {}}, bob: {}}, "f:namespace": {}}),
        managed("operator", {"f:members": {bob: {}}}, subresource="status"),
        {"manager": "labels", "fieldsV1": {"f:metadata": {}}},
    ]
    body = {
        **organization(ada="Admin").wire(),
        "metadata": {"name": "acme", "managedFields": fields},
    }
    assert member_owners_of(body) == {ADA: {"flux", "kubectl"}, BOB: {"kubectl"}}
    read = OwnedOrganization.read(body)
    assert read.owners["members"] == {"flux", "kubectl"}
    assert read.member_owners[BOB] == {"kubectl"}
