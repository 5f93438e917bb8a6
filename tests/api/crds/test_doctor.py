"""``cloister doctor`` against a real API server: what is right passes, what is broken is named."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from cloister_cli.doctor.access import NEEDED
from cloister_crds.names import RESTORE_HOLDER, RESTORES_ANNOTATION
from tests.support.cluster.admission_policies import MANIFESTS, policy_documents
from tests.support.cluster.api_server import ApiServer
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

COMMAND = Path(sys.executable).with_name("cloister")
ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/cloister-operator"
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/sshkeys.cloister.dev"
SSH_KEYS = "/apis/cloister.dev/v1alpha1/sshkeys"
NOT_FOUND = 404
LEASES = "/apis/coordination.k8s.io/v1/namespaces/cloister-system/leases"
BINDING = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/cloister-tokens"


class Diagnosis:
    """What one run of the command printed."""

    def __init__(self, kubeconfig: Path, *arguments: str) -> None:
        done = subprocess.run(
            [COMMAND, "doctor", "--kubeconfig", kubeconfig, "--output", "json", *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "NO_COLOR": "1"},
        )
        assert done.stdout, done.stderr
        self.code = done.returncode
        """Exit code."""
        self.document: dict[str, Any] = json.loads(done.stdout)
        """The document."""

    def of(self, level: str) -> dict[str, str]:
        """Return the messages of a level by check; only what is wrong has a remedy."""
        found = [each for each in self.document["findings"] if each["level"] == level]
        assert all(bool(each["remedy"]) == (level != "pass") for each in found)
        return {each["check"]: each["message"] for each in found}


def rewritten(kubeconfig: Path, path: Path, **changes: dict[str, str]) -> Path:
    """Write a kubeconfig with changes of its user or cluster."""
    document = yaml.safe_load(kubeconfig.read_text())
    for part, change in changes.items():
        document[f"{part}s"][0][part] |= change
    path.write_text(yaml.safe_dump(document))
    return path


@asynccontextmanager
async def changed(admin: ApiServer, path: str, body: dict[str, Any] | None) -> AsyncIterator[None]:
    """Replace (or, with None, delete) an object while the block runs."""
    before = (await admin.get(path)).body
    if body is None:
        await admin.delete(path)

        async def gone() -> bool:
            return (await admin.get(path)).status == NOT_FOUND

        await until(gone, what=f"the end of {path}")
    else:
        await admin.apply(body, path)
    try:
        yield
    finally:
        kept = {key: before["metadata"][key] for key in ("name", "labels")}
        document = {key: before[key] for key in before if key not in {"status", "metadata"}}
        await admin.apply({**document, "metadata": kept}, path)
        if path == CRD:
            await until(lambda: established(admin), what="the kind is served again")


async def established(admin: ApiServer) -> bool:
    """Return whether the server serves the kind that was deleted."""
    conditions = (await admin.get(CRD)).body.get("status", {}).get("conditions") or ()
    found = {each["type"]: each["status"] for each in conditions}
    return found.get("Established") == "True" and (await admin.get(SSH_KEYS)).accepted


async def test_a_right_installation_passes(policed: ApiServer, guarded: Path) -> None:
    found = Diagnosis(guarded)
    assert found.code == 0
    assert found.of("fail") == {}
    passed = found.of("pass")
    assert {"kubernetes", "kinds", "policies", "forbidden write", "clock"} <= passed.keys()
    assert passed["restore"] == "none is unfinished"
    assert {"rights of cloister-operator", "rights of cloister-api"} <= passed.keys()
    # No node is there, and no settings were named.
    expected = {"nodes", "settings"}
    assert found.of("warn").keys() == expected
    assert found.document["failed"] == 0


async def test_the_account_of_the_operator_asks_for_itself(
    policed: ApiServer, guarded: Path, tmp_path: Path
) -> None:
    account = "system:serviceaccount:cloister-system:cloister-operator"
    path = rewritten(guarded, tmp_path / "operator", user={"as": account})
    found = Diagnosis(path)
    assert found.of("fail") == {}
    assert found.of("pass")["rights of cloister-operator"].startswith(account)
    assert "rights of cloister-api" not in found.of("pass")
    assert "forbidden write" in found.of("pass")


async def test_what_the_account_of_the_api_may_not_see_is_not_said_to_be_missing(
    policed: ApiServer, guarded: Path, tmp_path: Path
) -> None:
    account = "system:serviceaccount:cloister-system:cloister-api"
    found = Diagnosis(rewritten(guarded, tmp_path / "api", user={"as": account}))
    assert found.of("pass")["rights of cloister-api"].startswith(account)
    # One line, so that `helm test` of a healthy installation shows what is wrong with it.
    assert found.of("warn") == {
        "other checks": "this account may not read what they need: kinds, policies, "
        "forbidden write, restore, nodes",
        "settings": "what they name was not checked",
    }


async def test_accounts_of_other_names_are_asked_about(policed: ApiServer, guarded: Path) -> None:
    found = Diagnosis(guarded, "--operator-account", "other", "--api-account", "cloister-api")
    assert found.code == 1
    message = found.of("fail")["rights of other"]
    assert message.startswith("system:serviceaccount:cloister-system:other may not ")
    assert "rights of cloister-api" in found.of("pass")


async def test_a_policy_that_does_not_deny_is_found_and_tried(
    policed: ApiServer, guarded: Path
) -> None:
    (binding,) = [
        each
        for each in policy_documents()
        if each["metadata"]["name"] == "cloister-tokens" and "policyName" in each["spec"]
    ]
    audited = {**binding, "spec": {**binding["spec"], "validationActions": ["Audit"]}}
    async with changed(policed, BINDING, audited):
        seen: list[Diagnosis] = []

        def fails() -> bool:
            seen.append(Diagnosis(guarded))
            return "forbidden write" in seen[-1].of("fail")

        async def taken() -> bool:
            return fails()

        await until(taken, what="the policy is off")
        assert seen[-1].code == 1
        assert seen[-1].of("fail").keys() == {"policy cloister-tokens", "forbidden write"}

    async def restored() -> bool:
        return not fails()

    await until(restored, what="the policy is in force again")


async def test_a_kind_that_is_missing_is_found(policed: ApiServer, guarded: Path) -> None:
    async with changed(policed, CRD, None):
        found = Diagnosis(guarded)
        assert found.code == 1
        assert found.of("fail") == {"kind sshkeys.cloister.dev": "it does not exist"}


async def test_a_restore_that_is_unfinished_is_found(policed: ApiServer, guarded: Path) -> None:
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "restored", "annotations": {RESTORES_ANNOTATION: "sha256:0abc"}},
        "spec": {"holderIdentity": RESTORE_HOLDER},
    }
    await policed.apply(lease, LEASES + "/restored")
    try:
        found = Diagnosis(guarded, "--lease", "restored")
    finally:
        await policed.delete(LEASES + "/restored")
    assert found.code == 1
    message = found.of("fail")["restore"]
    assert "sha256:0abc" in message
    assert "Lease cloister-system/restored, so no operator leads" in message


async def test_a_right_that_is_missing_is_found(policed: ApiServer, guarded: Path) -> None:
    role = next(
        each
        for each in yaml.safe_load_all((MANIFESTS / "roles" / "operator.yaml").read_text())
        if each["kind"] == "ClusterRole"
    )
    rules = [each for each in role["rules"] if each["resources"] != ["nodes"]]
    async with changed(policed, ROLE, {**role, "rules": rules}):

        async def named() -> bool:
            found = Diagnosis(guarded).of("fail")
            return "may not list nodes, watch nodes" in found.get("rights of cloister-operator", "")

        await until(named, what="the missing right")


async def test_a_server_that_does_not_respond_is_a_failure(guarded: Path, tmp_path: Path) -> None:
    path = rewritten(guarded, tmp_path / "nowhere", cluster={"server": "https://127.0.0.1:1"})
    found = Diagnosis(path)
    assert found.code == 1
    assert found.of("fail").keys() == {"kubernetes"}


async def test_the_rights_are_those_of_the_roles() -> None:
    for program, needed in NEEDED.items():
        listed = {
            (each.scope.name, each.group, resource, verb, name)
            for each in needed
            for resource in each.resources.split()
            for verb in each.verbs.split()
            for name in each.names.split() or [""]
        }
        assert listed == set(shipped(program))


def shipped(program: str) -> list[tuple[str, str, str, str, str]]:
    """Return the rights of a program in the manifests; utilization is a choice."""
    scopes = {None: "EVERYWHERE", "cloister-system": "SYSTEM", "kube-node-lease": "NODE_LEASES"}
    found = []
    for role in yaml.safe_load_all((MANIFESTS / "roles" / f"{program}.yaml").read_text()):
        name = role["metadata"]["name"]
        if role["kind"] not in {"Role", "ClusterRole"} or name.endswith("-utilization"):
            continue
        scope = scopes[role["metadata"].get("namespace")]
        if name.endswith("-organization"):
            scope = "ORGANIZATION"
        found += [
            (scope, group, resource, verb, object_name)
            for rule in role["rules"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
            for object_name in rule.get("resourceNames", [""])
        ]
    return found
