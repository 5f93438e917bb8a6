"""Which Pods the operator's account may create, by the policy `cloister-operator`.

Whoever holds its token shall not own a node by a Pod, and everything that the operator builds for
enclaves shall be admitted.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from cloister_crds.names import token_audience
from cloister_operator.enclave.tenant import build_priority_class
from tests.support.cluster.api_server import ApiServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

ACCOUNT = "system:serviceaccount:cloister-system:cloister-operator"
TENANT = "org-acme"
PODS = f"/api/v1/namespaces/{TENANT}/pods"
FORBIDDEN = 403
LABELS = {"app.kubernetes.io/managed-by": "cloister", "cloister.dev/enclave": "a"}
RIGHTS = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
UNCONFINED = {"type": "Unconfined"}
CONFINED = {"type": "RuntimeDefault"}
CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
RUNTIME_CLASSES = ("kata", "kata-qemu-snp", "kata-qemu-tdx", "runc")
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
GOLDENS = Path(__file__).resolve().parents[2] / "data" / "operator"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def operator(policed: ApiServer) -> AsyncIterator[ApiServer]:
    """Provide the operator's account on a server with every admission policy."""
    # The API server refuses Pods that name an account or a class that it does not know.
    for name in ("default", "other"):
        await policed.token(TENANT, name)
    for name in RUNTIME_CLASSES:
        metadata = {"name": name}
        body = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": metadata}
        await policed.apply({**body, "handler": "a"}, f"{CLASSES}/{name}")
    priority = build_priority_class()
    await policed.apply(priority, f"{PRIORITIES}/{priority['metadata']['name']}")
    account = policed.impersonating(ACCOUNT, "system:serviceaccounts", "system:authenticated")
    yield account
    await account.aclose()
    for name in RUNTIME_CLASSES:
        await policed.delete(f"{CLASSES}/{name}")


