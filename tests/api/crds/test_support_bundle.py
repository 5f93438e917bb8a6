"""``cloister support-bundle`` on a real API server: no secret is in it, wherever one is planted."""

import base64
import contextlib
import json
import stat
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from cloister_clients.kube import AlreadyExists, KindRef, KubeClient
from cloister_clients.kube.kinds import CONFIG_MAP, EVENT, NAMESPACE, POD, SECRET, of
from cloister_crds.kinds import Container, Organization
from dev.cluster import Cluster
from tests.support.cluster.clusters import administrator, unique

COMMAND = Path(sys.executable).with_name("cloister")
SYSTEM = "cloister-system"
OURS = {"app.kubernetes.io/managed-by": "cloister"}
SERVICE_ACCOUNT = KindRef("", "v1", "serviceaccounts", "ServiceAccount")
SHORT_TOKEN = "eyJhbGciOiJub25l.eyJzdWIiOiJhIn0.c2lnbmF0dXJl"


def canary(place: str) -> str:
    """Return a secret that names where it was planted."""
    return f"canary-{place}-8d1f"


PLACES = (
    *("variable", "core-secret", "docker-password", "config-map", "annotation", "label"),
    *("pod-value", "pod-command", "event", "customer", "member", "applied", "system-secret"),
)


def planted(slug: str) -> list[tuple[KindRef, str | None, dict[str, Any]]]:
    """Return objects with secrets everywhere, and where they are created."""
    namespace = f"org-{slug}"
    docker = {"auths": {"ghcr.io": {"password": canary("docker-password")}}}
    applied = {"kubectl.kubernetes.io/last-applied-configuration": canary("applied")}
    foreign = {
        "labels": {"team.example/token": canary("label")},
        "annotations": {**applied, "team.example/note": canary("annotation")},
    }
    values = {"password": canary("core-secret"), ".dockerconfigjson": json.dumps(docker)}
    pod = {
        "containers": [
            {
                "name": "web",
                "image": "registry.invalid/web",
                "command": ["web", canary("pod-command")],
                "env": [{"name": "TOKEN", "value": canary("pod-value")}],
            }
        ]
    }
    event = {
        "metadata": {"name": "planted"},
        "eventTime": "2026-11-25T00:00:00.000000Z",
        "reportingController": "tests",
        "reportingInstance": "tests",
        "action": "Test",
        "reason": "Test",
        "type": "Normal",
        "note": f"pulled with {canary('core-secret')}, Bearer {SHORT_TOKEN}",
        "regarding": {"kind": "Pod", "name": "web", "namespace": namespace},
    }
    variable = {"name": "GREETING", "value": canary("variable")}
    container = {"repo": "acme/web", "tag": "v1.0.0", "variables": [variable]}
    organization = {
        "namespace": namespace,
        "members": [{"user": f"{canary('member')}@example.test", "role": "Admin"}],
        "billing": {"containerSubscription": True, "customerID": f"cus_{canary('customer')}"},
    }
    key = secret(f"keys-{slug}", {"key": canary("system-secret")})
    file = {"metadata": {"name": "file", "labels": OURS}, "data": {"f": canary("config-map")}}
    named = f"web-{slug}"
    return [
        (SECRET, namespace, secret("values", values)),
        (SECRET, SYSTEM, key),
        (CONFIG_MAP, namespace, file),
        (SERVICE_ACCOUNT, namespace, {"metadata": {"name": "default"}}),
        (POD, namespace, {"metadata": {"name": "web", "labels": OURS}, "spec": pod}),
        (EVENT, namespace, event),
        (of(Organization), None, {"metadata": {"name": slug, **foreign}, "spec": organization}),
        (of(Container), namespace, {"metadata": {"name": named, **foreign}, "spec": container}),
    ]


def secret(name: str, values: dict[str, str]) -> dict[str, Any]:
    """Return a core Secret."""
    data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
    return {"metadata": {"name": name}, "data": data}


async def test_no_planted_secret_is_in_the_bundle(api_cluster: Cluster, tmp_path: Path) -> None:
    slug = unique("bundle")
    config = administrator(api_cluster.kubeconfig)
    async with KubeClient(config, field_manager="tests", user_agent="tests") as kube:
        labels = {"cloister.dev/organization": slug}
        await kube.create(NAMESPACE, {"metadata": {"name": f"org-{slug}", "labels": labels}})
        with contextlib.suppress(AlreadyExists):
            await kube.create(NAMESPACE, {"metadata": {"name": SYSTEM}})
        objects = planted(slug)
        for kind, namespace, body in objects:
            with contextlib.suppress(AlreadyExists):
                await kube.create(kind, body, namespace)
        try:
            files = bundle(api_cluster, tmp_path / "bundle.tar.gz")
        finally:
            for kind, namespace, body in objects:
                await kube.delete(kind, body["metadata"]["name"], namespace)
            await kube.delete(NAMESPACE, f"org-{slug}")
    everything = "\n".join(f"{name}\n{text}" for name, text in files.items())
    for place in PLACES:
        plain = canary(place)
        assert plain not in everything, place
        assert base64.b64encode(plain.encode()).decode()[:-4] not in everything, place
    assert SHORT_TOKEN not in everything
    # What somebody who helps needs is there.
    (container,) = (
        each
        for each in json.loads(files["objects/containers.json"])
        if each["metadata"]["name"] == f"web-{slug}"
    )
    assert container["spec"]["variables"] == [{"name": "GREETING", "value": "[redacted]"}]
    assert '"TOKEN"' in files["enclaves/pods.json"]
    assert "pulled with [redacted]" in files[f"events/org-{slug}.json"]
    assert json.loads(files["doctor.json"])["findings"]
    assert "storedVersions" in files["cluster/kinds.json"]


def bundle(cluster: Cluster, path: Path) -> dict[str, str]:
    """Run the command, and return the files of the archive."""
    options = ["--kubeconfig", str(cluster.kubeconfig), "--output", str(path)]
    command = [str(COMMAND), "support-bundle", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert again.returncode == 1
    assert "File exists" in again.stderr
    found = {}
    with tarfile.open(path) as archive:
        for member in archive.getmembers():
            content = archive.extractfile(member)
            assert content is not None
            found[member.name.removeprefix("bundle/")] = content.read().decode()
    return found


@pytest.mark.parametrize("arguments", [("--version",), ("doctor", "--help")])
def test_kubectl_runs_it_as_a_plugin(api_cluster: Cluster, arguments: tuple[str, ...]) -> None:
    done = subprocess.run(
        [api_cluster.bin("kubectl"), "cloister", *arguments],
        env={"PATH": f"{COMMAND.parent}:/usr/bin:/bin", "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(("cloister ", "Usage: kubectl cloister doctor"))
