"""Who may read a file with a secret: the owner, and a group where root owns the file."""

import os

import pytest

from cloister_clients.settings import is_open_to_others

ROOT, USER = 0, 65532


def file(mode: int, owner: int) -> os.stat_result:
    return os.stat_result((0o100000 | mode, 0, 0, 1, owner, USER, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("mode", "owner", "user", "is_open"),
    [
        (0o600, USER, USER, False),
        (0o640, USER, USER, True),
        (0o604, USER, USER, True),
        (0o600, ROOT, ROOT, False),
        (0o640, ROOT, ROOT, True),
        # A Secret in a Pod: owned by root, for the group of the Pod.
        (0o440, ROOT, USER, False),
        (0o640, ROOT, USER, False),
        (0o660, ROOT, USER, True),
        (0o650, ROOT, USER, True),
        (0o444, ROOT, USER, True),
        # Somebody else's file is not root's.
        (0o640, 1000, USER, True),
    ],
)
def test_a_group_may_read_what_root_gave_it(
    *, mode: int, owner: int, user: int, is_open: bool
) -> None:
    assert is_open_to_others(file(mode, owner), user) is is_open
