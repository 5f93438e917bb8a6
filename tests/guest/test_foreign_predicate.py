"""The package `tinfoil` of PyPI judges what an enclave of the service name tinfoil serves.

Only its root certificates are replaced, by those of the processor that stands in. The agent's own
code makes the document.
"""

import fcntl
import gzip
import hashlib
import json
import shutil
import subprocess
import sys
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import pytest

from dev.cluster.binaries import cache_folder

pytestmark = pytest.mark.skipif(shutil.which("go") is None, reason="Go is not installed")

GUEST = Path("operator/guest")
DATA = Path("tests/data/tinfoil")
REPORT_DATA, MEASUREMENT, HOST_DATA = 0x50, 0x90, 0xC0


@pytest.fixture(scope="module")
def client() -> list[str]:
    """Return the command of the client, in an environment made once from pinned hashes."""
    digest = hashlib.sha256()
    for file in sorted(DATA.iterdir()):
        digest.update(file.read_bytes())
    place = cache_folder() / "tinfoil-client" / digest.hexdigest()[:12]
    place.parent.mkdir(parents=True, exist_ok=True)
    with (place.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            scratch = place.with_suffix(".new")
            shutil.rmtree(scratch, ignore_errors=True)
            shutil.copytree(DATA, scratch)
            pip = ["venv/bin/python", "-m", "pip", "--disable-pip-version-check", "install", "-q"]
            hashes = ["--require-hashes", "--only-binary", ":all:", "-r", "requirements.txt"]
            for command in ([sys.executable, "-m", "venv", "venv"], [*pip, *hashes]):
                subprocess.run(command, cwd=scratch, check=True)
            scratch.rename(place)
    return [str(place / "venv" / "bin" / "python"), str(place / "verify-client")]


@pytest.fixture(scope="module")
def served() -> dict[str, Any]:
    """Return what the enclave serves, and the certificates of the processor's maker."""
    command = ["go", "run", "./testpredicate"]
    done = subprocess.run(command, cwd=GUEST, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def damaged(document: dict[str, str], at: int) -> dict[str, str]:
    """Return a document of which one bit of the report differs."""
    report = bytearray(gzip.decompress(b64decode(document["body"])))
    report[at] ^= 1
    return document | {"body": b64encode(gzip.compress(bytes(report))).decode()}


def judged(
    client: list[str], served: dict[str, Any], documents: dict[str, Any], *, own: bool = True
) -> Any:
    """Return what the client says of documents, with the roots of the tests or with its own."""
    roots = {name: served[name] if own else "" for name in ("ark", "ask")}
    order = roots | {"vcek": served["vcek"], "documents": documents}
    done = subprocess.run(
        client, input=json.dumps(order), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_client_accepts_it_and_finds_key_and_measurement(
    client: list[str], served: dict[str, Any]
) -> None:
    document = json.loads(served["document"])
    assert document["format"] == "https://tinfoil.sh/predicate/sev-snp-guest/v2"
    assert document.keys() == {"format", "body"}
    found = judged(client, served, {"honest": document})
    assert found == {"honest": ["09" * 48, served["tls"], served["hpke"]]}


def test_one_bit_of_key_or_measurement_is_refused(
    client: list[str], served: dict[str, Any]
) -> None:
    document = json.loads(served["document"])
    places = [
        *(REPORT_DATA, REPORT_DATA + 31, REPORT_DATA + 32, REPORT_DATA + 63),
        *(MEASUREMENT, MEASUREMENT + 47, HOST_DATA, HOST_DATA + 31),
    ]
    found = judged(client, served, {str(at): damaged(document, at) for at in places})
    assert found.keys() == {str(at) for at in places}
    for at, said in found.items():
        assert "verification failed" in str(said), f"byte {at}: {said}"


def test_with_its_own_roots_the_client_refuses(client: list[str], served: dict[str, Any]) -> None:
    document = json.loads(served["document"])
    (said,) = judged(client, served, {"honest": document}, own=False).values()
    assert "verification failed" in str(said)
