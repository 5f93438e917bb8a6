"""The chart on a real API server: installed over what kubectl made, upgraded, deleted, found again.

There is no node: Pods are created, and judged by Pod Security, but do not run.
"""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cloister_api.certificates.authority import CertificateAuthority
from cloister_api.ledger.keys.key_material import KeyMaterial
from cloister_crds.installation import InstallationSettings
from dev import cluster as local
from tests.support.cluster.accounts import SYSTEM, install_roles
from tests.support.cluster.clusters import install_crds, session_name
from tests.support.programs.facade import run_command
from tests.support.programs.helm import FULL, LEAST, Helm, objects
from tests.support.waiting import until_sync

pytestmark = pytest.mark.programs("helm")

RESTRICTED = "pod-security.kubernetes.io/enforce=restricted"
MADE_ONCE: dict[str, Any] = LEAST | {"authority": {"enabled": True}, "checks": {"upgrade": False}}
"""Values with which the chart makes every Secret itself, and asks for no Pod that runs."""


@pytest.fixture(scope="module")
def own_cluster(worker_id: str) -> Iterator[local.Cluster]:
    """Provide a control plane of our own: the chart has what the whole cluster shares."""
    name = f"{session_name()}-chart-{worker_id}"
    yield local.up(name, node=False)
    local.down(name)


@pytest.fixture(scope="module")
def installed(own_cluster: local.Cluster, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Provide an installation by the chart, over kinds and roles that kubectl made."""
    install_crds(own_cluster)
    install_roles(own_cluster)
    own_cluster.kubectl("label", "--overwrite", "namespace", SYSTEM, RESTRICTED)
    helm = Helm(tmp_path_factory.mktemp("helm"), own_cluster.kubeconfig)
    assert "invalid ownership metadata" in refused(helm, "install", MADE_ONCE)
    done(helm, "install", MADE_ONCE, "--take-ownership", "--force-conflicts")
    return helm


def done(helm: Helm, command: str, values: dict[str, Any], *arguments: str) -> None:
    """Run a command of Helm that must succeed."""
    found = helm.on_chart(command, values, *arguments)
    assert found.returncode == 0, found.stderr


def refused(helm: Helm, command: str, values: dict[str, Any], *arguments: str) -> str:
    """Run a command of Helm that must fail, and return why it does."""
    found = helm.on_chart(command, values, *arguments)
    assert found.returncode != 0, found.stdout
    return found.stderr


def names(cluster: local.Cluster, kinds: str) -> set[str]:
    """Return the names of our objects of some kinds, in the cluster or the chart's namespace."""
    label = "app.kubernetes.io/part-of=cloister"
    return set(cluster.kubectl("get", kinds, "-n", SYSTEM, "-l", label, "-o", "name").split())


def secret(cluster: local.Cluster, name: str) -> dict[str, str]:
    """Return the data of a Secret, in base64."""
    data: dict[str, str] = json.loads(
        cluster.kubectl("get", "secret", name, "-n", SYSTEM, "-o", "jsonpath={.data}")
    )
    return data


def write_secret(cluster: local.Cluster, name: str, folder: Path) -> None:
    """Write a Secret into files, as its owner has them."""
    for key in secret(cluster, name):
        text = cluster.kubectl(
            *("get", "secret", name, "-n", SYSTEM),
            *("-o", f"go-template={{{{index .data {json.dumps(key)} | base64decode}}}}"),
        )
        path = folder / key
        path.touch(mode=0o600)
        path.write_text(text)


def pods(cluster: local.Cluster, program: str) -> list[str]:
    """Return the names of the Pods of a program."""
    selector = f"app.kubernetes.io/component={program}"
    return cluster.kubectl("get", "pods", "-n", SYSTEM, "-l", selector, "-o", "name").split()


def test_pods_of_both_programs_are_created_under_restricted(
    own_cluster: local.Cluster, installed: Helm
) -> None:
    for program, count in (("operator", 2), ("api", 1)):
        until_sync(
            lambda program=program, count=count: len(pods(own_cluster, program)) == count,  # type: ignore[misc]  # bound now
            what=f"{count} Pods of {program}",
        )
    bare = yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "bare", "namespace": SYSTEM},
            "spec": {"containers": [{"name": "bare", "image": "example.com/bare"}]},
        }
    )
    said = own_cluster.kubectl("apply", "--dry-run=server", "-f", "-", stdin=bare, check=False)
    assert 'violates PodSecurity "restricted' in said
    hooks = objects(installed.run("get", "hooks", installed.release).stdout)
    pods_of_hooks = [each for each in hooks.values() if each["kind"] == "Pod"]
    for job in (each for each in hooks.values() if each["kind"] == "Job"):
        template = job["spec"]["template"]
        metadata = template["metadata"] | {"name": "check", "namespace": SYSTEM}
        pods_of_hooks.append({"apiVersion": "v1", "kind": "Pod", **template, "metadata": metadata})
    assert len(pods_of_hooks) == 3
    for pod in pods_of_hooks:
        own_cluster.kubectl("apply", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(pod))


