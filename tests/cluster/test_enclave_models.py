"""Model weights in real Pods: packed by the command line, verified inside, read by containers."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from cloister_clients.modelstore import ModelImage, pack
from cloister_crds.kinds import Container
from cloister_crds.kinds.container import ContainerPhase
from dev.cluster import Cluster
from dev.cluster.processes import Progress
from dev.cluster.requirements import install_packages
from tests.support.programs.operator import Installation, condition_of, operator_lock
from tests.support.programs.web_service import STOP_TIMEOUT, PageServices, page_file
from tests.support.waiting import until_sync

pytestmark = pytest.mark.node

COMMIT = "0123456789" * 4
WEIGHTS = random.Random(3).randbytes(3 * 1024 * 1024 + 77)
"""Content of the weights."""


@dataclass
class Weights:
    """A model store on the node, and its models."""

    store: Path
    """Its directory."""
    tiny: ModelImage
    """A model."""
    other: ModelImage
    """A second one."""
    broken: ModelImage
    """A model with a flipped bit on the node."""


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Weights:
    """Create a model store as an administrator does; the node is this machine."""
    install_packages(["models"], Progress())
    place = tmp_path_factory.mktemp("weights")
    store = tmp_path_factory.mktemp("store")
    for each in (store, *store.parents[:1]):
        each.chmod(0o755)
    entries = []
    for name in ("tiny", "other", "broken"):
        source = place / name
        source.mkdir()
        (source / "name.txt").write_text(f"{name}\n")
        (source / "model.safetensors").write_bytes(WEIGHTS)
        (source / "private").mkdir(mode=0o700)
        (source / "private" / "secret.json").write_text("{}")
        entries.append(pack(f"example/{name}@{COMMIT}", source, store))
    broken = entries[2].path
    data = bytearray(broken.read_bytes())
    data[2_000_000] ^= 1
    broken.chmod(0o644)
    broken.write_bytes(data)
    return Weights(store, *entries)


def with_models(file: bytes, *models: tuple[str, str]) -> bytes:
    """Add models, each a name and an mpk, and a second container to a file."""
    document = yaml.safe_load(file)
    document["models"] = [
        {"name": name, "repo": f"example/{name}@{COMMIT}", "mpk": mpk} for name, mpk in models
    ]
    reader = {"name": "reader", "image": document["containers"][0]["image"]}
    reader |= {"command": ["sleep", "3600"], "user": "4321:4321", "stop_timeout": STOP_TIMEOUT}
    document["containers"].append(reader)
    return yaml.safe_dump(document, sort_keys=False).encode()


@pytest.fixture(scope="module")
def pages(cluster: Cluster) -> PageServices:
    """Push the images."""
    return PageServices(cluster)


@pytest.fixture(scope="module")
def installation(
    cluster: Cluster,
    pages: PageServices,
    weights: Weights,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Installation]:
    """Start an operator whose Host has the store."""
    folder = tmp_path_factory.mktemp("installation")
    tiny, other, broken = weights.tiny.mpk, weights.other.mpk, weights.broken.mpk
    root, offset, uuid = tiny.split("_")
    files = {
        "v1.0.0": (("tiny", tiny), ("other", other)),
        "v2.0.0": (("broken", broken),),
        "v3.0.0": (("tiny", f"{root}_{offset}_{'0' * 8}{uuid[8:]}"),),
        "v4.0.0": (("tiny", f"{'0' * 64}_{offset}_{uuid}"),),
    }
    with operator_lock(cluster.name):
        installed = Installation(cluster, folder, pages.settings | {"claimAgeSeconds": 1})
        try:
            installed.prepare()
            installed.create_organization(host={"models": {"directory": str(weights.store)}})
            repository = installed.repository("acme/model")
            for tag, models in files.items():
                repository.release(tag, with_models(page_file(pages.web, "weights"), *models))
            installed.operator().wait_until_it_leads()
            yield installed
        finally:
            installed.end()


def has_seen_host(installation: Installation) -> bool:
    """Return whether the operator has reconciled the present spec of the Host."""
    where = ("get", f"host/{installation.host}", "-ojson")
    host = json.loads(installation.kubectl(*where))
    return bool(host["status"]["observedGeneration"] == host["metadata"]["generation"])


def failed(installation: Installation, name: str, tag: str) -> Container:
    """Create a Container of a release whose attempt must fail; return it after the failure."""
    installation.create_container(name, repo="acme/model", tag=tag)
    return installation.wait_for(name, "Stalled")


@pytest.mark.spec("45.5", "47.2")
def test_containers_read_verified_weights(
    installation: Installation, pages: PageServices, weights: Weights
) -> None:
    installation.create_container("reads", repo="acme/model", tag="v1.0.0")
    container = installation.wait_for("reads", "Ready")
    assert pages.await_page(installation, "reads").status == 200
    enclave = container.status.active_enclave
    for inside in ("web", "reader"):
        run = ("exec", "-n", installation.namespace, enclave, "-c", inside, "--")
        assert set(installation.kubectl(*run, "ls", "/cloister").split()) >= {"config.yml", "mpk"}
        for entry in (weights.tiny, weights.other):
            root = entry.mpk.split("_", maxsplit=1)[0]
            place = f"/cloister/mpk/mpk-{root}"
            assert installation.kubectl(*run, "cat", f"{place}/name.txt") == f"{entry.name}\n"
            assert installation.kubectl(*run, "cat", f"{place}/private/secret.json") == "{}"
            (source,) = weights.store.glob(f"{root}.mpk")
            assert source.exists()
            size = installation.kubectl(*run, "stat", "-c", "%s %a", f"{place}/model.safetensors")
            assert size.split() == [str(len(WEIGHTS)), "444"]
        mounts = installation.kubectl(*run, "cat", "/proc/mounts")
        options = [line.split() for line in mounts.splitlines()]
        (mount,) = [each for each in options if each[1].endswith("/mpk")]
        assert "ro" in mount[3].split(",")
    page = pages.await_page(installation, "reads", "/.well-known/cloister-boot-stages")
    stages = {each["name"]: each for each in json.loads(page.body)["stages"]}
    assert stages["models"]["status"] == "ok"
    assert stages["models"]["detail"] == "Verified against their root hashes: 2."
    assert 0 < stages["models"]["duration_ns"] <= stages["containers"]["duration_ns"]


def test_a_flipped_bit_in_model_weights_fails_the_attempt(
    installation: Installation, weights: Weights
) -> None:
    container = failed(installation, "bit", "v2.0.0")
    root = weights.broken.mpk.split("_", maxsplit=1)[0]
    stalled = condition_of(container, "Stalled")
    assert stalled is not None
    assert stalled["reason"] == "ModelInvalid"
    assert "model broken (example/broken@" in stalled["message"]
    assert f"does not lead to the root hash {root}" in stalled["message"]
    assert container.status.phase is ContainerPhase.FAILED
    (enclave,) = installation.enclaves("bit")
    wrong = [each for each in enclave.status.boot_stages if each.status == "failed"]
    assert [each.name for each in wrong] == ["models"]
    assert f"does not lead to the root hash {root}" in wrong[0].detail


def test_another_uuid_of_model_weights_fails_the_attempt(installation: Installation) -> None:
    stalled = condition_of(failed(installation, "uuid", "v3.0.0"), "Stalled")
    assert stalled is not None
    assert stalled["reason"] == "ModelInvalid"
    assert "has the UUID" in stalled["message"]


def test_missing_model_weights_fail_the_attempt(installation: Installation) -> None:
    stalled = condition_of(failed(installation, "none", "v4.0.0"), "Stalled")
    assert stalled is not None
    assert stalled["reason"] == "ModelNotFound"
    assert "the model store does not have it" in stalled["message"]


@pytest.mark.spec("49.1", "49.2", "49.3", "49.4")
def test_a_listed_model_store_refuses_before_anything_starts(
    installation: Installation, weights: Weights
) -> None:
    """The last test: it changes the Host."""
    known = {"directory": str(weights.store), "known": [weights.other.mpk]}
    spec = {"networkIsolation": "Container", "models": known}
    installation.apply(
        {
            "apiVersion": "cloister.dev/v1alpha1",
            "kind": "Host",
            "metadata": {"name": installation.host},
            "spec": spec,
        }
    )
    # A Container may reach the operator before a Host that was changed earlier.
    until_sync(lambda: has_seen_host(installation), what="the Host's new generation")
    installation.create_container("known", repo="acme/model", tag="v1.0.0")

    def refused() -> bool:
        container = installation.container("known")
        stalled = condition_of(container, "Stalled") if container is not None else None
        return stalled is not None and stalled["reason"] == "ModelNotFound"

    until_sync(refused, every=0.5, what="a refusal")
    assert installation.enclaves("known") == []
