"""What is too large is refused with a sentence, at both doors, and costs the operator no memory."""

import re
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from dev.cluster import Cluster
from tests.support.programs.operator import (
    Installation,
    OperatorProcess,
    condition_of,
    file_text,
    manifest,
    operator_lock,
)
from tests.support.programs.operator_facade import facade_of
from tests.support.stand_ins.large_images import LargeImages, large_images
from tests.support.waiting import until_sync

MEBIBYTE = 1024**2
GROWTH = 160 * MEBIBYTE
"""What the attack may add to the operator's memory: the cache of results, and one description."""

LARGEST_FILE = 320 * 1024
"""What the operator's setting allows a file: more than its default."""
LARGEST_IMAGES = 30 * 1024**3
STRICT_FROM = "0.12.0"


@pytest.fixture(scope="module")
def images() -> Iterator[LargeImages]:
    with large_images() as running:
        yield running


@pytest.fixture(scope="module")
def operated(
    api_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory, images: LargeImages
) -> Iterator[Installation]:
    assert images.served is not None
    hosts = [api_cluster.registry, images.served.host]
    settings = {"registry": {"plain_http": hosts, "allow_private": hosts}}
    with operator_lock(api_cluster.name):
        installed = Installation(api_cluster, tmp_path_factory.mktemp("large"), settings)
        try:
            sources = {"kind": "git", "base": str(installed.repositories.path)}
            installed.settings |= {
                "sources": sources | {"maxFileBytes": LARGEST_FILE},
                "strictFrom": STRICT_FROM,
            }
            installed.settings["registry"] |= {"maxImageBytes": LARGEST_IMAGES}
            installed.prepare()
            installed.create_organization()
            installed.operator().wait_until_it_leads()
            yield installed
        finally:
            installed.end()


@pytest.fixture(scope="module")
def client(operated: Installation) -> Iterator[httpx.Client]:
    with facade_of(operated) as given:
        yield given


def file_of(images: Sequence[str], **first: Any) -> bytes:
    """Write a file with a container of each image."""
    document = yaml.safe_load(file_text(images[0], **first))
    document["containers"] += [
        {"name": f"c{number}", "image": image} for number, image in enumerate(images[1:])
    ]
    document["shim"]["upstream-container"] = "web"
    return yaml.safe_dump(document).encode()


def refused(installation: Installation, name: str, file: bytes, **spec: object) -> tuple[str, str]:
    """Create a Container of a file and return reason and message of its refusal."""
    installation.repository(f"acme/{name}").release("v1", file)
    installation.create_container(name, repo=f"acme/{name}", tag="v1", **spec)
    container = installation.wait_for(name, "Stalled")
    ready = condition_of(container, "Ready")
    assert ready is not None
    return ready["reason"], ready["message"]


def looked_up(process: OperatorProcess, reason: str) -> float:
    """Return how many lookups of images ended with a result."""
    _, metrics = process.request("/metrics")
    labels = re.escape(f'{{kind="NeedImage",result="{reason}"}}')
    found = re.search(rf"^cloister_operator_lookups_total{labels} (\S+)", metrics, re.MULTILINE)
    return float(found[1]) if found else 0.0


def cached(process: OperatorProcess) -> float:
    """Return how many bytes the cache of lookups holds."""
    _, metrics = process.request("/metrics")
    found = re.search(r"^cloister_operator_lookup_cache_bytes (\S+)", metrics, re.MULTILINE)
    assert found is not None
    return float(found[1])