def test_mutating_policies_are_there_where_the_server_has_them(
    own_cluster: local.Cluster, installed: Helm
) -> None:
    group = ("--api-group=admissionregistration.k8s.io", "--no-headers", "-oname")
    served = "mutatingadmissionpolicies" in own_cluster.kubectl("api-resources", *group)
    manifest = installed.run("get", "manifest", installed.release).stdout
    assert ("kind: MutatingAdmissionPolicyBinding" in manifest) is served
    if served:
        found = names(own_cluster, "mutatingadmissionpolicies,mutatingadmissionpolicybindings")
        assert {name.rpartition("/")[2] for name in found} == {"cloister-managed-fields"}


def test_uninstall_leaves_what_protects_and_is_needed_again(
    own_cluster: local.Cluster, installed: Helm, tmp_path: Path
) -> None:
    """Kinds, policies and Secrets stay; the programs can use the Secrets, which never change."""
    keys = secret(own_cluster, "cloister-keys")
    authority = secret(own_cluster, "cloister-authority")
    write_secret(own_cluster, "cloister-keys", tmp_path)
    write_secret(own_cluster, "cloister-authority", tmp_path)
    KeyMaterial.read(tmp_path / "key-material")
    assert len((tmp_path / "installation-key").read_bytes()) >= 32
    CertificateAuthority.read(tmp_path / "tls.crt", tmp_path / "tls.key")
    kept = "crd,validatingadmissionpolicies,validatingadmissionpolicybindings,secrets,pvc"
    gone = "deployments,clusterroles,clusterrolebindings,services"
    before = names(own_cluster, kept)
    assert len(before) > 30
    assert names(own_cluster, gone)
    found = installed.run("uninstall", installed.release, "--no-hooks")
    assert found.returncode == 0, found.stderr
    assert names(own_cluster, kept) == before
    assert not names(own_cluster, gone)
    done(installed, "install", MADE_ONCE)
    done(installed, "upgrade", MADE_ONCE | {"operator": {"replicas": 3}})
    assert secret(own_cluster, "cloister-keys") == keys
    assert secret(own_cluster, "cloister-authority") == authority


def test_a_rollback_does_not_put_back_what_was_rotated(
    own_cluster: local.Cluster, installed: Helm
) -> None:
    """They are objects of no revision: neither an upgrade nor a rollback writes them again."""
    revision = json.loads(installed.run("status", installed.release, "-o", "json").stdout)[
        "version"
    ]
    rotated = {}
    for name, key in (("cloister-keys", "installation-key"), ("cloister-authority", "tls.key")):
        value = base64.b64encode(f"rotated {name}".encode()).decode()
        patch = json.dumps({"data": {key: value}})
        own_cluster.kubectl("patch", "secret", name, "-n", SYSTEM, "--type=merge", "-p", patch)
        rotated[name] = secret(own_cluster, name)
        assert rotated[name][key] == value
    done(installed, "upgrade", MADE_ONCE | {"operator": {"replicas": 1}})
    for name, data in rotated.items():
        assert secret(own_cluster, name) == data
    back = installed.run("rollback", installed.release, str(revision))
    assert back.returncode == 0, back.stderr
    for name, data in rotated.items():
        assert secret(own_cluster, name) == data
    parts = [("manifest", revision + number) for number in range(3)] + [("hooks", revision + 1)]
    for part, number in parts:
        shown = installed.run("get", part, installed.release, "--revision", str(number)).stdout
        held = objects(shown)
        assert held
        assert "Secret" not in {kind for kind, _, _ in held}


