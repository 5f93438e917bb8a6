"""``cloister backup`` and ``cloister restore`` between two real API servers, with every policy.

No operator runs: what it has seen is written as it would write it.
"""

import asyncio
import base64
import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from typing_extensions import override

from cloister_api.commands.keys import create_key
from cloister_api.ledger.database import migrate, open_ledger
from cloister_api.ledger.keys.api_keys import ApiKeys
from cloister_api.ledger.keys.key_material import KeyMaterial
from cloister_api.settings import ApiSettings
from cloister_clients.clock import utc_now
from cloister_clients.kube import KindRef, KubeClient, NotFound
from cloister_clients.kube.kinds import LEASE, NAMESPACE, POD, SECRET, of
from cloister_crds.kinds import (
    Container,
    Deployment,
    Domain,
    Enclave,
    Host,
    HostnameClaim,
    Organization,
    RegistryCredential,
    SSHKey,
)
from cloister_crds.kinds import Secret as Csec
from dev import cluster as local
from tests.support.cluster.accounts import (
    SYSTEM,
    account_kubeconfig,
    install_roles,
    organization_namespace,
)
from tests.support.cluster.admission_policies import policy_documents
from tests.support.cluster.clusters import administrator, install_crds, session_name
from tests.support.faults.fault_kinds import ApiRequest, Fault
from tests.support.faults.faulty_proxy import faulty_proxy
from tests.support.programs.facade import start_facade
from tests.support.programs.published_settings import publish
from tests.support.waiting import until

COMMAND = Path(sys.executable).with_name("cloister")
PLACE = "org-acme"
USER = "ada@example.test"
APPS = KindRef("apps", "v1", "deployments", "Deployment")
PART = {"app.kubernetes.io/part-of": "cloister"}
MADE_ONCE = {"labels": PART, "annotations": {"helm.sh/resource-policy": "keep"}}
FLUX = "kustomize-controller"
KINDS = (Organization, Container, Deployment, Csec, SSHKey, RegistryCredential, Domain)
NOT_KEPT = ("what-an-enclave-was-started-with", "token-of-an-account")


def base(text: str) -> str:
    """Return a text in base64."""
    return base64.b64encode(text.encode()).decode()


