"""``cloister-verify``, and the enclave on a test processor that it is pointed at."""

import contextlib
import hashlib
import json
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cloister_crds.config import Rules, parse
from cloister_crds.kinds import Host
from cloister_crds.measurement import PlatformImages, measure
from dev.cluster.guest import guest_binary

__all__ = [
    "GUEST",
    "SHIM",
    "TestEnclave",
    "Verdict",
    "initdata_of",
    "running_enclave",
    "verifier",
    "verify",
]

GUEST = "registry.example/guest@sha256:" + "1" * 64
SHIM = "registry.example/shim@sha256:" + "2" * 64
DOCUMENTS = {"agent.json": '{"service":"cloister"}', "pod.json": '{"containers":[]}'}
HOST = {
    "apiVersion": "cloister.dev/v1alpha1",
    "kind": "Host",
    "metadata": {"name": "snp", "uid": "x"},
    "spec": {
        "tee": "SNP",
        "teeUnit": "Pod",
        "runtimeClassName": "kata-qemu-snp",
        "gpu": {"resource": "nvidia.com/gpu"},
        "sizing": {"overheadCpuMilli": 250},
        "initdata": [{"name": "aa.toml", "content": "token = 'ü\u2028'\n"}],
    },
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the program said."""

    code: int
    out: str
    error: str

    @property
    def data(self) -> dict[str, Any]:
        """Its output as JSON."""
        read: dict[str, Any] = json.loads(self.out)
        return read


@dataclass(frozen=True, slots=True)
class TestEnclave:
    """A running enclave."""

    __test__ = False
    process: "subprocess.Popen[str]"
    host: str
    launch: str
    roots: Path

    def tell(self, line: str) -> None:
        """Have it obey a line."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(line, file=self.process.stdin, flush=True)
        assert self.process.stdout.readline() == "done\n"

    def trusted(self) -> tuple[str, ...]:
        """Return the options of a client that trusts this processor."""
        return ("--platform", self.launch, "--insecure-development-root", str(self.roots))


def verifier() -> Path:
    """Return the program, built once."""
    return guest_binary("cloister-verify", "./cmd/cloister-verify")


def verify(*words: str | Path, environment: Mapping[str, str] | None = None) -> Verdict:
    """Run the program to its end."""
    done = subprocess.run(
        [verifier(), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=environment,
    )
    return Verdict(done.returncode, done.stdout, done.stderr)


def initdata_of(file: bytes, folder: Path) -> Path:
    """Write the initdata of the enclave of a file as the operator makes it, and all inputs.

    Parameters
    ----------
    folder
        Where ``host.yml`` and ``documents.json`` go too.
    """
    (folder / "host.yml").write_text(yaml.safe_dump(HOST, allow_unicode=True))
    (folder / "documents.json").write_text(json.dumps(DOCUMENTS))
    config = parse(file, rules=Rules(release=True)).config
    assert config is not None
    measured = measure(
        config,
        f"sha256:{hashlib.sha256(file).hexdigest()}",
        host=Host.read(HOST).spec,
        images=PlatformImages(guest=GUEST, shim=SHIM),
        documents=DOCUMENTS,
        service="cloister",
        debug=False,
        gpus=None,
    )
    assert measured.initdata is not None
    path = folder / f"initdata-{measured.digest[-8:]}.toml"
    path.write_bytes(measured.initdata.text)
    return path


@contextlib.contextmanager
def running_enclave(initdata: Path, folder: Path) -> Iterator[TestEnclave]:
    """Run an enclave with this initdata until the block ends."""
    roots = folder / "roots.pem"
    program = guest_binary("testenclave", "./testenclave")
    command: list[str | Path] = [program, "-initdata", initdata, "-roots", roots]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            said = json.loads(process.stdout.readline())
            yield TestEnclave(process, said["host"], said["launch"], roots)
        finally:
            process.kill()
