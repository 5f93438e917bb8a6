"""The manifests of an Enclave, compared with files that a person has read.

``CLOISTER_WRITE_GOLDENS=1`` writes the files again; the difference is then for a review.
"""

import gzip
import os
from base64 import b64decode
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from typing_extensions import override

from cloister_crds.config import Egress, EncryptedBodies, ModelSpec, Network, Shim
from cloister_crds.kinds import Container
from cloister_crds.measurement import INITDATA_FILE, PUBLISHED
from cloister_crds.measurement.initdata import ANNOTATION, rules_text
from cloister_operator.enclave.built import build_snapshot
from cloister_operator.enclave.guest_config.ssh import build_shells_service
from cloister_operator.enclave.network.addresses import ApiEndpoint, ServicePods
from cloister_operator.enclave.network.network_policy import (
    build_network_policy,
    build_shells_policy,
)
from cloister_operator.enclave.network.service import build_service
from cloister_operator.enclave.plan import ApiIdentity
from cloister_operator.enclave.shim.document import shim_document
from cloister_operator.enclave.tenant import build_namespace, build_priority_class
from tests.support.builders.enclave_plans import (
    SETTINGS,
    SURROUNDINGS,
    WEB,
    WORKER,
    build_config_map,
    build_pod,
    config_of,
    host_of,
    measure_enclave,
    plan_of,
)

GOLDENS = Path(__file__).parents[3] / "data" / "operator"


RULES = "the rules of crds/cloister_crds/measurement/rules"


def json_of(document: dict[str, Any]) -> str:
    """Write a document as the operator does."""
    return msgspec.json.encode(document, order="sorted").decode()


class Plain(yaml.SafeDumper):
    """Writes what occurs twice twice, for people to read."""

    @override
    def ignore_aliases(self, data: Any) -> bool:
        return True


class Lines(str):
    """A text that is written line by line."""

    __slots__ = ()


Plain.add_representer(
    Lines, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|")
)

IMAGES: tuple[dict[str, object], ...] = (
    {
        "container": "Worker_1",
        "image": WORKER.image,
        "entrypoint": ["/init"],
        "cmd": ["--serve"],
        "env": ["HOME=/data", "PATH=/bin"],
        "user": "app",
        "workingDir": "/app",
        "stopSignal": "SIGQUIT",
    },
)
KEYS = [{"name": "me", "publicKey": "ssh-ed25519 AAAA me@home"}]
NETWORKED = config_of(
    WEB.model_copy(update={"networks": ("inner", "outer")}),
    WORKER.model_copy(update={"networks": ("inner",), "stop_signal": None, "user": None}),
    networks={
        "inner": Network(),
        "outer": Network(egress=Egress.ALLOWLIST, allow=("api.example.com",)),
    },
)
KEYED = config_of(
    WEB,
    shim=Shim(
        upstream_port=8080,
        paths=("/*",),
        upstream_container="web",
        authenticated=True,
        rate_limit=2.5,
        rate_burst=5,
    ),
)
ENCRYPTED = config_of(
    WEB,
    shim=Shim(
        upstream_port=8080,
        paths=("/v1/*",),
        upstream_container="web",
        ehbp=EncryptedBodies.REQUIRED,
    ),
)
UUID = "12345678-1234-4234-8234-123456789abc"
WEIGHTS = ModelSpec(
    name="tiny",
    repo="example/tiny",
    commit="0" * 40,
    mpk=f"{'ab' * 32}_4096_{UUID}",
    root_hash="ab" * 32,
    offset=4096,
    uuid=UUID,
)
WEIGHTED = config_of(WEB, models=(WEIGHTS,))
STORING = host_of(models={"directory": "/srv/models"})
API = ApiEndpoint(url="https://api.example.com:8443", addresses=("10.96.0.80",))
API_PODS = ServicePods("cloister-system", {"app.kubernetes.io/component": "api"}, 8080)
WITH_API = replace(SETTINGS, api=ApiIdentity(API.url, "PEM"))


def rich_host() -> Any:
    return host_of(
        runtimeClassName="kata",
        nodeSelector=[{"name": "pool", "value": "enclaves"}],
        tolerations=[{"key": "enclaves", "operator": "Exists", "effect": "NoSchedule"}],
        sizing={"overheadCpuMilli": 250, "overheadMemoryMB": 128},
        overcommit={"cpuPercent": 10, "memoryPercent": 5},
    )


def confidential() -> dict[str, dict[str, Any]]:
    """Build for Hosts whose machines give evidence: enclaves' own, and nodes that are machines."""
    built: dict[str, dict[str, Any]] = {}
    for tee in ("SNP", "TDX"):
        policy = {"name": "policy.rego", "content": "package agent_policy\n"}
        machine = {"teeUnit": "Pod", "runtimeClassName": f"kata-qemu-{tee.lower()}"}
        # The rules of the release, and those of an administrator.
        pod = host_of(tee=tee, **machine, initdata=[policy] if tee == "TDX" else [])
        socket = {"attestationService": "unix:///run/attestation/api.sock"}
        node = host_of(tee=tee, teeUnit="Node", **socket)
        for unit, host in (("pod", pod), ("node", node)):
            name = f"{tee.lower()}-{unit}"
            config_map = build_config_map(plan_of(WEB, host=host), SETTINGS, SURROUNDINGS)
            built[f"config-map-{name}"] = {"data": published(config_map["data"])}
            built[f"pod-{name}"] = build_pod(plan_of(WEB, host=host), SETTINGS)
            told = built[f"pod-{name}"]["metadata"]["annotations"]
            if ANNOTATION in told:
                unpacked = gzip.decompress(b64decode(told[ANNOTATION])).decode()
                assert unpacked == config_map["data"][INITDATA_FILE]
                told[ANNOTATION] = f"{INITDATA_FILE} of the ConfigMap, packed"
    return built


