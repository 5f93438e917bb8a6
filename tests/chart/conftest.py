"""Helm without a cluster, and the programs that tests of the chart need."""

from pathlib import Path

import pytest

from tests.support.programs.helm import FULL, LEAST, Helm

Rendered = dict[tuple[str, str, str], dict[str, object]]


@pytest.fixture
def helm(tmp_path: Path) -> Helm:
    """Provide Helm that sees no cluster."""
    return Helm(tmp_path)


@pytest.fixture(scope="session")
def least(tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    """Provide the rendering of the least values."""
    values = LEAST | {"keys": {"existingSecret": "own-keys"}}
    return Helm(tmp_path_factory.mktemp("least")).rendered(values)


@pytest.fixture(scope="session")
def full(tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    """Provide the rendering of many values, in another namespace."""
    return Helm(tmp_path_factory.mktemp("full"), namespace="elsewhere").rendered(FULL)
