"""The part for encrypted bodies in an enclave: who has it, what it reaches, and who has its key."""

from typing import Any

import pytest

from cloister_crds.config import EncryptedBodies, Shim
from cloister_operator.enclave import paths
from cloister_operator.enclave.pod.volumes import pod_volumes
from cloister_operator.enclave.shim.document import shim_document
from cloister_operator.enclave.shim.encrypted_bodies import bodies_document
from cloister_operator.enclave.sidecars import EHBP, destinations
from tests.support.builders.enclave_plans import (
    SETTINGS,
    WEB,
    build_pod,
    config_of,
    host_of,
    plan_of,
)

SHIM = Shim(upstream_port=8080, paths=("/v1/*",), upstream_container="web")


def shim_of(mode: EncryptedBodies | None) -> Shim:
    return SHIM.model_copy(update={"ehbp": mode})


def plan(mode: EncryptedBodies | None = EncryptedBodies.OPTIONAL, **host: Any) -> Any:
    return plan_of(config=config_of(WEB, shim=shim_of(mode)), host=host_of(**host))


def test_the_container_is_its_only_destination() -> None:
    (found,) = [each for each in destinations(plan().config, None) if each["uid"] == EHBP.user]
    assert found["destinations"] == [{"address": "172.31.255.2", "port": 8080}]
    assert "apiPort" not in found


@pytest.mark.parametrize(
    ("isolation", "upstream"), [("Container", "172.31.255.2:8080"), ("Pod", "127.0.0.1:8080")]
)
def test_it_connects_to_the_container_where_that_is(isolation: str, upstream: str) -> None:
    assert bodies_document(plan(networkIsolation=isolation))["upstream"] == upstream


def test_nobody_else_has_its_key() -> None:
    volumes = pod_volumes(plan(), "cloister")
    mounted = [
        name
        for name, mounts in (*volumes.mounts.items(), *volumes.sidecar_mounts.items())
        if any(each["mountPath"] == paths.BODIES_PRIVATE_KEY for each in mounts)
    ]
    assert mounted == [EHBP]


def test_without_it_in_the_file_nothing_of_it_exists() -> None:
    assert "ehbp" not in str(build_pod(plan(None), SETTINGS)).lower()
    assert "bodies" not in shim_document(plan(None), "cloister")