def without_rules(text: str) -> str:
    """Return initdata with the name of the rules in their place: they are a file of their own."""
    return Lines(text.replace(rules_text(), f"{RULES}\n"))


def unfolded(config_map: dict[str, Any]) -> dict[str, Any]:
    """Return a ConfigMap with its documents on many lines, as a person can compare them."""
    data = {
        name: msgspec.json.format(text, indent=1) if name.endswith(".json") else text
        for name, text in config_map["data"].items()
        if name not in PUBLISHED
    }
    return {**config_map, "data": data | published(config_map["data"])}


def published(data: dict[str, str]) -> dict[str, str]:
    """Return what of a ConfigMap is about the measurement."""
    return {name: without_rules(text) for name, text in data.items() if name in PUBLISHED}


def manifests() -> dict[str, dict[str, Any]]:
    small, rich = plan_of(WEB), plan_of(WEB, WORKER, host=rich_host())
    isolated = plan_of(config=NETWORKED, images=IMAGES)
    debug = plan_of(config=NETWORKED, images=IMAGES, debug=True, sshKeys=KEYS)
    keyed = plan_of(config=KEYED)
    container = Container.read(
        {
            "metadata": {"name": "web.debug", "namespace": "org-acme", "uid": "u-1"},
            "spec": {"name": "web", "repo": "acme/web", "tag": "v1"},
        }
    )
    return {
        "pod-small": build_pod(small, SETTINGS),
        "pod-rich": build_pod(rich, SETTINGS),
        "pod-shells": build_pod(debug, SETTINGS),
        "pod-successor": build_pod(plan_of(WEB, stopFirst=True), SETTINGS),
        "priority-class": build_priority_class(),
        "pod-keyed": build_pod(keyed, SETTINGS),
        "pod-ehbp": build_pod(plan_of(config=ENCRYPTED), SETTINGS),
        "pod-models": build_pod(plan_of(config=WEIGHTED, host=STORING), SETTINGS),
        "config-map-ehbp": unfolded(
            build_config_map(plan_of(config=ENCRYPTED), SETTINGS, SURROUNDINGS)
        ),
        "config-map": unfolded(build_config_map(small, SETTINGS, SURROUNDINGS)),
        "config-map-keyed": unfolded(
            build_config_map(keyed, WITH_API, replace(SURROUNDINGS, api=API))
        ),
        "config-map-networks": unfolded(build_config_map(isolated, SETTINGS, SURROUNDINGS)),
        "config-map-shells": unfolded(build_config_map(debug, SETTINGS, SURROUNDINGS)),
        **confidential(),
        "snapshot": build_snapshot(rich, {"API_KEY": b"k", "tls-key": b"\x00", "OTHER": b"no"}),
        "service": build_service(container, "acme", "web-abcdefghij-1"),
        "namespace": build_namespace("acme", "org-acme"),
        "service-shells": build_shells_service(container, "acme", "web-abcdefghij-1"),
        "network-policy": build_network_policy("acme", "org-acme"),
        "network-policy-shells": build_shells_policy("acme", "org-acme"),
        "network-policy-api": build_network_policy("acme", "org-acme", api=API, api_pods=API_PODS),
    }


@pytest.mark.spec("47.1", "47.3")
@pytest.mark.parametrize("name", sorted(manifests()))
def test_manifest_is_the_golden_one(name: str) -> None:
    path = GOLDENS / f"{name}.yaml"
    built = manifests()[name]
    if os.environ.get("CLOISTER_WRITE_GOLDENS"):
        path.write_text(yaml.dump(built, Dumper=Plain, sort_keys=True))
    assert built == yaml.safe_load(path.read_text())


def test_initdata_is_what_the_guest_and_its_clients_read() -> None:
    """The Go tests of `internal/client/verify` check the same file."""
    files = [{"name": "aa.toml", "content": "token = ''\n"}]
    machine = {"teeUnit": "Pod", "runtimeClassName": "kata-qemu-snp", "initdata": files}
    built = measure_enclave(plan_of(WEB, host=host_of(tee="SNP", **machine)), SETTINGS)
    assert built.initdata is not None
    path = GOLDENS.parent / "measurement" / "initdata-enclave.toml"
    if os.environ.get("CLOISTER_WRITE_GOLDENS"):
        path.write_bytes(built.initdata.text)
    assert built.initdata.text == path.read_bytes()


@pytest.mark.parametrize("signed", [True, False], ids=["signed", "self-signed"])
def test_the_document_of_the_shim_is_what_its_program_reads(*, signed: bool) -> None:
    """The Go tests of `internal/frontdoor/shim` read the same files."""
    plan = plan_of(config=KEYED, signedCertificate=signed)
    text = json_of(shim_document(plan, "cloister"))
    kind = "signed" if signed else "self-signed"
    path = GOLDENS.parent / "measurement" / f"shim-{kind}.json"
    if os.environ.get("CLOISTER_WRITE_GOLDENS"):
        path.write_text(f"{text}\n")
    assert path.read_text() == f"{text}\n"


def test_documents_of_a_config_map_are_as_short_as_they_can_be() -> None:
    data = build_config_map(plan_of(config=KEYED), SETTINGS, SURROUNDINGS)["data"]
    documents = {name: text for name, text in data.items() if name.endswith(".json")}
    assert {"agent.json", "shim.json", "network.json", "container-0.json"} <= documents.keys()
    for name, text in documents.items():
        assert text == msgspec.json.format(text, indent=-1), name
