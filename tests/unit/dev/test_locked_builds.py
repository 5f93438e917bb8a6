"""What installs and builds the project is named by version and hash."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_uv_is_installed_by_hash() -> None:
    makefile = (ROOT / "Makefile").read_text()
    version = re.search(r"^UV_VERSION := (\S+)$", makefile, re.MULTILINE)
    requirements = (ROOT / "dev" / "uv-requirements.txt").read_text()
    assert version
    assert "--require-hashes" in makefile
    assert re.findall(r"^(\S+==\S+) \\$", requirements, re.MULTILINE) == [f"uv=={version[1]}"]
    assert requirements.count("--hash=sha256:") > 1


def test_the_build_backend_has_a_version_and_hashes(project: dict[str, Any]) -> None:
    settings = project["tool"]["uv"]
    constraints = {
        each["requirement"]: each["hashes"] for each in settings["build-constraint-dependencies"]
    }
    assert settings["require-build-hashes"] is True
    assert set(project["build-system"]["requires"]) <= set(constraints)
    assert all("==" in name and hashes for name, hashes in constraints.items())
    locked = tomllib.loads((ROOT / "uv.lock").read_text())["manifest"]["build-constraints"]
    assert {f"{each['name']}{each['specifier']}" for each in locked} == set(constraints)


def test_what_users_install_has_upper_bounds(project: dict[str, Any]) -> None:
    named = list(project["project"]["dependencies"])
    for extra in project["project"]["optional-dependencies"].values():
        named += extra
    assert named
    assert not [each for each in named if "<" not in each]