def peak(process: OperatorProcess) -> int:
    """Return the most memory that a process has had, in bytes."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


def test_huge_descriptions_of_images_are_refused_and_take_no_memory(
    operated: Installation, images: LargeImages
) -> None:
    attack = [b'{"n":%d,"config":{"Env":[%s""]}}' % (n, b'"",' * 340_000) for n in range(64)]
    file = file_of([images.image(each) for each in attack])
    operator = operated.processes[0]
    before = peak(operator)
    reason, message = refused(operated, "huge", file)
    assert reason == "ManifestInvalid"
    assert "at most 65536" in message
    until_sync(lambda: looked_up(operator, "ManifestInvalid") >= 64, what="64 descriptions")
    assert peak(operator) - before < GROWTH


def test_the_largest_descriptions_together_are_refused_at_both_doors(
    operated: Installation, client: httpx.Client, images: LargeImages
) -> None:
    attack = [{"Env": [f"A{n}={'x' * 30_000}", f"B={'y' * 30_000}"]} for n in range(64)]
    file = file_of([images.image(each) for each in attack])
    operator = operated.processes[0]
    before = peak(operator)
    reason, message = refused(operated, "largest", file)
    assert reason == "EnclaveTooLarge"
    assert "what its images say" in message
    assert "at most 1048576 can be" in message
    assert peak(operator) - before < GROWTH
    # It is refused as soon as enough is known; the other lookups end later.
    until_sync(lambda: cached(operator) > 3 * MEBIBYTE, what="64 descriptions")
    assert cached(operator) < 128 * MEBIBYTE
    body = {"repo": "acme/largest", "tag": "v1"}
    errors = client.post("/api/containers/validate", json=body).json()["errors"]
    assert ("containers", "EnclaveTooLarge") in [(each["field"], each["code"]) for each in errors]


def test_images_that_fill_a_node_are_refused_at_both_doors(
    operated: Installation, client: httpx.Client, images: LargeImages
) -> None:
    large = images.image({"Cmd": ["/x"]}, LARGEST_IMAGES)
    halves = [images.image({"Cmd": [f"/{n}"]}, LARGEST_IMAGES // 2) for n in range(2)]
    absurd = images.image({"Cmd": ["/y"]}, 10**15)
    for name, referred, field, code in (
        ("one", [large], "containers[0].image", "ImageTooLarge"),
        ("together", halves, "containers", "ImageTooLarge"),
        ("absurd", [absurd], "containers[0].image", "ManifestInvalid"),
    ):
        reason, message = refused(operated, name, file_of(referred))
        assert reason == code, message
        if code == "ImageTooLarge":
            assert f"at most {LARGEST_IMAGES} together" in message
        body = {"repo": f"acme/{name}", "tag": "v1"}
        checked = client.post("/api/containers/validate", json=body).json()["errors"]
        assert (field, code) in [(each["field"], each["code"]) for each in checked]


def test_a_description_just_beyond_the_bounds_of_an_enclave_is_refused_by_name(
    operated: Installation, images: LargeImages
) -> None:
    image = images.image({"Env": [f"A{n}=b" for n in range(1025)]})
    reason, message = refused(operated, "entries", file_of([image]))
    assert reason == "ManifestInvalid"
    assert "config.Env" in message
    assert "1024" in message


def test_secrets_that_are_too_large_together_are_reported(
    operated: Installation, images: LargeImages
) -> None:
    names = ["part-one", "part-two"]
    for name in names:
        metadata = {"name": name, "namespace": operated.namespace}
        value = b64encode(b"x" * 600_000).decode()
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"v": value}}
        operated.kubectl("create", "-f", "-", stdin=yaml.safe_dump(body))
        spec = {"name": name, "secretRef": {"name": name, "key": "v"}}
        operated.apply(manifest("Secret", name, spec, operated.namespace))
    file = file_of([images.image({"Cmd": ["/x"]})], secrets=names)
    reason, message = refused(operated, "secrets", file, secrets=names)
    assert reason == "EnclaveRefused"
    assert "does not accept the Secret" in message


def test_a_file_as_large_as_the_setting_allows_is_deployed(
    operated: Installation, client: httpx.Client, images: LargeImages
) -> None:
    file = file_of([images.image({"Cmd": ["/x"]})])
    file += b"#" * (LARGEST_FILE - len(file))
    operated.repository("acme/allowed").release("v1", file)
    body = {"repo": "acme/allowed", "tag": "v1"}
    on = {**body, "host_name": operated.host}
    verdict = client.post("/api/containers/validate", json=on).json()
    assert (verdict["valid"], verdict["errors"], verdict["warnings"]) == (True, [], [])
    operated.create_container("allowed", **body)

    def stored() -> list[bytes]:
        maps = operated.objects("configmaps")
        return [
            b64decode(each["binaryData"]["config.yml"])
            for each in maps
            if each["metadata"]["name"].startswith("allowed-")
        ]

    assert until_sync(stored, what="the ConfigMap") == [file]


@pytest.mark.spec("6.3")
def test_both_doors_judge_by_the_operators_settings(
    operated: Installation, client: httpx.Client, images: LargeImages
) -> None:
    strict = yaml.safe_load(file_text(images.image({}), ipc="host")) | {"cvm-version": STRICT_FROM}
    file = yaml.safe_dump(strict).encode()
    reasons = {
        "strict": (file, "RefusedByStrictRules"),
        "too-large": (file + b"#" * LARGEST_FILE, "ConfigFileTooLarge"),
    }
    for name, (content, code) in reasons.items():
        reason, message = refused(operated, name, content)
        body = {"repo": f"acme/{name}", "tag": "v1"}
        errors = client.post("/api/containers/validate", json=body).json()["errors"]
        assert code in {each["code"] for each in errors}, errors
        assert reason in {code, "InvalidConfig"}
        assert any(each["message"] in message for each in errors), message
