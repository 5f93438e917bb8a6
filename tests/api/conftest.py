"""Every test against an API server closes what it opens."""

from tests.support.garbage import pytest_collection_finish, pytest_runtest_teardown

__all__ = ["pytest_collection_finish", "pytest_runtest_teardown"]
