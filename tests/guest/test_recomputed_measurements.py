"""What ``cloister-verify`` computes is what the operator measures: for every valid file and Host.

The program reads two YAML files by itself, and has to agree with `cloister_crds.measurement`.
"""

import base64
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from cloister_crds.config import Rules, parse
from cloister_crds.kinds import Host
from cloister_crds.measurement import PlatformImages, measure
from tests.support.programs.attestation import report_data
from tests.support.programs.verifier import GUEST, SHIM, verify

pytestmark = pytest.mark.skipif(shutil.which("go") is None, reason="Go is not installed")

DATA = Path(__file__).parents[1] / "data"
FILES = sorted((DATA / "config" / "valid").glob("*.yml"))
DOCUMENTS = {"agent.json": "{}", "pod.json": '{"containers":[]}'}
PARTS = ("version", "service", "configDigest", "containers", "gpus", "debug")
HOSTS: dict[str, dict[str, Any]] = {
    "default": {},
    "shared network": {"networkIsolation": "Pod", "cpuType": "x", "default": True},
    "plugin": {"gpu": {"resource": "nvidia.com/gpu", "counts": [1, 2, 4, 8]}},
    "driver": {"gpu": {"deviceClass": "gpu.nvidia.com"}, "sizing": {"overheadMemoryMB": 0}},
    "node": {
        "tee": "TDX",
        "teeUnit": "Node",
        "attestationService": "unix:///run/attestation/api.sock",
    },
    "machine": {
        "tee": "SNP",
        "teeUnit": "Pod",
        "runtimeClassName": "kata-qemu-snp",
        "sizing": {"overheadCpuMilli": 250, "overheadMemoryMB": 512, "ephemeralStorageMB": 64},
        "initdata": [
            {"name": "aa.toml", "content": "a = 'ä\u2028'\n"},
            {"name": "b", "content": ""},
        ],
    },
    "own rules": {
        "tee": "SNP",
        "teeUnit": "Pod",
        "runtimeClassName": "kata",
        "initdata": [{"name": "policy.rego", "content": "package agent_policy\n"}],
    },
}


def manifest(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a Host as kubectl prints it."""
    head = {"apiVersion": "cloister.dev/v1alpha1", "kind": "Host", "metadata": {"name": "x"}}
    return {**head, "spec": spec, "status": {"conditions": []}}


def compared(
    folder: Path, file: Path, host: dict[str, Any], gpus: int | None
) -> tuple[list[str], str]:
    """Return the parts that the program found equal, and what it refused."""
    raw = file.read_bytes()
    config = parse(raw, rules=Rules()).config
    assert config is not None, file
    measured = measure(
        config,
        f"sha256:{hashlib.sha256(raw).hexdigest()}",
        host=Host.read(host).spec,
        images=PlatformImages(guest=GUEST, shim=SHIM),
        documents=DOCUMENTS,
        service="cloister",
        debug=False,
        gpus=gpus,
    )
    bundle = json.loads((DATA / "attestation" / "base-none.json").read_text())
    document = json.loads(base64.b64decode(bundle["document"]))
    document["measurement"] = measured.text.decode()
    digest = hashlib.sha256(measured.text).hexdigest()
    document["cpu_evidence"]["endorsed"]["measurement"] = digest
    challenge = document["challenge"]
    challenge["report_data"] = report_data(document, bytes.fromhex(challenge["nonce"]))
    bundle["document"] = base64.b64encode(json.dumps(document).encode()).decode()
    (folder / "bundle.json").write_text(json.dumps(bundle))
    (folder / "host.yml").write_text(yaml.safe_dump(host, allow_unicode=True))
    (folder / "documents.json").write_text(json.dumps(DOCUMENTS))
    found = verify(
        *("--json", "--from-bundle", folder / "bundle.json", "--file", file),
        *("--host-profile", folder / "host.yml", "--documents", folder / "documents.json"),
        *("--guest-image", GUEST, "--shim-image", SHIM),
        *(() if gpus is None else ("--gpus", str(gpus))),
    )
    parts = [
        each["step"].removeprefix("measurement: ")
        for each in found.data["steps"]
        if each["step"].startswith("measurement: ") and each["result"] == "passed"
    ]
    return parts, found.data["failure"]["problem"]


@pytest.mark.parametrize("file", FILES, ids=lambda each: each.stem)
def test_every_file_gives_the_operators_measurement(file: Path, tmp_path: Path) -> None:
    parts, problem = compared(tmp_path, file, manifest(HOSTS["machine"]), None)
    assert parts == [*PARTS, "host", "documents", "guestImage", "shimImage"], problem


@pytest.mark.parametrize("gpus", [None, 0, 8])
@pytest.mark.parametrize("host", HOSTS)
def test_every_host_gives_the_operators_measurement(
    host: str, gpus: int | None, tmp_path: Path
) -> None:
    parts, problem = compared(tmp_path, FILES[0], manifest(HOSTS[host]), gpus)
    assert parts == [*PARTS, "host", "documents", "guestImage", "shimImage"], problem