def test_a_release_whose_uninstall_failed_is_kept_by_the_command_of_its_check(
    own_cluster: local.Cluster, installed: Helm
) -> None:
    """Without a node the check never ends, so Helm gives up as after a refusal."""
    replicas = (
        "get",
        "deployment",
        "cloister-operator",
        "-n",
        SYSTEM,
        "-ojsonpath={.spec.replicas}",
    )
    chosen = MADE_ONCE | {"operator": {"replicas": 4}}
    done(installed, "upgrade", chosen)
    (check,) = (
        each
        for (kind, _, name), each in objects(
            installed.run("get", "hooks", installed.release).stdout
        ).items()
        if (kind, name) == ("Job", "cloister-uninstall-check")
    )
    *_, command = check["spec"]["template"]["spec"]["containers"][0]["args"]
    failed = installed.run("uninstall", installed.release, "--timeout", "2s")
    assert failed.returncode != 0
    assert "has no deployed releases" in refused(installed, "upgrade", chosen)
    program, *arguments = command.split()
    assert program == "helm"
    assert arguments[-2:] == ["-n", SYSTEM]
    kept = installed.run(*arguments[:-2])
    assert kept.returncode == 0, kept.stderr
    assert own_cluster.kubectl(*replicas) == "4"
    done(installed, "upgrade", chosen)


def test_an_upgrade_is_refused_with_a_sentence(own_cluster: local.Cluster, installed: Helm) -> None:
    """What the hook's Pod runs: versions further apart than one, and stored versions that go."""

    def check() -> Any:
        return run_command(
            *("upgrade-check", "--kubeconfig", str(own_cluster.kubeconfig)), check=False
        )

    def label(version: str) -> None:
        own_cluster.kubectl(
            *("label", "--overwrite", "deployment", "cloister-operator", "-n", SYSTEM),
            f"app.kubernetes.io/version={version}",
        )

    assert check().returncode == 0, check().stderr
    kind = ("patch", "crd", "hosts.cloister.dev", "--subresource=status", "--type=merge", "-p")
    label("0.77.0")
    own_cluster.kubectl(*kind, '{"status": {"storedVersions": ["v1alpha1", "v0"]}}')
    failed = check()
    assert failed.returncode == 1
    assert "not upgraded: the operator that runs is Cloister 0.77.0, and this is" in failed.stderr
    assert "objects of hosts.cloister.dev are stored as v0, which this version" in failed.stderr
    own_cluster.kubectl(*kind, '{"status": {"storedVersions": ["v1alpha1"]}}')
    done(installed, "upgrade", MADE_ONCE, "--force-conflicts")
    assert check().returncode == 0


def test_an_upgrade_is_refused_that_would_change_host_names(
    own_cluster: local.Cluster, installed: Helm, tmp_path: Path
) -> None:
    published = {
        "containersDomain": "old.example.com",
        "service": "cloister",
        "platform": "linux/amd64",
        "fileNames": ["service-config.yml"],
        "maxFileBytes": 1,
        "metering": False,
        "pullDeadlineSeconds": 1,
        "progressDeadlineSeconds": 1,
    }
    manifest = InstallationSettings.model_validate(published).manifest(SYSTEM)
    container = {
        "apiVersion": "cloister.dev/v1alpha1",
        "kind": "Container",
        "metadata": {"name": "moving", "namespace": "default"},
        "spec": {"repo": "acme/web", "tag": "v1"},
    }
    domain = {
        "apiVersion": "cloister.dev/v1alpha1",
        "kind": "Domain",
        "metadata": {"name": "moving", "namespace": "default"},
        "spec": {"domain": "api.example.org"},
    }

    def refusal(**settings: Any) -> str:
        (tmp_path / "operator.yaml").write_text(json.dumps(settings))
        command = ("upgrade-check", "--kubeconfig", str(own_cluster.kubeconfig))
        return run_command(*command, "--settings", str(tmp_path), check=False).stderr

    assert "would change" not in refusal(containersDomain="new.example.com")
    own_cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all([manifest, container, domain]))
    records = {"status": {"records": {"cnameTarget": "x.dns.example.com"}}}
    own_cluster.kubectl(
        *("patch", "cdom", "moving", "--subresource=status", "--type=merge", "-p"),
        json.dumps(records),
    )
    try:
        same = {"containersDomain": "old.example.com", "domains": {"target": "dns.example.com"}}
        assert "would change" not in refusal(**same)
        said = refusal(containersDomain="new.example.com", domains={"target": "dns.example.net"})
        assert (
            "containersDomain would change from old.example.com to new.example.com while there are "
            "Containers (default/moving), which serve below old.example.com"
        ) in said
        assert "domains.target would change to dns.example.net" in said
        assert "of Domains (default/moving) lead elsewhere" in said
    finally:
        own_cluster.kubectl("delete", "ctr,cdom", "moving", "-n", "default")


