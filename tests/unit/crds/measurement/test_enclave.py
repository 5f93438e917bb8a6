"""The measurement of an enclave: pinned bytes, and what changes it."""

import hashlib
import json
import tomllib
from typing import Any

import pytest

from cloister_crds.config import ServiceConfig
from cloister_crds.kinds.host import HostSpec
from cloister_crds.lifecycle.admission.host_selection import profile
from cloister_crds.measurement import (
    Measurement,
    PlatformImages,
    entries,
    measure,
    published,
)
from cloister_crds.measurement.initdata import POD_DOCUMENT, policy_text, rules_digest
from tests.support.builders.enclave_plans import WEB, WORKER, config_of

IMAGES = PlatformImages(
    guest="registry.example/guest@sha256:" + "1" * 64,
    shim="registry.example/shim@sha256:" + "2" * 64,
)
FILE = "sha256:" + "3" * 64
POLICY = "package agent_policy\n"
SNP = HostSpec.model_validate(
    {
        "tee": "SNP",
        "teeUnit": "Pod",
        "runtimeClassName": "kata-qemu-snp",
        "initdata": [
            {"name": "policy.rego", "content": POLICY},
            {"name": "aa.toml", "content": ""},
        ],
    }
)


def measured(**changes: Any) -> Measurement:
    inputs: dict[str, Any] = {
        "config": config_of(WEB),
        "config_digest": FILE,
        "host": SNP,
        "images": IMAGES,
        "documents": {"agent.json": "{}"},
        "service": "cloister",
        "debug": False,
        "gpus": None,
    } | changes
    return measure(inputs.pop("config"), inputs.pop("config_digest"), **inputs)


def test_the_bytes_are_pinned() -> None:
    """An auditor's own program writes exactly these."""
    empty, policy, braces = (
        hashlib.sha256(each.encode()).hexdigest() for each in ("", POLICY, "{}")
    )
    image = "registry.example/web@sha256:" + "ab" * 32
    expected = (
        f'{{"configDigest":"{FILE}","containers":[{{"image":"{image}","name":"web"}}],'
        f'"debug":false,"documents":{{"agent.json":"sha256:{braces}"}},"gpus":0,"guestImage":"{IMAGES.guest}","host":{{"initdata":{{'
        f'"aa.toml":"sha256:{empty}","policy.rego":"sha256:{policy}"}},'
        '"networkIsolation":"Container","runtimeClassName":"kata-qemu-snp",'
        '"sizing":{"overheadCpuMilli":0,"overheadMemoryMB":128},"tee":"SNP","teeUnit":"Pod"},'
        f'"service":"cloister","shimImage":"{IMAGES.shim}",'
        '"version":"cloister.dev/measurement/v2"}'
    )
    found = measured()
    assert found.text.decode() == expected
    assert found.digest == "sha256:" + hashlib.sha256(expected.encode()).hexdigest()


def test_the_hardware_measures_the_document_and_the_policy_may_read_it() -> None:
    found = measured()
    assert found.initdata is not None
    files = tomllib.loads(found.initdata.text.decode())["data"]
    assert files["measurement.json"] == found.text.decode()
    assert files["aa.toml"] == ""
    assert files["policy.rego"] == f"{POLICY}\ncloister_measurement := {found.text.decode()}\n"
    assert found.initdata.digest == ("sha256:" + hashlib.sha256(found.initdata.text).hexdigest())


def host(**changes: Any) -> HostSpec:
    return HostSpec.model_validate(SNP.wire() | changes)


CHANGES: dict[str, dict[str, Any]] = {
    "the file": {"config_digest": "sha256:" + "4" * 64},
    "a container": {"config": config_of(WEB, WORKER)},
    "an image": {"config": config_of(WEB.model_copy(update={"image": "x@sha256:" + "5" * 64}))},
    "debug": {"debug": True},
    "a document": {"documents": {"agent.json": "{ }"}},
    "the name of a document": {"documents": {"other.json": "{}"}},
    "one more document": {"documents": {"agent.json": "{}", "other.json": "{}"}},
    "GPUs": {"gpus": 1},
    "the guest": {"images": PlatformImages(guest=IMAGES.shim, shim=IMAGES.shim)},
    "the shim": {"images": PlatformImages(guest=IMAGES.guest, shim=IMAGES.guest)},
    "the service": {"service": "fleet"},
    "the tee": {"host": host(tee="TDX")},
    "the runtime class": {"host": host(runtimeClassName="kata-qemu-snp-runtime-rs")},
    "network isolation": {"host": host(networkIsolation="Pod")},
    "sizing": {"host": host(sizing={"overheadCpuMilli": 1000})},
    "the policy": {"host": host(initdata=[{"name": "policy.rego", "content": "package x\n"}])},
    "no TEE": {"host": profile(SNP, without_tee=True), "debug": True},
}


