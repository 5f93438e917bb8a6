"""Model weights from a directory to an enclave: the command line packs, the guest verifies.

The real mkfs.erofs and veritysetup make the images, the real guest reads them.
"""

import json
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from cloister_cli.artifacts import models
from cloister_clients.modelstore import derived_salt
from dev.cluster.processes import Progress
from dev.cluster.requirements import install_packages
from tests.support.programs.measured_guest import measured_guest, write_measured

__all__: list[str] = []

REPO = "example/weights@" + "0123456789" * 4
SIZE = 24 * 1024 * 1024 + 12345
"""Bytes of the large file: its hash tree has two levels."""

pytestmark = [
    pytest.mark.skipif(shutil.which("go") is None, reason="Go is not installed"),
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def guest() -> Path:
    """Build the guest, as tests outside of Pods run it."""
    return measured_guest()


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a directory as a model has it."""
    install_packages(["models"], Progress())
    place = tmp_path_factory.mktemp("weights")
    (place / "config.json").write_text('{"model_type": "example"}\n')
    (place / "tokenizer").mkdir()
    for number in range(40):
        (place / "tokenizer" / f"part-{number}.txt").write_text(f"{number}\n" * (number * 97))
    (place / "empty").touch()
    (place / "model.safetensors").write_bytes(random.Random(7).randbytes(SIZE))
    with (place / "sparse.bin").open("wb") as file:
        file.truncate(100_000)
    (place / "latest").symlink_to("model.safetensors")
    return place


def run(*words: str | Path) -> str:
    """Run ``cloister models``."""
    result = CliRunner().invoke(models, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def packed(weights: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """Pack the weights; answer the store and the entry for configuration files."""
    store = tmp_path_factory.mktemp("store")
    (entry,) = yaml.safe_load(run("pack", REPO, weights, "--store", store))["models"]
    return store, entry


class Enclave:
    """The paths that the guest is given, and its output."""

    def __init__(self, guest: Path, store: Path, entry: dict[str, str], place: Path) -> None:
        self.guest = guest
        self.target = place / "mpk"
        self.target.mkdir()
        self.status = place / "status.json"
        self.spec = place / "spec.json"
        document = {
            "version": 1,
            "store": str(store),
            "target": str(self.target),
            "status": str(self.status),
            "models": [entry],
        }
        write_measured(place, {self.spec.name: document}, unmeasured={})

    def boot(self) -> subprocess.CompletedProcess[str]:
        """Run ``guest models``."""
        return subprocess.run(
            [str(self.guest), "models", "-spec", str(self.spec)],
            cwd=self.spec.parent,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def reported(self) -> dict[str, Any]:
        """Return the status file."""
        read: dict[str, Any] = json.loads(self.status.read_text())
        return read


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """Provide a directory whose read-only parts can be removed again."""
    yield tmp_path
    for each in tmp_path.rglob("*"):
        if each.is_dir() and not each.is_symlink():
            each.chmod(0o755)


def files_of(root: Path) -> dict[str, bytes | str]:
    """Return everything below a directory: contents, and where links lead."""
    return {
        str(each.relative_to(root)): str(each.readlink())
        if each.is_symlink()
        else each.read_bytes()
        for each in root.rglob("*")
        if each.is_symlink() or each.is_file()
    }


def test_what_was_packed_is_what_containers_see(
    guest: Path, weights: Path, packed: tuple[Path, dict[str, str]], place: Path
) -> None:
    store, entry = packed
    enclave = Enclave(guest, store, entry, place)
    done = enclave.boot()
    assert done.returncode == 0, done.stderr
    root = enclave.target / f"mpk-{entry['mpk'].split('_')[0]}"
    assert files_of(root) == files_of(weights)
    assert all(
        not each.is_file() or each.stat().st_mode & 0o777 == 0o444 for each in root.iterdir()
    )
    reported = enclave.reported()
    assert reported["state"] == "ok"
    assert [each["name"] for each in reported["models"]] == ["weights"]


def test_packing_again_gives_the_same_root_hash(
    weights: Path, packed: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    (again,) = yaml.safe_load(run("pack", REPO, weights, "--store", tmp_path))["models"]
    assert again == packed[1]


def test_the_index_lists_what_was_packed(packed: tuple[Path, dict[str, str]]) -> None:
    store, entry = packed
    (listed,) = json.loads(run("index", store, "--json"))
    assert listed == {**entry, "bytes": int(entry["mpk"].split("_")[1])}
    assert yaml.safe_load(run("index", store, "--patch")) == {
        "spec": {"models": {"known": [entry["mpk"]]}}
    }
    assert f"weights ({REPO})" in run("index", store)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.99, 1.0])
def test_any_wrong_bit_stops_the_boot(
    guest: Path, packed: tuple[Path, dict[str, str]], place: Path, share: float
) -> None:
    """A bit of data or tree is turned over, at places spread over the whole image."""
    store, entry = packed
    copy = place / "store"
    shutil.copytree(store, copy)
    (image,) = copy.glob("*.mpk")
    image.chmod(0o644)
    data = bytearray(image.read_bytes())
    offset = int(entry["mpk"].split("_")[1])
    at = int(share * (len(data) - 1))
    assert not offset <= at < offset + 4096, "the superblock is another test's"
    data[at] ^= 16
    image.write_bytes(data)
    enclave = Enclave(guest, copy, entry, place)
    done = enclave.boot()
    assert done.returncode == 65
    assert "does not lead to the root hash" in done.stderr
    assert list(enclave.target.iterdir()) == []
    assert enclave.reported()["state"] == "failed"


def test_another_uuid_or_origin_stops_the_boot(
    guest: Path, packed: tuple[Path, dict[str, str]], place: Path
) -> None:
    store, entry = packed
    root, offset, uuid = entry["mpk"].split("_")
    other = {**entry, "mpk": f"{root}_{offset}_{'0' * 8}{uuid[8:]}"}
    for number, (wrong, want) in enumerate(
        [(other, "has the UUID"), ({**entry, "repo": REPO.replace("@0", "@9")}, "another salt")]
    ):
        part = place / str(number)
        part.mkdir()
        done = Enclave(guest, store, wrong, part).boot()
        assert (done.returncode, want in done.stderr) == (65, True), done.stderr


def test_weights_that_are_not_in_the_store(
    guest: Path, packed: tuple[Path, dict[str, str]], place: Path
) -> None:
    (place / "store").mkdir()
    done = Enclave(guest, place / "store", packed[1], place).boot()
    assert (done.returncode, "the model store does not have it" in done.stderr) == (66, True)


def test_compressed_images_are_refused_with_a_remedy(
    guest: Path, weights: Path, place: Path
) -> None:
    """The guest reads what mkfs.erofs makes by default; of the rest it says so."""
    image = place / "image"
    salt = derived_salt(REPO).hex()
    uuid = "11111111-2222-3333-4444-555555555555"
    path = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    subprocess.run(
        ["mkfs.erofs", "-zlz4", str(image), str(weights / "tokenizer")], check=True, env=path
    )
    size = image.stat().st_size
    reported = subprocess.run(
        [
            "veritysetup",
            "format",
            f"--salt={salt}",
            f"--uuid={uuid}",
            f"--hash-offset={size}",
            str(image),
            str(image),
        ],
        check=True,
        env=path,
        capture_output=True,
        text=True,
    ).stdout
    root = reported.split("Root hash:")[1].split()[0]
    (place / "store").mkdir()
    image.rename(place / "store" / f"{root}.mpk")
    entry = {"name": "weights", "repo": REPO, "mpk": f"{root}_{size}_{uuid}"}
    done = Enclave(guest, place / "store", entry, place).boot()
    assert done.returncode == 65
    assert "pack it without compression" in done.stderr
