"""Packages of others judge what an enclave of the service name tinfoil serves.

They are `tinfoil` of PyPI and `@tinfoilsh/verifier` of npm. Only their root certificates are
replaced, by those of the processor that stands in. The agent's own code makes the document.
"""

import gzip
import json
import re
import shutil
import subprocess
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import pytest

from tests.support.programs.foreign_packages import Language, foreign_packages, interpreter

pytestmark = pytest.mark.skipif(shutil.which("go") is None, reason="Go is not installed")

GUEST = Path("operator/guest")
DATA = Path("tests/data/tinfoil")
REFUSED = "verification failed|signature is invalid"
REPORT_DATA, MEASUREMENT, HOST_DATA = 0x50, 0x90, 0xC0
SIGNATURE = (0x2A0, 0x2E8)
"""First bytes of its two numbers; the client of npm ignores the last ones, which pad them."""


PROGRAMS: dict[Language, str] = {"python": "verify-client", "javascript": "verify-client.mjs"}


@pytest.fixture(scope="module", params=PROGRAMS)
def client(request: pytest.FixtureRequest) -> list[str]:
    """Return the command of a client."""
    if request.param == "javascript" and shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    place = foreign_packages(DATA, request.param)
    return [interpreter(place, request.param), str(place / PROGRAMS[request.param])]


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


def test_one_bit_of_key_measurement_or_signature_is_refused(
    client: list[str], served: dict[str, Any]
) -> None:
    document = json.loads(served["document"])
    places = [
        *(REPORT_DATA, REPORT_DATA + 31, REPORT_DATA + 32, REPORT_DATA + 63),
        *(MEASUREMENT, MEASUREMENT + 47, HOST_DATA, HOST_DATA + 31),
        *SIGNATURE,
    ]
    found = judged(client, served, {str(at): damaged(document, at) for at in places})
    assert found.keys() == {str(at) for at in places}
    for at, said in found.items():
        assert re.search(REFUSED, str(said)), f"byte {at}: {said}"


def test_with_its_own_roots_the_client_refuses(client: list[str], served: dict[str, Any]) -> None:
    document = json.loads(served["document"])
    (said,) = judged(client, served, {"honest": document}, own=False).values()
    assert re.search(REFUSED, str(said)), said