@dataclass
class Installation:
    """A cluster with its ledger."""

    cluster: local.Cluster
    """The cluster."""
    folder: Path
    """Where the ledger and settings are."""
    kube: KubeClient = field(init=False)
    """An administrator."""

    @property
    def settings(self) -> Path:
        """Settings of its API."""
        return self.folder / "api.yml"

    def prepare(self, material: KeyMaterial | None) -> None:
        """Write the settings; without key material they name new one."""
        self.folder.mkdir()
        settings = {
            "kubeconfig": str(account_kubeconfig(self.cluster, "api", self.folder)),
            "listen": {"port": 0},
            "stop": {"drainSeconds": 0},
            "metrics": {"port": 0},
            "ledger": {"path": "ledger.db", "keyMaterial": "keys.json"},
            "sources": {"kind": "git", "base": str(self.folder / "repositories")},
        }
        self.settings.write_text(yaml.safe_dump(settings))
        keys = self.folder / "keys.json"
        if material is None:
            KeyMaterial.create(keys)
        else:
            material.replace(keys)

    def run(self, command: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a command as the cluster's administrator."""
        return subprocess.run(
            [str(COMMAND), command, *map(str, arguments)],
            env={**os.environ, "KUBECONFIG": str(self.cluster.kubeconfig)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


def started(name: str) -> local.Cluster:
    """Start a control plane with kinds, accounts and roles."""
    found = local.up(name, node=False)
    install_crds(found)
    install_roles(found)
    return found


@pytest.fixture(scope="module")
def clusters(worker_id: str) -> Iterator[tuple[local.Cluster, local.Cluster]]:
    """Provide two control planes of our own: a backup is of a whole cluster."""
    names = [f"{session_name()}-{what}-{worker_id}" for what in ("source", "target")]
    with ThreadPoolExecutor() as pool:
        source, target = pool.map(started, names)
    yield source, target
    for name in names:
        local.down(name)


def objects() -> list[tuple[KindRef, str | None, dict[str, Any], dict[str, Any]]]:
    """Return kinds, namespaces, objects and statuses of an installation, owners first."""
    csec = {"name": "API_KEY", "secretRef": {"name": "api-key"}}
    ghcr = {"registry": "ghcr", "secretRef": {"name": "ghcr", "key": ".dockerconfigjson"}}
    organization = {
        "namespace": PLACE,
        "members": [{"user": USER, "role": "Admin"}],
        "billing": {"containerSubscription": True, "customerID": "cus_1"},
    }
    paid = {"containerSubscription": True, "tokenBilling": True, "customerID": "cus_1"}
    web = {"repo": "acme/web", "tag": "v1.1.0", "staging": True, "secrets": ["API_KEY"]}
    update = {"enclave": "web-b-1", "revision": "b", "tag": "v1.1.0", "status": "ready"}
    serving = {
        "phase": "ready",
        "activeEnclave": "web-a-1",
        "currentTag": "v1.0.0",
        "currentCommit": "1" * 40,
        "requestedTag": "v1.1.0",
        "staging": False,
        "update": update,
    }
    at = "2026-11-20T00:00:00Z"
    verified = {"verified": True, "verifiedAt": at, "checkedAt": at, "cnameConfigured": True}
    finalized = {"name": "acme", "finalizers": ["cloister.dev/namespace"]}
    holder = {"holder": {"namespace": PLACE, "name": "web"}}

    def named(name: str, spec: dict[str, Any]) -> dict[str, Any]:
        return {"metadata": {"name": name}, "spec": spec}

    return [
        (of(Host), None, named("plain", {"tee": "None", "default": True}), {}),
        (
            of(Organization),
            None,
            {"metadata": finalized, "spec": organization},
            {"billing": paid, "counts": {"containers": 2}},
        ),
        (of(HostnameClaim), None, named("app.example.com", holder), {}),
        (of(Deployment), PLACE, named("web", {"repo": "acme/web"}), {}),
        (of(Csec), PLACE, named("api-key", csec), {"usedBy": ["web"]}),
        (of(SSHKey), PLACE, named("ada", {"publicKey": "ssh-ed25519 AAAA ada"}), {}),
        (of(RegistryCredential), PLACE, named("ghcr", ghcr), {"username": "bot"}),
        (of(Domain), PLACE, named("app", {"domain": "app.example.com"}), verified),
        (of(Container), PLACE, named("web", web), serving),
        (of(Container), PLACE, named("next", web | {"replaces": "web"}), {}),
    ]


async def fill(source: Installation) -> None:
    """Create what an installation has."""
    kube, cluster = source.kube, source.cluster
    for kind, body in organization_namespace("acme"):
        await kube.create(kind, body)
    made: dict[tuple[str, str], dict[str, Any]] = {}
    for ref, namespace, body, status in objects():
        live = await kube.create(ref, body, namespace)
        made[ref.kind, body["metadata"]["name"]] = live
        if status:
            patch = {"status": {"observedGeneration": 1, **status}}
            await kube.merge_patch(
                ref, body["metadata"]["name"], patch, namespace, subresource="status"
            )
    uid = made["Container", "web"]["metadata"]["uid"]
    replaces = {"metadata": {"annotations": {"cloister.dev/replaces-uid": uid}}}
    await kube.merge_patch(of(Container), "next", replaces, PLACE)
    enclave = {
        "container": {"name": "web", "uid": uid},
        "request": {"repo": "acme/web", "tag": "v1.0.0", "secrets": ["API_KEY"]},
        "revision": "a",
        "attempt": 1,
        "repo": "acme/web",
        "tag": "v1.0.0",
        "commit": "1" * 40,
        "configDigest": f"sha256:{'0' * 64}",
        "configFile": "service-config.yml",
        "host": "plain",
        "summary": {"cpus": 2, "memoryMB": 8192, "containers": ["web"]},
    }
    await kube.create(of(Enclave), {"metadata": {"name": "web-a-1"}, "spec": enclave}, PLACE)
    owner = Csec.read(made["Secret", "api-key"]).owner_reference()
    value_of = {"cloister.dev/value-of": "secret"}
    for name, metadata, value in (
        ("api-key", {"labels": value_of, "ownerReferences": [owner]}, "hunter2-of-acme"),
        ("ghcr", {}, "password-of-ghcr"),
        ("snapshot", {"labels": {"cloister.dev/enclave": "web-a-1"}}, NOT_KEPT[0]),
    ):
        key = ".dockerconfigjson" if name == "ghcr" else "value"
        body = {"metadata": {"name": name, **metadata}, "data": {key: base(value)}}
        await kube.create(SECRET, body, PLACE)
    token = {"name": "token", "annotations": {"kubernetes.io/service-account.name": "default"}}
    await until(lambda: _has_account(cluster))
    of_account = {"type": "kubernetes.io/service-account-token"}
    note = {"data": {"note": base(NOT_KEPT[1])}}
    await kube.create(SECRET, {"metadata": token, **of_account, **note}, PLACE)
    await keys(source, "installation-key-of-source")
    # Of a Container that a repository manages: its tool goes on to own its fields.
    async with KubeClient(kube.config, field_manager=FLUX, user_agent="tests") as flux:
        spec = {"repo": "acme/web", "tag": "v1.0.0"}
        managed = {"metadata": {"name": "managed"}, "spec": spec}
        await flux.apply(of(Container), managed, PLACE)


async def _has_account(cluster: local.Cluster, namespace: str = PLACE) -> bool:
    """Return whether a namespace has its account."""
    arguments = ("get", "serviceaccount", "default", "-n", namespace, "-o", "name")
    return "default" in await asyncio.to_thread(cluster.kubectl, *arguments, check=False)


async def keys(there: Installation, value: str) -> None:
    """Create the Secret with the keys as the chart does, and a Deployment that names it."""
    data = {"installation-key": base(value)}
    metadata = {"name": "cloister-keys", **MADE_ONCE}
    await there.kube.create(SECRET, {"metadata": metadata, "data": data}, SYSTEM)
    pod = {
        "containers": [{"name": "operator", "image": "example.invalid/operator"}],
        "volumes": [{"name": "keys", "secret": {"secretName": "cloister-keys"}}],
    }
    labels = {"app": "operator"}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    body = {"metadata": {"name": "cloister-operator", "labels": PART}, "spec": spec}
    await there.kube.create(APPS, body, SYSTEM)


class KilledAt(Fault):
    """Kill a process with its n-th write, whose response it never sees."""

    def __init__(self, number: int, pid: int) -> None:
        self._left = number
        self._pid = pid

    @override
    async def after(self, request: ApiRequest, status: int) -> None:
        if request.writes:
            self._left -= 1
            if self._left <= 0:
                os.kill(self._pid, signal.SIGKILL)
                raise ConnectionResetError("the process is dead")


def restore_killed(target: Installation, archive: Path, number: int) -> int:
    """Restore through a proxy that kills the command, and return its exit code."""
    with faulty_proxy(target.cluster.kubeconfig, target.folder) as proxy:
        kubeconfig = proxy.open_port(f"restore-{number}").kubeconfig
        options = ["--kubeconfig", kubeconfig, "--config", target.settings]
        command = [str(each) for each in (COMMAND, "restore", archive, *options)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            proxy.faults = (KilledAt(number, process.pid),)
            return process.wait(60)


def refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """Assert that a command refused, and why."""
    assert done.returncode == 1, done.stdout
    for word in words:
        assert word in done.stderr


async def test_an_installation_is_restored_into_an_empty_cluster(
    clusters: tuple[local.Cluster, local.Cluster], tmp_path: Path
) -> None:
    source, target = (
        Installation(each, tmp_path / name)
        for each, name in zip(clusters, ("source", "target"), strict=True)
    )
    source.prepare(None)
    material = KeyMaterial.read(source.folder / "keys.json")
    target.prepare(material)
    async with contextlib.AsyncExitStack() as stack:
        for each in (source, target):
            config = administrator(each.cluster.kubeconfig)
            client = KubeClient(config, field_manager="tests", user_agent="tests")
            each.kube = await stack.enter_async_context(client)
        await fill(source)
        await keys(target, "installation-key-of-target")
        manifests = yaml.safe_dump_all(policy_documents())
        target.cluster.kubectl("apply", "--server-side", "-f", "-", stdin=manifests)
        admin_key, regular_key = await issue(source)
        archive = tmp_path / "backup.tar.gz"
        back_up(source, archive)
        await refuses_what_is_not_empty(source, target, archive)
        await restore_in_pieces(target, archive)
        await compare(source, target)
        await serves(source, target, admin_key, regular_key)


async def issue(source: Installation) -> tuple[str, str]:
    """Issue an admin key and a regular key."""
    settings = ApiSettings.read(source.settings)
    organization = await source.kube.get(of(Organization), "acme")
    migrate(source.folder / "ledger.db")
    admin_key = await create_key(settings, "acme", USER, "first", None)
    engine = open_ledger(source.folder / "ledger.db")
    material = KeyMaterial.read(source.folder / "keys.json")
    _, regular_key = await ApiKeys(engine, material).create(
        organization="acme",
        organization_id=organization["metadata"]["uid"],
        user=USER,
        name="ci",
        now=utc_now(),
    )
    await engine.dispose()
    return admin_key, regular_key


def back_up(source: Installation, archive: Path) -> None:
    """Write a backup, and look into it."""
    done = source.run("backup", archive, "--config", source.settings)
    assert done.returncode == 0, done.stderr
    assert "3 containers" in done.stderr
    assert "not in it" not in done.stderr
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    with tarfile.open(archive) as opened:
        text = "".join(
            found.read().decode(errors="replace")
            for each in opened.getmembers()
            if (found := opened.extractfile(each)) is not None
        )
    assert base("hunter2-of-acme") in text
    assert base("installation-key-of-source") in text
    assert not [each for each in NOT_KEPT if base(each) in text]
    assert '"kind":"Enclave","metadata"' not in text


async def refuses_what_is_not_empty(
    source: Installation, target: Installation, archive: Path
) -> None:
    """See that nothing is restored where something would be lost."""
    options = (archive, "--config", target.settings)
    refused(source.run("restore", *options), "the cluster is not empty: there is Organization acme")
    lease = {
        "holderIdentity": "operator-7",
        "leaseDurationSeconds": 60,
        "renewTime": f"{utc_now():%Y-%m-%dT%H:%M:%S.%fZ}",
    }
    await target.kube.create(
        LEASE, {"metadata": {"name": "cloister-operator"}, "spec": lease}, SYSTEM
    )
    refused(target.run("restore", *options), "an operator runs (operator-7)", "--replicas=0")
    await target.kube.delete(LEASE, "cloister-operator", SYSTEM)
    labels = {**PART, "app.kubernetes.io/component": "operator"}
    closed = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    pod = {
        "containers": [
            {"name": "operator", "image": "example.invalid/operator", "securityContext": closed}
        ],
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    }
    body = {"metadata": {"name": "standby", "labels": labels}, "spec": pod}
    await until(lambda: _has_account(target.cluster, SYSTEM))
    await target.kube.create(POD, body, SYSTEM)
    refused(target.run("restore", *options), "an operator runs (Pod standby)")
    await target.kube.delete(POD, "standby", SYSTEM, grace_period=0)
    done = target.run("restore", *options, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "can be restored: " in done.stdout
    with pytest.raises(NotFound):
        await target.kube.get(NAMESPACE, PLACE)


async def restore_in_pieces(target: Installation, archive: Path) -> None:
    """Restore, killed with its first write and once more later; then to the end."""
    for number in (1, 14):
        code = await asyncio.to_thread(restore_killed, target, archive, number)
        assert code == -signal.SIGKILL
        lease = await target.kube.get(LEASE, "cloister-operator", SYSTEM)
        assert lease["spec"]["holderIdentity"] == "cloister-restore"
        held = lease["metadata"]["annotations"]["cloister.dev/restores"]
    options = (archive, "--config", target.settings)
    for digest in ("another", held):
        change = {"metadata": {"annotations": {"cloister.dev/restores": digest}}}
        await target.kube.merge_patch(LEASE, "cloister-operator", change, SYSTEM)
        if digest != held:
            refused(target.run("restore", *options), "the restore of another archive was begun")
    done = target.run("restore", *options)
    assert done.returncode == 0, done.stderr
    assert "identifiers, specs, values and sums are those of the backup" in done.stdout
    with pytest.raises(NotFound):
        await target.kube.get(LEASE, "cloister-operator", SYSTEM)


async def compare(source: Installation, target: Installation) -> None:
    """Compare what users see of both."""
    before, after = [await seen(each.kube) for each in (source, target)]
    assert after == before
    domain = await target.kube.get(of(Domain), "app", PLACE)
    assert domain["status"]["verified"] is True
    assert "checkedAt" not in domain["status"]
    organization = await target.kube.get(of(Organization), "acme")
    assert organization["status"]["billing"]["tokenBilling"] is True
    assert organization["metadata"]["finalizers"] == ["cloister.dev/namespace"]
    web = Container.read(await target.kube.get(of(Container), "web", PLACE))
    assert web.status.current_tag == "v1.0.0"
    assert web.status.kept_request is not None
    assert web.status.kept_request.request.tag == "v1.0.0"
    assert (web.status.observed_generation, web.status.active_enclave) == (-1, "")
    following = await target.kube.get(of(Container), "next", PLACE)
    replaced = following["metadata"]["annotations"]["cloister.dev/replaces-uid"]
    assert replaced == web.metadata.uid
    csec = await target.kube.get(of(Csec), "api-key", PLACE)
    core = await target.kube.get(SECRET, "api-key", PLACE)
    assert core["metadata"]["ownerReferences"][0]["uid"] == csec["metadata"]["uid"]
    installation = await target.kube.get(SECRET, "cloister-keys", SYSTEM)
    assert installation["data"] == {"installation-key": base("installation-key-of-source")}
    managed = await target.kube.get(of(Container), "managed", PLACE)
    managers = [
        (each["manager"], each["operation"])
        for each in managed["metadata"]["managedFields"]
        if "subresource" not in each
    ]
    assert managers == [(FLUX, "Apply")]
    assert not (await target.kube.list(of(Enclave))).items


async def seen(kube: KubeClient) -> dict[str, Any]:
    """Return identifiers, specs and values."""
    found: dict[str, Any] = {}
    for kind in KINDS:
        for body in (await kube.list(of(kind))).items:
            record = kind.read(body)
            place = f"{kind.__name__} {record.metadata.name}"
            found[place] = (record.identifier, json.dumps(body["spec"], sort_keys=True))
    for body in (await kube.list(SECRET, PLACE)).items:
        name = body["metadata"]["name"]
        if name not in {"snapshot", "token"}:
            found[f"core {name}"] = (body["type"], body["data"])
    for body in (await kube.list(of(HostnameClaim))).items:
        found[f"claim {body['metadata']['name']}"] = body["spec"]
    return found


async def serves(
    source: Installation, target: Installation, admin_key: str, regular_key: str
) -> None:
    """Let an API use what was restored: keys are known, records are those that they were."""
    before = await source.kube.list(of(Container), PLACE)
    ids = {each["metadata"]["name"]: each["metadata"]["uid"] for each in before.items}
    publish(target.cluster, "containers.test")
    with start_facade(target.settings) as facade:
        async with facade.client(admin_key) as client:
            answer = await client.get("/api/containers")
            assert answer.status_code == 200, answer.text
            # One that is being replaced is not listed.
            listed = {each["name"]: (each["id"], each["internal_domain"]) for each in answer.json()}
            assert listed == {
                name: (ids[name], f"{name}.acme.containers.test") for name in ("next", "managed")
            }
            replaced = await client.get(f"/api/containers/{ids['web']}")
            assert replaced.json()["current_tag"] == "v1.0.0", replaced.text
        async with facade.client() as client:
            for key, status in ((regular_key, 200), (f"{regular_key[:-8]}AAAAAAAA", 401)):
                checked = await client.post("/api/shim/validate-key", json={"api_key": key})
                assert checked.status_code == status, checked.text
