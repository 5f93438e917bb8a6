"""What members may do through the API."""

import pytest

from cloister_api.dashboard.session_api import is_for_admins


@pytest.mark.parametrize(
    ("method", "path", "refused"),
    [
        ("GET", "/api/containers", False),
        ("HEAD", "/api/containers", False),
        ("GET", "/api/members", False),
        ("GET", "/api/billing/usage", False),
        ("GET", "/api/audit-of-others", False),
        ("POST", "/api/containers/validate", True),
        ("DELETE", "/api/secrets/A", True),
        ("OPTIONS", "/api/containers", True),
        ("GET", "/api/audit", True),
        ("HEAD", "/api/admin-keys", True),
        ("GET", "/api/admin-keys/7", True),
        ("GET", "/api/billing/transactions", True),
    ],
)
def test_members_read_what_everybody_may_see(method: str, path: str, *, refused: bool) -> None:
    assert is_for_admins(method, path) is refused
