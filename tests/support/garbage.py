"""What a test leaves open is that test's error, not that of whichever runs when it is collected.

A transport, a socket or a file that nobody closed warns when the garbage collector finds it, in
the middle of any later test of the same worker. So it collects where such things are made: after
each asynchronous test, and after the last test of each module for all others.

What outlives a module (modules, caches, what pytest remembers of each test) is set aside then, or
each collection would look through all of it again; the last one of the worker looks at everything.
"""

import gc
import warnings
from collections.abc import Generator

import pytest

__all__ = ["collect_after", "left_open", "pytest_collection_finish", "pytest_runtest_teardown"]


def left_open() -> list[str]:
    """Collect the garbage, and return what warns of having been left open."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", ResourceWarning)
        gc.collect()
    return [str(each.message) for each in seen if issubclass(each.category, ResourceWarning)]


def collect_after(item: pytest.Item, following: pytest.Item | None) -> bool:
    """Return whether to collect after a test: each time would cost a minute of the unit tests."""
    return item.get_closest_marker("asyncio") is not None or _ends_module(item, following)


def _ends_module(item: pytest.Item, following: pytest.Item | None) -> bool:
    """Return whether a test is the last one of its module that runs here."""
    return following is None or following.path != item.path


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Keep the collector from looking at modules and tests again each time."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, None, None]:
    """Fail a test that left something open, once its fixtures are torn down."""
    yield
    if nextitem is None:
        gc.unfreeze()
    if collect_after(item, nextitem) and (left := left_open()):
        pytest.fail(
            "left open by this test, by its module (if the test is not asynchronous), or by any\n"
            "before (if it is the last one of all):\n" + "\n".join(left),
            pytrace=False,
        )
    if _ends_module(item, nextitem):
        gc.freeze()