@pytest.mark.spec("2.9", "21.16")
@pytest.mark.parametrize("what", CHANGES)
def test_each_of_these_is_another_identity(what: str) -> None:
    changed, before = measured(**CHANGES[what]), measured()
    assert changed.digest != before.digest
    assert before.initdata is not None
    if changed.initdata is not None:
        assert changed.initdata.digest != before.initdata.digest


@pytest.mark.parametrize(
    "changes",
    [
        {"nodeSelector": [{"name": "pool", "value": "a"}]},
        {"default": True},
        {"cpuType": "EPYC"},
        {"gpu": {"resource": "nvidia.com/pgpu"}},
        {"attestationService": "http://127.0.0.1:9"},
        {"initdata": list(reversed(SNP.wire()["initdata"]))},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_each_of_these_is_not(changes: dict[str, Any]) -> None:
    found, before = measured(host=host(**changes)), measured()
    assert (found.digest, found.initdata) == (before.digest, before.initdata)


def test_gpus_name_their_resource() -> None:
    with_gpus = host(gpu={"resource": "nvidia.com/pgpu"})
    assert measured(host=with_gpus, gpus=8).document.host.gpu_resource == "nvidia.com/pgpu"
    config: ServiceConfig = config_of(WEB, gpus=1)
    assert measured(host=with_gpus, config=config).document.gpus == 1
    assert measured(host=with_gpus, config=config, gpus=0).document.gpus == 0


@pytest.mark.parametrize(
    "spec",
    [{}, {"tee": "SNP", "teeUnit": "Node", "attestationService": "unix:///run/aa.sock"}],
    ids=["no TEE", "node"],
)
def test_only_a_machine_of_its_own_has_initdata(spec: dict[str, Any]) -> None:
    assert measured(host=HostSpec.model_validate(spec)).initdata is None


def test_a_debug_enclave_without_tee_is_that_of_a_host_without_tee() -> None:
    """The pool's labels stay: the Pod is an ordinary one on the same nodes."""
    spec = profile(host(nodeSelector=[{"name": "pool", "value": "a"}]), without_tee=True)
    assert (
        spec.wire()
        == HostSpec.model_validate({"nodeSelector": [{"name": "pool", "value": "a"}]}).wire()
    )
    assert profile(SNP, without_tee=False) is SNP
    assert json.loads(measured(host=spec, debug=True).text)["host"]["tee"] == "None"


@pytest.mark.parametrize("spec", [SNP, HostSpec()], ids=["SNP", "no TEE"])
def test_what_is_published_is_what_was_measured(spec: HostSpec) -> None:
    found = measured(host=spec)
    read = published(entries(found))
    assert read is not None
    assert (read.digest, read.initdata) == (found.digest, found.initdata)
    assert read.document == found.document.wire()
    assert read.documents == {}
    whole = published({**entries(found), "agent.json": "{}", "unmeasured.json": "{}"})
    assert whole is not None
    assert whole.documents == {"agent.json": "{}"}
    assert published({"config.yml": ""}) is None


def test_a_host_without_rules_gets_those_of_the_release() -> None:
    bare = SNP.model_copy(update={"initdata": ()})
    found = measured(host=bare, documents={"agent.json": "{}", POD_DOCUMENT: '{"containers": []}'})
    assert found.document.host.initdata == {"policy.rego": rules_digest()}
    assert found.initdata is not None
    policy = tomllib.loads(found.initdata.text.decode())["data"]["policy.rego"]
    assert policy == policy_text('{"containers": []}')
    read = published({**entries(found), "agent.json": "{}"})
    assert read is not None
    assert read.documents == {"agent.json": "{}", POD_DOCUMENT: '{"containers": []}'}
    other = measured(host=bare, documents={"agent.json": "{}", POD_DOCUMENT: "{}"})
    assert other.initdata is not None
    assert other.initdata.digest != found.initdata.digest