def pod(spec: dict[str, Any] | None = None, **container: Any) -> dict[str, Any]:
    """Build a Pod as the operator builds those of enclaves, as far as the policy looks at it."""
    one = {
        "name": "a",
        "image": "registry.example.com/a:1",
        **container,
        "securityContext": RIGHTS | container.get("securityContext", {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "labels": LABELS},
        "spec": {
            "automountServiceAccountToken": False,
            "containers": [one],
            "hostUsers": False,
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
            **(spec or {}),
        },
    }


def mounted(source: dict[str, Any], **mount: Any) -> dict[str, Any]:
    """Build a Pod with a mounted volume, for reading only where `mount` says nothing else."""
    volume = {"name": "h", **source}
    entry = {"name": "h", "mountPath": "/h", "readOnly": True, **mount}
    return pod({"volumes": [volume]}, volumeMounts=[entry])


def of_node(path: str, kind: str = "Directory", **mount: Any) -> dict[str, Any]:
    """Build a Pod with a path of its node."""
    recursive = {"recursiveReadOnly": "Enabled"} if mount.get("readOnly", True) else {}
    return mounted({"hostPath": {"path": path, "type": kind}}, **{**recursive, **mount})


def held_token(audience: str) -> dict[str, Any]:
    """Build the part of a Pod that holds a token; an empty audience is the API server's own."""
    token = {"path": "token", **({"audience": audience} if audience else {})}
    sources = [{"serviceAccountToken": token}]
    return {"volumes": [{"name": "t", "projected": {"sources": sources}}]}


MACHINE = {"hostUsers": None, "runtimeClassName": "kata-qemu-snp"}
"""Part of a Pod that is a machine: only such a Pod may share namespaces with its node otherwise."""


def added(*capabilities: str) -> dict[str, Any]:
    """Build a Pod whose container adds capabilities."""
    return pod(securityContext={"capabilities": {"drop": ["ALL"], "add": list(capabilities)}})


def profiled(**security: Any) -> dict[str, Any]:
    """Build a Pod with a security context of its own."""
    return pod({"securityContext": {"seccompProfile": CONFINED, **security}})


REFUSED = {
    "network of the node": pod({"hostNetwork": True, **MACHINE}),
    "processes of the node": pod({"hostPID": True, **MACHINE}),
    "chosen node": pod({"nodeName": "n"}),
    "privileged": pod(securityContext={"privileged": True, "allowPrivilegeEscalation": True}),
    "port of the node": pod(ports=[{"containerPort": 1, "hostPort": 1}]),
    "token of an account": pod({"automountServiceAccountToken": True}),
    "another account": pod({"serviceAccountName": "other"}),
    "token without audience": pod(held_token("")),
    "token for the API server": pod(held_token("https://kubernetes.default.svc")),
    # Rights that own the kernel, or open any file of the node.
    "SYS_MODULE": added("SYS_MODULE"),
    "DAC_READ_SEARCH": added("DAC_READ_SEARCH"),
    "every capability": added("ALL"),
    "default capabilities": pod(securityContext={"capabilities": {}}),
    "escalation": pod(securityContext={"allowPrivilegeEscalation": True}),
    # Nothing between a program and the node's kernel.
    "users of the node": pod({"hostUsers": True}),
    "users of the node by default": pod({"hostUsers": None}),
    "users of the node in no machine": pod({"hostUsers": None, "runtimeClassName": "runc"}),
    "no seccomp profile": pod({"securityContext": {}}),
    "Pod without seccomp": profiled(seccompProfile=UNCONFINED),
    "Pod without AppArmor": profiled(appArmorProfile=UNCONFINED),
    "Pod with SELinux options": profiled(seLinuxOptions={"type": "spc_t"}),
    "Pod with sysctls": profiled(sysctls=[{"name": "kernel.shm_rmid_forced", "value": "1"}]),
    "container without seccomp": pod(securityContext={"seccompProfile": UNCONFINED}),
    "container without AppArmor": pod(securityContext={"appArmorProfile": UNCONFINED}),
    "container with SELinux options": pod(securityContext={"seLinuxOptions": {"type": "spc_t"}}),
    # Files and sockets of the node.
    "root of the node": of_node("/"),
    "above the named directory": of_node("/srv"),
    "beside the named directory": of_node("/srv/models-of-others"),
    "path of any type": of_node("/srv/models", kind=""),
    "writable": of_node("/srv/models", readOnly=False),
    "writable below": of_node("/srv/models", recursiveReadOnly="Disabled"),
    "writable below by default": of_node("/srv/models", recursiveReadOnly=None),
    "socket of the runtime": of_node("/run/containerd/containerd.sock", kind="Socket"),
    "directory of a socket": of_node("/run/attestation"),
    "NFS": mounted({"nfs": {"server": "192.0.2.1", "path": "/"}}),
    "CSI": mounted({"csi": {"driver": "host.example.com"}}),
}
"""Pods that own their node, or take what is not an enclave's."""


@pytest.mark.parametrize("name", REFUSED)
async def test_the_operator_makes_no_pod_that_is_its_nodes(operator: ApiServer, name: str) -> None:
    verdict = await operator.post(PODS, REFUSED[name], dryRun="All")
    assert verdict.status == FORBIDDEN, verdict.body
    assert "'cloister-operator'" in verdict.message, verdict.message
    assert "enclave" in verdict.message


async def test_the_pods_of_enclaves_are_admitted(operator: ApiServer) -> None:
    for body in (
        pod(),
        pod(held_token(token_audience("1"))),
        pod(MACHINE),
        of_node("/srv/models"),
        of_node("/srv/models/large", recursiveReadOnly="IfPossible"),
        of_node("/run/attestation/api.sock", kind="Socket", recursiveReadOnly=None),
    ):
        await assert_admitted(operator, body)


def goldens() -> dict[str, dict[str, Any]]:
    """Return the golden manifests of Pods by name."""
    paths = sorted(GOLDENS.glob("pod-*.yaml"))
    return {each.stem: yaml.safe_load(each.read_text(encoding="utf-8")) for each in paths}


@pytest.mark.parametrize("name", goldens())
async def test_every_pod_that_the_operator_builds_is_admitted(
    operator: ApiServer, name: str
) -> None:
    await assert_admitted(operator, goldens()[name])


async def assert_admitted(operator: ApiServer, body: dict[str, Any]) -> None:
    """Check that the API server takes a Pod of the operator's account."""
    made = await operator.post(PODS, body, dryRun="All")
    assert made.accepted, made.message
