"""Static files: what others wrote is what they published, and ours is small."""

import gzip
import hashlib
from importlib.resources import files

import pytest

STATIC = files("cloister_api.dashboard").joinpath("static")
PUBLISHED = {
    # idiomorph 0.8.0 (Zero-Clause BSD), dist/idiomorph.min.js of its npm package.
    "idiomorph.min.js": "4cbd535caf7663a51eda9bce6595371c384fc430d54b8d414e29a61167f19f96",
}
"""SHA-256 of files of others."""
MOST_SCRIPT, MOST_STYLE = 24_000, 10_000
"""Budget of all scripts and of all styles, compressed, in bytes."""


@pytest.mark.parametrize(("name", "digest"), list(PUBLISHED.items()))
def test_a_file_of_others_is_the_published_one(name: str, digest: str) -> None:
    assert hashlib.sha256(STATIC.joinpath(name).read_bytes()).hexdigest() == digest


@pytest.mark.parametrize(("ending", "most"), [(".js", MOST_SCRIPT), (".css", MOST_STYLE)])
def test_files_stay_within_their_budget(ending: str, most: int) -> None:
    found = [each for each in STATIC.iterdir() if each.name.endswith(ending)]
    assert found
    assert sum(len(gzip.compress(each.read_bytes())) for each in found) < most


def test_our_scripts_need_no_evaluation() -> None:
    for each in STATIC.iterdir():
        if each.name.endswith(".js") and each.name not in PUBLISHED:
            text = each.read_text()
            assert not [word for word in ("eval(", "innerHTML =", "Function(") if word in text]
