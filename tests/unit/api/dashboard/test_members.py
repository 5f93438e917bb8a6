"""What is shown of a person, and where a change leads."""

from datetime import UTC, datetime

import pytest
import yaml

from cloister_api.dashboard.pages.members import MOST_ENDED, page_after, person_of
from cloister_api.errors import ApiError
from cloister_api.ledger.keys.admin_keys import AdminKey
from cloister_api.services.resources.members import MembersChanged
from cloister_crds.kinds import Organization
from cloister_crds.kinds.organization import Role

AT = datetime(2026, 11, 27, tzinfo=UTC)
ADA, BOB = "ada@example.com", "bob@example.com"


def key(name: str, user: str = BOB) -> AdminKey:
    """Return an admin key."""
    return AdminKey(
        id=name, index=b"", last_four="abcd", name=name, organization="acme",
        organization_id="1", created_by=user, created_at=AT, expires_at=None, revoked_at=None,
        revoked_because=None, last_used_at=None,
    )  # fmt: skip


def organization(**roles: str) -> Organization:
    """Return an Organization with members."""
    members = [{"user": f"{name}@example.com", "role": role} for name, role in roles.items()]
    spec = {"namespace": "org-acme", "members": members}
    return Organization.model_validate({"metadata": {"name": "acme"}, "spec": spec})


@pytest.mark.parametrize(
    ("roles", "user", "role", "irreplaceable"),
    [
        ({"ada": "Admin", "bob": "Member"}, BOB, Role.MEMBER, False),
        ({"ada": "Admin", "bob": "Member"}, ADA, Role.ADMIN, True),
        ({"ada": "Admin", "bob": "Admin"}, ADA, Role.ADMIN, False),
        ({"ada": "Admin"}, BOB, None, False),
    ],
)
def test_a_person_can_get_the_other_roles_unless_nobody_else_is_admin(
    roles: dict[str, str], user: str, role: Role | None, *, irreplaceable: bool
) -> None:
    found = person_of(
        organization(**roles), user, (), (key("old"),), managed=False, entry_managed=False
    )
    assert (found.role, {*found.other_roles}) == (role, {*Role} - {role})
    assert found.irreplaceable is irreplaceable
    assert found.manifests == ()
    assert found.changeable is found.removable is (role is not None and not irreplaceable)


def test_who_left_is_known_by_their_keys_alone() -> None:
    with pytest.raises(ApiError, match="member not found") as refused:
        person_of(organization(ada="Admin"), BOB, (), (), managed=False, entry_managed=False)
    assert refused.value.status == 404
    ended = tuple(key(str(number)) for number in range(MOST_ENDED + 5))
    found = person_of(organization(ada="Admin"), BOB, (), ended, managed=True, entry_managed=True)
    assert found.ended == ended[:MOST_ENDED]
    assert found.manifests == ()


def test_each_change_has_its_manifest_where_a_repository_has_the_members() -> None:
    present = organization(ada="Admin", bob="Member")
    found = person_of(present, BOB, (), (), managed=True, entry_managed=True)
    people = [yaml.safe_load(text)["spec"]["members"] for _, text in found.manifests]
    assert not found.changeable
    assert not found.removable
    ada = {"user": ADA, "role": "Admin"}
    others = [[ada, {"user": BOB, "role": role}] for role in ("Admin", "Developer", "Auditor")]
    assert people == [*others, [ada]]
    assert person_of(present, ADA, (), (), managed=True, entry_managed=True).manifests == (), (
        "the last administrator"
    )


def test_whoever_was_added_by_hand_beside_a_repository_can_be_removed() -> None:
    present = organization(ada="Admin", bob="Member")
    found = person_of(present, BOB, (), (), managed=True, entry_managed=False)
    assert (found.changeable, found.removable) == (False, True)
    assert [title.rpartition(" ")[2] for title, _ in found.manifests] == [
        "Admin",
        "Developer",
        "Auditor",
    ]


@pytest.mark.parametrize(
    ("actor", "ended", "removed", "where"),
    [
        (ADA, False, False, "/o/acme/members?seen=7"),
        (ADA, False, True, "/o/acme/members?seen=7"),
        (ADA, True, True, "/o/acme/members/person?user=a%26b%23%2F%3F&seen=7"),
        (ADA, True, False, "/o/acme/members/person?user=a%26b%23%2F%3F&seen=7"),
        ("a&b#/?", True, False, "/o/acme/members?seen=7"),
        ("a&b#/?", True, True, "/organizations?all"),
    ],
)
def test_a_change_leads_to_what_it_has_done(
    actor: str, where: str, *, ended: bool, removed: bool
) -> None:
    done = MembersChanged("7", (key("ci"),) if ended else ())
    assert page_after("acme", actor, "a&b#/?", done, removed=removed) == where
