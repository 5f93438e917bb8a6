"""Whole files and their exact verdicts: our own everywhere, public ones where they are at hand.

``CLOISTER_UPDATE_TEST_DATA=1`` writes the verdicts again; each change is to be read against the
file before it is committed.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from cloister_crds.config import ParsedConfig, parse
from cloister_crds.kinds.host_devices import Gpu
from cloister_crds.lifecycle.admission.host_requirements import gpu_problems
from tests.support.builders.resources import host_of

ROOT = Path(__file__).parents[4]
DATA = ROOT / "tests/data"
OWN = DATA / "config"
CORPUS = Path(os.environ.get("CLOISTER_CORPUS", ROOT / "../shared/corpus"))
UPDATE = os.environ.get("CLOISTER_UPDATE_TEST_DATA") == "1"


def lines_of(parsed: ParsedConfig) -> list[str]:
    """Write each problem in a line: place, severity, field, code."""
    return [
        f"{one.line}:{one.column} {one.severity} {one.field} {one.code}" for one in parsed.problems
    ]


def verdict_of(path: Path) -> dict[str, Any]:
    """Judge a file."""
    parsed = parse(path.read_bytes())
    return {"valid": parsed.valid, "problems": lines_of(parsed)}


def pinned(name: str, files: dict[str, Path]) -> dict[str, Any]:
    """Provide the pinned verdicts of these files, after writing them when that is requested."""
    path = DATA / name
    if UPDATE:
        verdicts = {key: verdict_of(file) for key, file in files.items()}
        path.write_text(json.dumps(verdicts, indent=1, ensure_ascii=False) + "\n", "utf-8")
    loaded: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return loaded


def own_files() -> dict[str, Path]:
    """Find our own files by their names."""
    return {str(path.relative_to(OWN)): path for path in sorted(OWN.glob("*/*.yml"))}


def corpus_files() -> dict[str, Path]:
    """Find the public files by the digest of their bytes: whose they are is not ours to list."""
    paths = sorted(CORPUS.glob("*.yml"))
    return {hashlib.sha256(path.read_bytes()).hexdigest(): path for path in paths}


@pytest.mark.spec("40.7", "40.9")
@pytest.mark.parametrize("name", own_files())
def test_own_file(name: str) -> None:
    files = own_files()
    assert verdict_of(files[name]) == pinned("config/verdicts.json", files)[name]


def test_own_files_lie_where_their_verdict_says() -> None:
    verdicts = pinned("config/verdicts.json", own_files())
    assert set(verdicts) == set(own_files())
    assert {name: one["valid"] for name, one in verdicts.items()} == {
        name: name.startswith("valid/") for name in verdicts
    }


@pytest.mark.spec("40.9")
def test_public_files() -> None:
    files = corpus_files()
    if not files:
        pytest.skip(f"no public files in {CORPUS.name}: set CLOISTER_CORPUS to their folder")
    verdicts = pinned("corpus.json", files)
    assert len(verdicts) == 32
    assert set(files) == set(verdicts)
    wrong = {
        path.name: verdict_of(path)
        for digest, path in files.items()
        if verdict_of(path) != verdicts[digest]
    }
    assert wrong == {}


@pytest.mark.spec("42.32")
def test_public_files_whose_containers_share_gpus_run_where_a_driver_shares_them() -> None:
    files = corpus_files()
    if not files:
        pytest.skip(f"no public files in {CORPUS.name}: set CLOISTER_CORPUS to their folder")
    configs = [parse(path.read_bytes()).config for path in files.values()]
    plugin = host_of(gpu=Gpu(resource="nvidia.com/gpu", counts=tuple(range(1, 9))))
    driver = host_of(gpu=Gpu(device_class="gpu.nvidia.com", counts=tuple(range(1, 9))))
    refused = [one for one in configs if one and list(gpu_problems(one, plugin, None))]
    assert len(refused) == 2
    assert [list(gpu_problems(one, driver, None)) for one in configs if one] == [
        [] for one in configs if one
    ]
