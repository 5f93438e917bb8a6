"""A shim with a short list of paths and origins, shared by the tests of a module."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers.shim import RunningShim, running_shim

PATHS = ("/", "/exact", "/v1/user/*", "/v1/chat*", "/lit*eral", "/{id}", "/stream", "/ws")
ORIGINS = ("https://app.example", "https://other.example:8443")


@pytest.fixture(scope="module")
def shim() -> Iterator[RunningShim]:
    with (
        tempfile.TemporaryDirectory(prefix="shim") as folder,
        running_shim(Path(folder), paths=PATHS, origins=ORIGINS) as running,
    ):
        yield running


@pytest.fixture(scope="module")
def open_shim() -> Iterator[RunningShim]:
    with (
        tempfile.TemporaryDirectory(prefix="shim") as folder,
        running_shim(Path(folder), paths=("/*",)) as running,
    ):
        yield running
