"""What each role may do: one rule per operation (spec 30)."""

import re

import pytest

from cloister_api.auth.roles import RIGHTS, RULES, RoleRight, require, right_of
from cloister_api.errors import ApiError
from cloister_api.openapi.document import operations
from cloister_crds.kinds.organization import Role
from tests.support.clients.openapi_check import described

RULE_OF = {each: right for right, listed in RULES.items() for each in listed}
GUARDED = {
    f"{method.upper()} {path}"
    for path, method, operation in operations(described())
    if {"adminKey", "session"} & {name for each in operation["security"] for name in each}
}
"""Operations that need an admin key or a session, from the routes."""


@pytest.mark.spec("30.1")
def test_every_operation_has_one_rule() -> None:
    ruled = {re.sub(":path}", "}", each) for each in RULE_OF}
    assert ruled == GUARDED
    assert sum(map(len, RULES.values())) == len(RULE_OF)


@pytest.mark.spec("30.1")
@pytest.mark.parametrize("operation", sorted(RULE_OF))
def test_a_request_finds_its_rule(operation: str) -> None:
    method, path = operation.split(" ")
    found = right_of(method, re.sub(r"{[^}]*}", "a%20b", path))
    assert found is RULE_OF[operation]


@pytest.mark.spec("30.2")
@pytest.mark.parametrize("role", Role)
def test_a_role_does_what_its_rights_say(role: Role) -> None:
    for right in RoleRight:
        if right in RIGHTS[role]:
            require(role, right)
        else:
            with pytest.raises(ApiError, match=f"is {role}, and this needs the role Admin") as no:
                require(role, right)
            assert no.value.status == 403


def test_what_no_rule_names_is_for_nobody_to_change() -> None:
    assert right_of("HEAD", "/api/audit") is RoleRight.AUDIT
    assert right_of("GET", "/api/audit-of-others") is RoleRight.READ
    assert right_of("OPTIONS", "/api/containers") is RoleRight.ADMINISTER
    assert right_of("POST", "/api/containers/validate/") is RoleRight.ADMINISTER
