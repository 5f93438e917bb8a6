"""``cloister-verify`` against a TLS server with evidence of a test processor.

The measurement is the operator's own (`cloister_crds.measurement`), the repository is served by
git, and the clients of the proxy are curl and httpx.
"""

import base64
import hashlib
import json
import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from tests.support.programs.verifier import (
    GUEST,
    SHIM,
    TestEnclave,
    initdata_of,
    running_enclave,
    verifier,
    verify,
)
from tests.support.servers.git import Repositories, git_server

pytestmark = pytest.mark.skipif(shutil.which("go") is None, reason="Go is not installed")

FILE = (Path(__file__).parents[1] / "data/config/valid/minimal.yml").read_bytes()
OTHER = FILE.replace(b"cpus: 2", b"cpus: 4")
IMAGES = ("--guest-image", GUEST, "--shim-image", SHIM)


@dataclass(frozen=True, slots=True)
class Scene:
    """An enclave of a release, and what its client has."""

    folder: Path
    enclave: TestEnclave
    release: tuple[str, ...]

    @property
    def all_inputs(self) -> tuple[str, ...]:
        """Options that leave nothing to the operator's word."""
        folder = self.folder
        return (
            *("--host-profile", str(folder / "host.yml")),
            *("--documents", str(folder / "documents.json")),
            *IMAGES,
        )

    def options(self, *more: str) -> list[str]:
        """Return the options of a client that trusts the processor and the release."""
        return [*self.enclave.trusted(), *self.release, *more]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Run an enclave of acme/web v1, and git with two releases of it."""
    folder = tmp_path_factory.mktemp("scene")
    repository = Repositories(folder / "git").create("acme/web")
    repository.release("v1", FILE)
    repository.release("v2", OTHER)
    source = folder / "source.yml"
    with (
        git_server(folder / "git") as git,
        running_enclave(initdata_of(FILE, folder), folder) as enclave,
    ):
        at = httpx.URL(git.base)
        source.write_text(
            yaml.safe_dump({"kind": "git", "base": git.base, "plainHttp": [f"{at.host}:{at.port}"]})
        )
        yield Scene(folder, enclave, ("--repo", "acme/web", "--tag", "v1", "--source", str(source)))


def steps(data: dict[str, Any]) -> dict[str, str]:
    """Return what each step compared."""
    return {each["step"]: each["compared"] for each in data["steps"]}


def test_an_enclave_of_a_release_is_verified(scene: Scene) -> None:
    found = verify(scene.enclave.host, "--json", "--strict", *scene.options(*scene.all_inputs))
    assert found.code == 0, found.out
    data = found.data
    assert (data["verified"], data["on_operators_word"]) == (True, [])
    assert data["release"].startswith("acme/web v1 (commit ")
    compared = steps(data)
    for part in ("configDigest", "containers", "host", "documents", "guestImage", "gpus"):
        assert f"measurement: {part}" in compared
    for step in ("signature", "revocation", "launch measurement", "TLS key", "initdata"):
        assert step in compared
    assert len(data["insecure"]) == 1


def test_gpus_that_nobody_verified_are_named(tmp_path: Path) -> None:
    file = tmp_path / "service-config.yml"
    file.write_bytes(FILE.replace(b"cpus: 2", b"cpus: 2\ngpus: 1"))
    with running_enclave(initdata_of(file.read_bytes(), tmp_path), tmp_path) as enclave:
        found = verify(enclave.host, "--json", *enclave.trusted(), "--file", str(file))
    assert found.code == 0, found.out
    assert any("1 GPUs, and no evidence of them" in each for each in found.data["notes"])


def test_what_rests_on_the_operators_word_is_named(scene: Scene) -> None:
    word = ["host", "documents", "guestImage", "shimImage"]
    found = verify(scene.enclave.host, "--json", *scene.options())
    assert (found.code, found.data["on_operators_word"]) == (0, word)
    refused = verify(scene.enclave.host, "--strict", *scene.options())
    assert (refused.code, refused.out) == (28, "")
    assert all(part in refused.error for part in word)


def test_the_images_of_a_release_count_by_their_digests(scene: Scene, tmp_path: Path) -> None:
    lock = tmp_path / "images.lock"
    guest, shim = (image.partition("@")[2] for image in (GUEST, SHIM))
    for shown, code in ((shim, 0), (guest, 26)):
        lock.write_text(f'[digests]\ncloister-guest = "{guest}"\ncloister-shim = "{shown}"\n')
        found = verify(scene.enclave.host, *scene.options("--images-lock", str(lock)))
        assert found.code == code, found.error
    assert "measurement: shimImage: " in found.error


def test_another_release_is_refused_by_the_part_that_differs(scene: Scene) -> None:
    words = ["v2" if each == "v1" else each for each in scene.options(*scene.all_inputs)]
    found = verify(scene.enclave.host, "--json", *words)
    failure = found.data["failure"]
    assert (found.code, failure["step"]) == (26, "measurement")
    assert failure["problem"].startswith("configDigest: the enclave reports")


@pytest.mark.parametrize(
    ("path", "value", "part"),
    [
        (("spec", "sizing", "overheadCpuMilli"), 1, "host.sizing.overheadCpuMilli"),
        (("spec", "runtimeClassName"), "kata", "host.runtimeClassName"),
        (("spec", "networkIsolation"), "Pod", "host.networkIsolation"),
        (("spec", "initdata"), [], "host.initdata.aa.toml"),
    ],
)
def test_another_host_is_refused(
    scene: Scene, tmp_path: Path, path: tuple[str, ...], value: Any, part: str
) -> None:
    host = yaml.safe_load((scene.folder / "host.yml").read_text())
    holder = host
    for name in path[:-1]:
        holder = holder[name]
    holder[path[-1]] = value
    changed = tmp_path / "host.yml"
    changed.write_text(yaml.safe_dump(host))
    found = verify(scene.enclave.host, *scene.options("--host-profile", str(changed)))
    assert found.code == 26
    assert f"measurement: {part}: " in found.error


def test_a_missing_tag_is_another_class_than_a_refusal(scene: Scene) -> None:
    words = ["v9" if each == "v1" else each for each in scene.options()]
    found = verify(scene.enclave.host, *words)
    assert found.code == 14
    assert found.error.startswith("configuration file: ")


def test_the_makers_did_not_sign_a_test_processor(scene: Scene) -> None:
    words = [*("--platform", scene.enclave.launch), *scene.release]
    assert verify(scene.enclave.host, *words).code == 20


def test_documents_are_made_by_the_program_cloister(scene: Scene, tmp_path: Path) -> None:
    """A stand-in for the program, since the real one would ask a registry for the images."""
    program = tmp_path / "cloister"
    program.write_text(
        f'#!/bin/sh\necho "$@" > {tmp_path}/words\ncat {scene.folder}/documents.json\n'
    )
    program.chmod(0o755)
    host = str(scene.folder / "host.yml")
    more = ("--settings", "public.yml", "--host-profile", host, *IMAGES, "--strict")
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    found = verify(scene.enclave.host, *scene.options(*more), environment={**os.environ, **path})
    assert found.code == 0, found.error
    words = (tmp_path / "words").read_text().split()
    assert (words[0], words[2:]) == ("documents", ["--host", host, "--settings", "public.yml"])
    program.write_text("#!/bin/sh\necho no >&2\nexit 1\n")
    found = verify(scene.enclave.host, *scene.options(*more), environment={**os.environ, **path})
    assert (found.code, "no" in found.error) == (2, True)


def test_a_bundle_has_the_same_verdict_without_network(scene: Scene, tmp_path: Path) -> None:
    kept = tmp_path / "bundle.json"
    words = scene.options(*scene.all_inputs)
    live = verify(scene.enclave.host, "--json", "--bundle", kept, *words)
    assert live.code == 0
    alone: list[str | Path] = ["--json", "--from-bundle", kept, *scene.enclave.trusted(), *IMAGES]
    again = verify(*alone)
    assert again.code == 0, again.out
    same = ("verified", "failure", "on_operators_word", "host", "release", "measurement")
    assert {name: again.data[name] for name in same} == {name: live.data[name] for name in same}
    first, second = steps(live.data), steps(again.data)
    assert first.keys() == second.keys()
    assert live.data["on_bundle_makers_word"] == []
    assert verify(*alone, "--at", "2031-01-01T00:00:00Z").code == 21
    (tmp_path / "other.yml").write_bytes(OTHER)
    assert verify(*alone, "--file", tmp_path / "other.yml").code == 26
    said = verify(*alone[1:])
    assert "verified: the enclave that the bundle calls " in said.out
    assert "taken from the word of the bundle's author: that the document is" in said.error
    spoilt = {"nonce": "00" * 32, "format": "x", "more": 1, "document": "", "service": "other"}
    for field, value in spoilt.items():
        spoiled = tmp_path / "spoiled.json"
        spoiled.write_text(json.dumps(json.loads(kept.read_text()) | {field: value}))
        assert verify("--from-bundle", spoiled, *alone[3:]).code in {2, 24}


def test_strict_believes_nothing_that_a_bundle_alone_says(scene: Scene, tmp_path: Path) -> None:
    kept, nonce = tmp_path / "bundle.json", secrets.token_hex(32)
    words = scene.options(*scene.all_inputs)
    live = verify(scene.enclave.host, "--json", "--bundle", kept, "--nonce", nonce, *words)
    assert (live.code, "only who chose it" in " ".join(live.data["notes"])) == (0, True)
    bundle = json.loads(kept.read_text())
    certificate = x509.load_der_x509_certificate(base64.b64decode(bundle["certificate"]))
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    key = certificate.public_key().public_bytes(serialization.Encoding.DER, form)
    (tmp_path / "own.yml").write_bytes(base64.b64decode(bundle["config_file"]))
    known: dict[str, str | Path] = {
        "--nonce": nonce,
        "--tls-key": hashlib.sha256(key).hexdigest(),
        "--at": "now",
        "--file": tmp_path / "own.yml",
        "--host-profile": scene.folder / "host.yml",
        "--documents": scene.folder / "documents.json",
    }
    alone: list[str | Path] = ["--json", "--strict", "--from-bundle", kept]
    alone += [*scene.enclave.trusted(), *IMAGES]
    found = verify(*alone, *chain.from_iterable(known.items()))
    assert (found.code, found.data["on_bundle_makers_word"]) == (0, []), found.out
    for option in known:
        others = {name: value for name, value in known.items() if name != option}
        found = verify(*alone, *chain.from_iterable(others.items()))
        (taken,) = found.data["on_bundle_makers_word"]
        assert (found.code, found.data["failure"]["step"]) == (28, "bundle's word")
        assert option in taken
        assert taken in found.data["failure"]["problem"]
    for option, code in {"--nonce": 24, "--tls-key": 23}.items():
        found = verify(*alone, *chain.from_iterable((known | {option: "5a" * 32}).items()))
        assert found.code == code, found.out


@contextmanager
def proxied(scene: Scene, *more: str) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """Run the proxy and return its address."""
    command: list[str | Path] = [verifier(), "proxy", scene.enclave.host, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        [*command, *scene.options(*more)], stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            said = []
            for line in process.stderr:
                said.append(line)
                if line.startswith("serving "):
                    break
            else:
                pytest.fail("".join(said))
            yield line.split()[1], process
        finally:
            process.kill()


def test_curl_and_httpx_speak_to_the_enclave_through_the_proxy(scene: Scene) -> None:
    with proxied(scene) as (address, process):
        curl = [
            "curl",
            "--silent",
            "--show-error",
            "--fail",
            "--data",
            "body",
            f"{address}echo?a=b",
        ]
        done = subprocess.run(curl, capture_output=True, text=True, check=True)
        wanted = f"POST {scene.enclave.host} /echo?a=b body"
        assert done.stdout == wanted
        with httpx.Client(base_url=address, timeout=60) as client:
            for _ in range(3):
                assert client.post("echo?a=b", content="body").text == wanted
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_a_changed_enclave_cuts_a_stream(scene: Scene) -> None:
    with proxied(scene, "--recheck", "1s") as (address, _), httpx.Client(timeout=60) as client:
        with client.stream("GET", f"{address}stream") as response:
            lines = response.iter_lines()
            assert next(lines) == "first"
            scene.enclave.tell(f"initdata {initdata_of(OTHER, scene.folder)}")
            try:
                with pytest.raises(httpx.RemoteProtocolError):
                    list(lines)
                refused = client.get(f"{address}echo")
            finally:
                scene.enclave.tell(f"initdata {initdata_of(FILE, scene.folder)}")
        assert refused.status_code == 502
        assert refused.headers["content-type"] == "application/problem+json"
        body = refused.json()
        assert (body["code"], body["step"], body["status"]) == (26, "measurement", 502)
        assert body["detail"].startswith("configDigest")
        assert client.get(f"{address}echo").status_code == 200


def test_evidence_that_is_not_signed_stops_requests(scene: Scene) -> None:
    with (
        proxied(scene, "--recheck", "1s") as (address, _),
        httpx.Client(timeout=60) as client,
        client.stream("GET", f"{address}stream") as response,
    ):
        lines = response.iter_lines()
        assert next(lines) == "first"
        scene.enclave.tell("unsigned")
        try:
            with pytest.raises(httpx.RemoteProtocolError):
                list(lines)
            assert client.get(f"{address}echo").json()["code"] == 20
            found = verify("proxy", scene.enclave.host, *scene.options(), "--listen", "[::1]:0")
            assert found.code == 20
        finally:
            scene.enclave.tell("honest")


def test_an_enclave_that_is_killed_ends_its_responses(tmp_path: Path) -> None:
    with running_enclave(initdata_of(FILE, tmp_path), tmp_path) as enclave:
        (tmp_path / "service-config.yml").write_bytes(FILE)
        scene = Scene(tmp_path, enclave, ("--file", str(tmp_path / "service-config.yml")))
        with proxied(scene) as (address, process), httpx.Client(timeout=60) as client:
            with client.stream("GET", f"{address}stream") as response:
                lines = response.iter_lines()
                assert next(lines) == "first"
                enclave.process.kill()
                with pytest.raises(httpx.RemoteProtocolError):
                    list(lines)
            refused = client.get(f"{address}echo").json()
            assert (refused["code"], refused["step"]) == (10, "connect")
            process.kill()
            assert process.wait(20) == -signal.SIGKILL
