"""Signatures by the real cosign, in a real registry, with the commands of docs/images.md.

What `make images` built is signed too where it is there; small images stand for it otherwise.
"""

import base64
import json
import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dev.chart.package import CHART
from dev.cluster.binaries import binary
from dev.images import digests
from dev.images import registry as copies
from dev.images.build import IMAGES
from dev.images.release import ROOT, Release
from dev.release import chart_registry, provenance
from dev.release.errors import ReleaseError
from dev.release.signing import KEY, PASSWORD, Attested, Signer, verify_command
from tests.support.programs.helm import Helm
from tests.support.servers.registry import Registry, image_index, registry

pytestmark = pytest.mark.programs("cosign", "helm", "registry")

BUILT = ROOT / "dist" / "images"
SECRET = "a-password-of-a-test"
PAGE = ROOT / "docs" / "images.md"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """Provide a registry of our own."""
    with registry(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Provide a folder with a key pair, and its password in the environment."""
    folder = tmp_path_factory.mktemp("keys")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(PASSWORD, SECRET)
        subprocess.run([binary("cosign"), "generate-key-pair"], cwd=folder, check=True)
        yield folder


@pytest.fixture(scope="module")
def signer(keys: Path) -> Signer:
    """Provide the signer that the environment names."""
    found = Signer.of({KEY: str(keys / "cosign.key"), PASSWORD: SECRET})
    assert found is not None
    return found


def verified(
    reference: str, key: Path, what: Attested | None = None
) -> subprocess.CompletedProcess[str]:
    """Verify as a user does."""
    return subprocess.run(
        [binary("cosign"), *verify_command(reference, key, what)],
        capture_output=True,
        text=True,
        check=False,
    )


def index_of_two(served: Registry, repository: str) -> tuple[str, str]:
    """Push an index of two small images; return its reference and that of one of them."""
    members = {
        f"linux/{each}": served.image(repository, architecture=each) for each in ("amd64", "arm64")
    }
    index = served.manifest(repository, image_index(members), tag="v1")
    place = f"{served.host}/{repository}"
    return f"{place}@{index.digest}", f"{place}@{members['linux/arm64'].digest}"


def bill_of(folder: Path, name: str) -> Path:
    """Write a small bill of materials."""
    path = folder / f"{name}.cdx.json"
    component = {"type": "library", "name": name, "version": "1", "purl": f"pkg:pypi/{name}@1"}
    path.write_text(
        json.dumps({"bomFormat": "CycloneDX", "specVersion": "1.5", "components": [component]})
    )
    return path


def test_what_is_signed_is_verified_and_nothing_else(
    served: Registry, signer: Signer, keys: Path, tmp_path: Path
) -> None:
    """The index, and the image of each architecture that it names."""
    public = keys / "cosign.pub"
    index, member = index_of_two(served, "signed")
    unsigned = verified(index, public)
    assert unsigned.returncode != 0
    assert "no signatures found" in unsigned.stderr
    signer.sign(index)
    for reference in (index, member):
        done = verified(reference, public)
        assert done.returncode == 0, done.stderr
        (said,) = json.loads(done.stdout)
        digest = said["critical"]["image"]["docker-manifest-digest"]
        assert reference.endswith(digest)
    tagged = verified(index.partition("@")[0] + ":v1", public)
    assert tagged.returncode == 0, tagged.stderr

    other, _ = index_of_two(served, "other/name")
    assert verified(other, public).returncode != 0
    subprocess.run([binary("cosign"), "generate-key-pair"], cwd=tmp_path, check=True)
    assert verified(index, tmp_path / "cosign.pub").returncode != 0


def test_a_changed_byte_is_noticed(served: Registry, signer: Signer, keys: Path) -> None:
    """Of an image in the registry behind a tag that was signed, and of a signed file."""
    public = keys / "cosign.pub"
    index, _ = index_of_two(served, "changed")
    signer.sign(index)
    changed = served.image("changed", architecture="amd64", config={"User": "0"})
    members = {"linux/amd64": changed}
    served.manifest("changed", image_index(members), tag="v1")
    done = verified(f"{served.host}/changed:v1", public)
    assert done.returncode != 0
    assert "no signatures found" in done.stderr

    sums, bundle = keys / "SHA256SUMS", keys / "SHA256SUMS.sigstore.json"
    sums.write_text(f"{'0' * 64}  install.yaml\n")
    signer.sign_file(sums, bundle)
    asked = ("--key", public, "--bundle", bundle, "--insecure-ignore-tlog=true")
    command: list[str | Path] = [binary("cosign"), "verify-blob", *asked, sums]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    sums.write_text(f"{'1' * 64}  install.yaml\n")
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0


def test_a_bill_of_materials_is_attested(
    served: Registry, signer: Signer, keys: Path, tmp_path: Path
) -> None:
    public = keys / "cosign.pub"
    _, member = index_of_two(served, "billed")
    assert verified(member, public, Attested.BILL).returncode != 0
    signer.attest(member, Attested.BILL, bill_of(tmp_path, "pyyaml"))
    done = verified(member, public, Attested.BILL)
    assert done.returncode == 0, done.stderr
    assert predicate(done.stdout)["components"][0]["purl"] == "pkg:pypi/pyyaml@1"


def test_the_provenance_of_an_image_is_attested(
    served: Registry, signer: Signer, keys: Path, tmp_path: Path
) -> None:
    """By the commit and the locks; a bill of materials is not taken for it."""
    index, member = index_of_two(served, "traced")
    release = Release("1.2.3", "0" * 40, 0, "https://git.example.com/cloister")
    path = tmp_path / "predicate.json"
    path.write_text(json.dumps(provenance.predicate(release, "registry.example.com/x", "")))
    signer.attest(index, Attested.PROVENANCE, path)
    done = verified(index, keys / "cosign.pub", Attested.PROVENANCE)
    assert done.returncode == 0, done.stderr
    assert predicate(done.stdout) == json.loads(path.read_text())
    assert verified(index, keys / "cosign.pub", Attested.BILL).returncode != 0
    assert verified(member, keys / "cosign.pub", Attested.PROVENANCE).returncode != 0


def predicate(output: str) -> dict[str, Any]:
    """Return the document in what cosign prints of an attestation."""
    (line,) = output.splitlines()
    statement = json.loads(base64.b64decode(json.loads(line)["payload"]))
    found: dict[str, Any] = statement["predicate"]
    return found


def test_the_chart_in_a_registry_is_signed_and_pulled(
    served: Registry, signer: Signer, keys: Path, tmp_path: Path
) -> None:
    helm, repository = Helm(tmp_path), f"{served.host}/charts/cloister"
    made = helm.run("package", str(CHART), "--destination", str(tmp_path))
    assert made.returncode == 0, made.stderr
    (package,) = tmp_path.glob("*.tgz")
    version = package.stem.removeprefix("cloister-")
    digest = chart_registry.write_layout(
        package, tmp_path / "layout", Release(version, "0" * 40, 0)
    )
    assert copies.digest_of(f"{repository}:{version}") == ""
    copies.push_one(tmp_path / "layout", version, repository, version)
    assert copies.digest_of(f"{repository}:{version}") == digest
    assert verified(f"{repository}:{version}", keys / "cosign.pub").returncode != 0
    signer.sign(f"{repository}@{digest}")
    done = verified(f"{repository}:{version}", keys / "cosign.pub")
    assert done.returncode == 0, done.stderr

    into = tmp_path / "pulled"
    asked = ("--version", version, "--plain-http", "--destination", str(into))
    into.mkdir()
    pulled = helm.run("pull", f"oci://{repository}", *asked)
    assert pulled.returncode == 0, pulled.stderr
    assert digest in pulled.stdout + pulled.stderr
    assert (into / package.name).read_bytes() == package.read_bytes()
    with tarfile.open(package) as archive:
        assert "cloister/values.schema.json" in archive.getnames()


@pytest.mark.skipif(not (BUILT / "images.lock").exists(), reason="no images: make images")
def test_the_images_of_make_images_are_signed_with_their_bills(
    served: Registry, signer: Signer, keys: Path
) -> None:
    public, to = keys / "cosign.pub", f"{served.host}/cloister"
    found = digests.read(BUILT / "images.lock")
    copies.push(BUILT / "oci", found, to, "test")
    for name in IMAGES:
        index = BUILT / "oci" / "blobs" / found[name].replace(":", "/")
        signer.sign(f"{to}/{name}@{found[name]}")
        done = verified(f"{to}/{name}:test", public)
        assert done.returncode == 0, done.stderr
        for each in json.loads(index.read_text())["manifests"]:
            member = f"{to}/{name}@{each['digest']}"
            bill = BUILT / "sbom" / f"{name}-{each['platform']['architecture']}.cdx.json"
            signer.attest(member, Attested.BILL, bill)
            done = verified(member, public, Attested.BILL)
            assert done.returncode == 0, done.stderr
            assert (
                predicate(done.stdout)["components"] == json.loads(bill.read_text())["components"]
            )


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({KEY: "/no/such/key", PASSWORD: ""}, "which is no file: make one with `cosign generate"),
        ({KEY: os.devnull.replace("null", "shm")}, "which is no file"),
        ({KEY: str(ROOT / "LICENSE")}, "COSIGN_PASSWORD is not set: put the password of"),
    ],
)
def test_a_key_that_cannot_be_used_is_refused(environment: dict[str, str], sentence: str) -> None:
    with pytest.raises(ReleaseError, match=sentence):
        Signer.of(environment)


def test_a_wrong_password_is_refused_and_not_repeated(
    served: Registry, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, _ = index_of_two(served, "locked")
    monkeypatch.setenv(PASSWORD, "not-this-one")
    with pytest.raises(ReleaseError, match="cosign sign failed") as raised:
        signer.sign(index)
    assert "not-this-one" not in str(raised.value)


def test_without_a_key_nothing_is_signed() -> None:
    assert Signer.of({}) is None


def test_the_manual_has_the_words_that_verify() -> None:
    """The commands of docs/images.md are those that these tests run."""
    page = " ".join(PAGE.read_text().replace("\\\n", " ").split())
    for what, reference in (
        (None, "$registry/$what:$version"),
        (Attested.BILL, "$registry/cloister@$digest"),
        (Attested.PROVENANCE, "$registry/cloister:$version"),
    ):
        words = verify_command(reference, Path("cosign.pub"), what)
        assert " ".join(["cosign", *words]) in page
