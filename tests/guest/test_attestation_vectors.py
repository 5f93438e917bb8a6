"""``cloister-verify`` as a process reaches the verdict of each vector of tests/data/attestation.

The vectors are applied here as their README says, so that this is also how others read them.
"""

import base64
import copy
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.attestation_vectors import BASES, CLIENTS, FOLDER, VECTORS, applied
from tests.support.programs.verifier import verify

pytestmark = [
    pytest.mark.skipif(shutil.which("go") is None, reason="Go is not installed"),
    pytest.mark.timeout(900),
]


def options(vector: dict[str, Any], bundle: dict[str, Any]) -> list[str]:
    """Return the options of the vector's client, and let the bundle be what it saw."""
    known = CLIENTS[vector["base"]] | vector.get("client", {})
    bundle["nonce"] = known["nonce"]
    bundle["certificate"] = known.get("certificate", bundle["certificate"])
    words = ["--measurement", known["measurement"], "--at", known["time"]]
    if known["platform"]:
        words += ["--platform", ",".join(known["platform"])]
    if "minimum_tcb" in known:
        words += ["--minimum-tcb", known["minimum_tcb"]]
    if known.get("roots") != "makers":
        words += ["--insecure-development-root", str(FOLDER / "roots.pem")]
    return words


@pytest.mark.parametrize("vector", VECTORS, ids=[each["name"] for each in VECTORS])
def test_the_program_reaches_the_verdict(vector: dict[str, Any], tmp_path: Path) -> None:
    bundle = copy.deepcopy(BASES[vector["base"]])
    bundle["document"] = base64.b64encode(
        applied(vector, base64.b64decode(bundle["document"]))
    ).decode()
    words = options(vector, bundle)
    path = tmp_path / "bundle.json"
    path.write_text(json.dumps(bundle))
    found = verify("--json", "--from-bundle", path, *words)
    wanted = vector["verdict"]
    assert (found.code, found.data["verified"]) == (wanted["code"], wanted["verified"]), found.out
    has_key = vector["name"].endswith("a key for bodies")
    assert found.data["hpke_x25519"] == ("a5" * 32 if has_key else "")
    if not wanted["verified"]:
        assert found.data["failure"]["step"] == wanted["step"]
        assert found.data["failure"]["remedy"]


def test_there_are_as_many_as_promised() -> None:
    names = [each["name"] for each in VECTORS]
    assert len(set(names)) == len(names) >= 120
    codes = {each["verdict"]["code"] for each in VECTORS}
    assert {0, 11, 12, 13, 20, 21, 22, 23, 24, 25, 26, 27} <= codes
