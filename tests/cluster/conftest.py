"""The order in which workers take the files of tests on a real node."""

import pytest

LONGEST = {"test_updates.py", "test_staging.py"}
"""Files that would be taken last, and take longest: one worker would wait for them."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have the longest files begun first."""
    items.sort(key=lambda item: item.path.name not in LONGEST)