def test_an_upgrade_is_refused_while_what_its_settings_name_is_missing(
    own_cluster: local.Cluster, installed: Helm, tmp_path: Path
) -> None:
    files = "/etc/cloister/files"
    key, other = f"{files}/secret/cloister-keys/key-material", f"{files}/secret/cloister-keys/other"
    ledger = {"urlFile": f"{files}/secret/nosuch/url", "keyMaterial": key, "sealed": other}
    (tmp_path / "api.yaml").write_text(json.dumps({"ledger": ledger}))
    (tmp_path / "operator.yaml").write_text(json.dumps({"gateway": {"name": "public"}}))
    failed = run_command(
        *("upgrade-check", "--kubeconfig", str(own_cluster.kubeconfig)),
        *("--settings", str(tmp_path), "--priority-class", "urgent"),
        check=False,
    )
    assert failed.returncode == 1
    for sentence in (
        "the Secret nosuch does not exist in the namespace cloister-system",
        "the Secret cloister-keys has no key other",
        "the PriorityClass urgent does not exist",
        "the cluster has no kind tlsroutes.gateway.networking.k8s.io",
    ):
        assert sentence in failed.stderr
    assert "key-material" not in failed.stderr


def test_a_second_installation_is_refused(own_cluster: local.Cluster, installed: Helm) -> None:
    own_cluster.kubectl("create", "namespace", "second", check=False)
    other = Helm(installed.folder, own_cluster.kubeconfig, namespace="second")
    assert f"Cloister is installed already, in the namespace {SYSTEM}" in refused(
        other, "install", MADE_ONCE
    )
    beside = Helm(installed.folder, own_cluster.kubeconfig, release="again")
    assert "Cloister is installed already, as the release cloister" in refused(
        beside, "install", MADE_ONCE
    )


def test_an_upgrade_does_not_undo_the_autoscaler(
    own_cluster: local.Cluster, installed: Helm
) -> None:
    values = {key: each for key, each in FULL.items() if key != "keys"}
    values["checks"] = {"upgrade": False}
    done(installed, "upgrade", values)
    own_cluster.kubectl("scale", "deployment/cloister-api", "-n", SYSTEM, "--replicas=4")
    done(installed, "upgrade", values | {"networkPolicy": {"enabled": False}})
    shown = own_cluster.kubectl(
        *("get", "deployment", "cloister-api", "-n", SYSTEM),
        *("-o", "jsonpath={.spec.replicas}"),
    )
    assert shown == "4"


@pytest.mark.usefixtures("installed")
def test_the_check_before_an_uninstall(own_cluster: local.Cluster) -> None:
    def check() -> Any:
        return run_command(
            *("uninstall-check", "--kubeconfig", str(own_cluster.kubeconfig)), check=False
        )

    assert "may be uninstalled" in check().stdout
    container = {
        "apiVersion": "cloister.dev/v1alpha1",
        "kind": "Container",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"repo": "acme/web", "tag": "v1"},
    }
    own_cluster.kubectl("create", "-f", "-", stdin=yaml.safe_dump(container))
    failed = check()
    assert failed.returncode == 1
    assert "not uninstalled while there are Containers (default/web)" in failed.stderr
    own_cluster.kubectl("delete", "ctr", "web", "-n", "default")
    assert check().returncode == 0
