"""``cloister config measure``: the same digests as the library, from a file or a real release."""

import gzip
import hashlib
import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from cloister_cli.config import config
from tests.support.servers.git import Repositories

FILE = Path(__file__).parents[2] / "data/config/valid/minimal.yml"
GUEST = "registry.example/guest@sha256:" + "1" * 64
SHIM = "registry.example/shim@sha256:" + "2" * 64
DOCUMENTS = {"container-0.json": '{"name":"web"}'}
SNP = {
    "tee": "SNP",
    "teeUnit": "Pod",
    "runtimeClassName": "kata-qemu-snp",
    "initdata": [{"name": "policy.rego", "content": "package agent_policy\n"}],
}


def host(tmp_path: Path, spec: dict[str, Any]) -> Path:
    """Write a Host as kubectl prints it."""
    path = tmp_path / "host.yml"
    body = {"apiVersion": "cloister.dev/v1alpha1", "kind": "Host", "metadata": {"name": "snp"}}
    path.write_text(yaml.safe_dump({**body, "spec": spec, "status": {}}))
    return path


def run(path: Path, *words: str | Path) -> Result:
    """Run the command with a Host and the platform's images."""
    documents = path.with_name("documents.json")
    documents.write_text(json.dumps(DOCUMENTS))
    given = (
        *("measure", "--host", path, "--guest-image", GUEST, "--shim-image", SHIM),
        *("--documents", documents, *words),
    )
    return CliRunner().invoke(config, [str(word) for word in given])


def test_the_summary_holds_what_the_digests_are_of(tmp_path: Path) -> None:
    path = host(tmp_path, SNP)
    result = run(path, FILE)
    assert result.exit_code == 0, result.output
    summary = json.loads(result.output)
    document = summary["document"]
    assert document["configDigest"] == f"sha256:{hashlib.sha256(FILE.read_bytes()).hexdigest()}"
    assert (document["guestImage"], document["shimImage"]) == (GUEST, SHIM)
    digest = hashlib.sha256(DOCUMENTS["container-0.json"].encode()).hexdigest()
    assert document["documents"] == {"container-0.json": f"sha256:{digest}"}
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    assert summary["digest"] == f"sha256:{hashlib.sha256(text).hexdigest()}"
    toml = summary["initdata"]["toml"].encode()
    assert summary["initdata"]["digest"] == f"sha256:{hashlib.sha256(toml).hexdigest()}"
    assert run(path, FILE, "--print", "document").stdout_bytes == text
    assert run(path, FILE, "--print", "initdata").stdout_bytes == toml
    packed = run(path, FILE, "--print", "annotation").output.strip()
    assert gzip.decompress(b64decode(packed)) == toml


@pytest.mark.parametrize("which", ["digest", "initdata"])
def test_an_expected_digest_is_compared(tmp_path: Path, which: str) -> None:
    path = host(tmp_path, SNP)
    summary = json.loads(run(path, FILE).output)
    expected = summary["digest"] if which == "digest" else summary["initdata"]["digest"]
    assert run(path, FILE, "--expect", expected).exit_code == 0
    changed = run(path, FILE, "--expect", expected, "--debug")
    assert changed.exit_code == 1
    assert f"expected {expected}, measured sha256:" in changed.output


def test_a_release_is_read_from_its_repository(tmp_path: Path) -> None:
    repositories = Repositories(tmp_path / "repositories")
    repositories.create("acme/app").release("v1", FILE.read_bytes())
    source = tmp_path / "source.yml"
    source.write_text(yaml.safe_dump({"kind": "git", "base": str(repositories.path)}))
    path = host(tmp_path, {})
    words = ("--repo", "acme/app", "--source", source, "--tag")
    assert run(path, *words, "v1").output == run(path, FILE).output
    missing = run(path, *words, "v2")
    assert missing.exit_code == 2
    assert "v2" in missing.output


def test_a_machine_needs_the_containers_of_its_pod(tmp_path: Path) -> None:
    path = host(tmp_path, {key: value for key, value in SNP.items() if key != "initdata"})
    refused = run(path, FILE)
    assert refused.exit_code == 2
    assert "documents.json has no pod.json" in refused.output


def test_debug_may_do_without_the_tee(tmp_path: Path) -> None:
    path = host(tmp_path, SNP)
    summary = json.loads(run(path, FILE, "--debug", "--without-tee").output)
    assert "initdata" not in summary
    assert summary["document"]["host"]["tee"] == "None"
    refused = run(path, FILE, "--without-tee")
    assert refused.exit_code == 2
    assert "--without-tee needs --debug" in refused.output


def test_shapes_of_an_organization_are_given(tmp_path: Path) -> None:
    file = tmp_path / "service-config.yml"
    file.write_text(FILE.read_text().replace("cpus: 2", "cpus: 3"))
    path = host(tmp_path, {})
    refused = run(path, file)
    assert refused.exit_code == 1
    assert "NotOffered" in refused.output
    assert run(path, file, "--cpu-tier", "3").exit_code == 0


def test_documents_are_texts_by_name(tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text('{"agent.json": {}}')
    refused = run(host(tmp_path, {}), FILE, "--documents", file)
    assert refused.exit_code == 2
    assert "agent.json: Input should be a valid string" in refused.output


WRONG: dict[str, tuple[tuple[str, ...], str]] = {
    "no file": ((), "name either FILE or --repo and --tag"),
    "both": (("x.yml", "--repo", "a/b", "--tag", "v1"), "name either FILE or --repo and --tag"),
    "a missing file": (("/nowhere.yml",), "/nowhere.yml cannot be read: No such file"),
    "a tag as image": ((str(FILE), "--shim-image", "shim:1"), "write the image with its digest"),
    "no initdata": ((str(FILE), "--print", "initdata"), "its Host has no teeUnit Pod"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_used_is_named(tmp_path: Path, what: str) -> None:
    words, sentence = WRONG[what]
    result = run(host(tmp_path, {}), *words)
    assert result.exit_code == 2
    assert sentence in result.output


def test_a_wrong_host_is_named_by_its_field(tmp_path: Path) -> None:
    result = run(host(tmp_path, {"tee": "SNP"}), FILE)
    assert result.exit_code == 2
    assert "spec.teeUnit: teeUnit is needed with a tee" in result.output
