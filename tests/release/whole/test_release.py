"""A release of a clone, twice, and its installation by the lines of README.md and docs/install.md.

Version 0.0.0-test goes into the registry of a cluster of its own. What the pages leave to the
reader is filled in: addresses, the three values, and what a small node needs. The registry has no
TLS, so that the `helm` of these lines has one more option; a volume and a name server, which
clusters have, are made before.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from dev import cluster as local
from dev.cluster.binaries import binary
from dev.cluster.images import Image, push
from dev.demo import repository
from dev.images.release import ROOT
from dev.release.assembly import CHART, PROVENANCE, SUMS
from dev.release.signing import KEY, PASSWORD, Attested, verify_command
from dev.release.verifier import TARGETS
from tests.support.cluster.clusters import session_name
from tests.support.programs.helm import objects
from tests.support.servers.git import git_server

pytestmark = [pytest.mark.node, pytest.mark.programs("cosign", "helm", "helm3", "kubectl")]

VERSION = "0.0.0-test"
TAG = "v1.0.0"
SYSTEM = "cloister-system"
POD_USER = 65532
SECRET = "a-password-of-a-test"
PLACE, PAGES_VERSION = "registry.example.com/cloister", "0.3.0-rc.1"
"""What the pages name in the place of the reader's registry and version."""


@dataclass(frozen=True, slots=True)
class Made:
    """A release, and the clone that it was made from."""

    clone: Path
    output: Path
    said: str
    """What the command printed."""

    def sums(self) -> dict[str, str]:
        """Return the checksum of each file, by its name."""
        lines = (self.output / SUMS).read_text().splitlines()
        return {name: sums for sums, name in (line.split("  ") for line in lines)}

    @property
    def digests(self) -> str:
        """Text of its images.lock."""
        return (self.output / "images.lock").read_text()


def run(
    *command: str | Path, cwd: Path, environment: dict[str, str] | None = None, code: int = 0
) -> str:
    """Run a command that ends with a code, and return what it said."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env=(environment or dict(os.environ)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout[-4000:]
    return done.stdout


def clone_of(folder: Path) -> Path:
    """Clone this checkout, and make version 0.0.0 of it as docs/development/release.md says."""
    clone = folder / "clone"
    run("git", "clone", "--quiet", "--no-hardlinks", ROOT, clone, cwd=folder)
    project, changelog = clone / "pyproject.toml", clone / "CHANGELOG.md"
    text = re.sub(r'(?m)^version = ".*"$', 'version = "0.0.0"', project.read_text(), count=1)
    project.write_text(text)
    section = f"## {VERSION} (2026-01-01)\n\n- What a test released.\n"
    changelog.write_text(changelog.read_text().replace("## Unreleased\n", section, 1))
    run("make", "crds", cwd=clone, environment=clean())
    identity = ("-c", "user.name=Test", "-c", "user.email=test@example.com")
    dates = clean() | {f"GIT_{who}_DATE": "2026-01-01T00:00:00Z" for who in ("AUTHOR", "COMMITTER")}
    run(
        *("git", *identity, "commit", "--quiet", "--all", "--message", f"Release {VERSION}"),
        cwd=clone,
        environment=dates,
    )
    return clone


def clean() -> dict[str, str]:
    """Return the environment without what says something about this checkout."""
    dropped = {"VIRTUAL_ENV", "PYTHONPATH", KEY, PASSWORD}
    return {
        name: value
        for name, value in os.environ.items()
        if name not in dropped and not name.startswith(("MAKE", "MFLAGS", "GIT_", "PYTEST"))
    }


def released(clone: Path, registry: str, output: Path, **more: str) -> Made:
    """Run `make release` in a clone."""
    asked = (f"VERSION={VERSION}", f"REGISTRY={registry}", f"OUTPUT={output}")
    downloads = "DOWNLOADS=https://git.example.com/releases/v0.0.0-test"
    said = run("make", "release", *asked, downloads, cwd=clone, environment=clean() | more)
    return Made(clone, output, said)


@pytest.fixture(scope="module")
def cluster() -> Iterator[local.Cluster]:
    """Provide a cluster with a node, and what clusters have: a volume and a name server."""
    if os.geteuid() != 0 or sys.platform != "linux":
        pytest.skip("a node and images need root on Linux")
    cluster = local.up(f"{session_name()}-release", node=True)
    yield cluster
    local.down(cluster.name)


@pytest.fixture(scope="module")
def registry(cluster: local.Cluster) -> str:
    """Provide where the release goes."""
    return f"{cluster.registry}/released"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide a folder with a key pair."""
    folder = tmp_path_factory.mktemp("keys")
    secret = {PASSWORD: SECRET, "HOME": str(folder)}
    run(binary("cosign"), "generate-key-pair", cwd=folder, environment=clean() | secret)
    return folder


@pytest.fixture(scope="module")
def made(
    cluster: local.Cluster, registry: str, keys: Path, tmp_path_factory: pytest.TempPathFactory
) -> Made:
    """Provide a signed release of a clone."""
    folder = tmp_path_factory.mktemp("release")
    key = {KEY: str(keys / "cosign.key"), PASSWORD: SECRET}
    return released(clone_of(folder), registry, folder / "output", **key)


def test_a_release_has_all_of_its_parts_and_is_signed(
    made: Made, registry: str, keys: Path
) -> None:
    assert f"Cloister {VERSION} is in {made.output} and {registry}" in made.said
    assert "not signed" not in made.said
    assert SECRET not in made.said
    bills = {
        f"{name}-{architecture}.cdx.json"
        for name in ("cloister", "cloister-guest", "cloister-shim")
        for architecture in ("amd64", "arm64")
    }
    listed = {
        *(f"cloister-{VERSION}.tgz", "install.yaml", "images.lock", "CHANGES.md", PROVENANCE),
        *(f"kubectl-cloister-{VERSION}.tar.gz", "krew.yaml", *bills),
        *(f"cloister-verify-{VERSION}-{system}-{machine}" for system, machine in TARGETS),
    }
    assert made.sums().keys() == listed
    beside = {SUMS, f"{SUMS}.sigstore.json", "cosign.pub"}
    assert {path.name for path in made.output.iterdir()} == listed | beside
    for name, wanted in made.sums().items():
        assert hashlib.sha256((made.output / name).read_bytes()).hexdigest() == wanted
    assert (made.output / "cosign.pub").read_text() == (keys / "cosign.pub").read_text()
    for what in ("cloister", "cloister-guest", "cloister-shim", CHART):
        for attested in (None, Attested.PROVENANCE):
            command = verify_command(f"{registry}/{what}:{VERSION}", keys / "cosign.pub", attested)
            run(binary("cosign"), *command, cwd=made.output)
    blob = ("verify-blob", "--key", keys / "cosign.pub", "--insecure-ignore-tlog=true")
    run(binary("cosign"), *blob, "--bundle", f"{SUMS}.sigstore.json", SUMS, cwd=made.output)
    provenance = json.loads((made.output / PROVENANCE).read_text())
    named = {each["name"]: each["digest"]["sha256"] for each in provenance["subject"]}
    assert named.items() >= {(f, s) for f, s in made.sums().items() if f != PROVENANCE}
    assert f"{registry}/{CHART}" in named
    krew = yaml.safe_load((made.output / "krew.yaml").read_text())
    (platform,) = krew["spec"]["platforms"]
    archive = f"kubectl-cloister-{VERSION}.tar.gz"
    assert platform["sha256"] == made.sums()[archive]
    assert platform["uri"] == f"https://git.example.com/releases/v0.0.0-test/{archive}"


def test_the_same_commit_gives_the_same_release(made: Made, registry: str, tmp_path: Path) -> None:
    """From another clone, in another folder, without a key; the registry takes it once more."""
    again = released(clone_of(tmp_path), registry, tmp_path / "again")
    assert "It is not signed: COSIGN_KEY names no key" in again.said
    assert again.sums() == made.sums()
    assert again.digests == made.digests
    refused = run(
        *("make", "release", f"VERSION={VERSION}", f"REGISTRY={registry}"),
        f"OUTPUT={again.output}",
        cwd=again.clone,
        environment=clean(),
        code=2,
    )
    assert f"{again.output} has something in it: name another OUTPUT, or remove it" in refused


def blocks(page: str) -> list[str]:
    """Return the blocks of commands of a page."""
    return re.findall(r"(?ms)^```\n(.*?)^```$", (ROOT / page).read_text())


def block(page: str, word: str) -> str:
    """Return the one block of a page with a word."""
    (found,) = (each for each in blocks(page) if word in each)
    return found


@dataclass(frozen=True, slots=True)
class Shell:
    """A shell on a reader's machine, with kubectl and helm."""

    folder: Path
    cluster: local.Cluster

    def __post_init__(self) -> None:
        """Make `helm`, which speaks to the registry without TLS."""
        programs = self.folder / "bin"
        programs.mkdir()
        (programs / "kubectl").symlink_to(binary("kubectl"))
        plain = (
            f'case "$*" in *oci://*) set -- "$@" --plain-http;; esac; exec {binary("helm")} "$@"'
        )
        (programs / "helm").write_text(f"#!/bin/sh\n{plain}\n")
        (programs / "helm").chmod(0o755)

    def run(self, lines: str, code: int = 0) -> str:
        """Run lines of a page, and return what they said."""
        environment = {
            "PATH": f"{self.folder / 'bin'}:/usr/bin:/bin",
            "HOME": str(self.folder),
            "KUBECONFIG": str(self.cluster.kubeconfig),
        }
        command = ("bash", "-euo", "pipefail", "-c", lines)
        return run(*command, cwd=self.folder, environment=environment, code=code)


def filled(lines: str, replacements: dict[str, str]) -> str:
    """Return lines of a page with what they leave to the reader."""
    for pattern, value in replacements.items():
        lines, count = re.subn(pattern, lambda _, value=value: value, lines)  # type: ignore[misc]  # bound now
        assert count == 1, f"{pattern} stands {count} times in {lines}"
    return lines


@pytest.fixture(scope="module")
def shell(cluster: local.Cluster, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """Provide a shell, on a cluster that has a volume and a name server."""
    folder = tmp_path_factory.mktemp("reader")
    ledger = folder / "ledger"
    ledger.mkdir(mode=0o700)
    os.chown(ledger, POD_USER, POD_USER)
    address = cluster.host_address
    service: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kube-dns", "namespace": "kube-system"},
        "spec": {"ports": [{"name": "dns", "port": 53, "protocol": "UDP"}]},
    }
    endpoints = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "kube-dns",
            "namespace": "kube-system",
            "labels": {"kubernetes.io/service-name": "kube-dns"},
        },
        "addressType": "IPv4",
        "ports": [{"name": "dns", "port": 53, "protocol": "UDP"}],
        "endpoints": [{"addresses": [address]}],
    }
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "ledger"},
        "spec": {
            "capacity": {"storage": "8Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": str(ledger), "type": "Directory"},
            "persistentVolumeReclaimPolicy": "Retain",
        },
    }
    text = yaml.safe_dump_all([service, endpoints, volume])
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=text)
    return Shell(folder, cluster)


@pytest.fixture(scope="module")
def values(
    cluster: local.Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Any]]:
    """Provide the three values of this machine: its git server and registry are private."""
    folder = tmp_path_factory.mktemp("sources")
    program = repository.build_program(TAG, folder / "programs")
    image = Image(files={"/hello": program}, entrypoint=("/hello",), user="65532:65532")
    pushed = push(image, cluster.registry, repository.REPO, TAG)
    repository.release(folder / "repositories", tag=TAG, image=pushed)
    with git_server(folder / "repositories", address=cluster.host_address) as git:
        assert git.served is not None
        host = f"{cluster.host_address}:{git.served.base.rpartition(':')[2]}"
        mirror = f"{cluster.host_address}:{cluster.registry.rpartition(':')[2]}"
        yield {
            "containersDomain": "containers.example.com",
            "sources": {
                "kind": "git",
                "base": f"http://{host}",
                "plainHttp": [host],
                "allowPrivate": [host],
            },
            "registry": {
                "mirrors": {cluster.registry: [f"http://{mirror}"]},
                "plainHttp": [cluster.registry, mirror],
                "allowPrivate": [cluster.registry, mirror],
            },
        }


@pytest.fixture(scope="module")
def installed(made: Made, registry: str, shell: Shell, values: dict[str, Any]) -> str:
    """Provide an installation by the lines of README.md; what they said."""
    lines = block("README.md", "helm install cloister oci://")
    own = {
        rf"(?m)^(# )?{name}: .*$": f"{name}: {json.dumps(value)}" for name, value in values.items()
    }
    given = own | {
        re.escape(PLACE): registry,
        rf"--version {re.escape(PAGES_VERSION)}": f"--version {VERSION}",
    }
    return shell.run(filled(lines, given))


def test_the_lines_of_readme_install_and_test_it(installed: str) -> None:
    for program in ("operator", "api"):
        assert f"cloister-test-{program}" in installed
    assert installed.count("Phase:          Succeeded") == 2
    assert re.search(r"(?m)^pass +rights of cloister-operator", installed)
    assert re.search(r"(?m)^pass +rights of cloister-api", installed)
    assert re.search(r"(?m)^pass +source of releases", installed)
    assert re.search(r"(?m)^pass +shimImage", installed)
    assert not re.search(r"(?m)^fail ", installed)


def test_the_lines_of_the_guide_make_a_container_ready(installed: str, shell: Shell) -> None:
    assert installed
    page = "docs/install.md"
    small = "spec: {default: true, overcommit: {cpuPercent: 5, memoryPercent: 2}}"
    assert small in (ROOT / page).read_text()
    lines = filled(block(page, "admin-key create"), {re.escape("spec: {default: true}"): small})
    said = shell.run(lines)
    assert re.search(r"^admin_\S+$", said, re.MULTILINE)
    container = block(page, "repo: OWNER/NAME")
    said = shell.run(filled(container, {"OWNER/NAME": repository.REPO, re.escape("v1.0.0"): TAG}))
    assert "container.cloister.dev/web condition met" in said


def test_an_upgrade_that_cannot_follow_is_refused_with_a_sentence(
    installed: str, made: Made, shell: Shell, cluster: local.Cluster
) -> None:
    assert installed
    upgrade = (
        f"helm upgrade cloister {made.output}/cloister-{VERSION}.tgz -n {SYSTEM} -f values.yaml"
    )
    label = (
        f"kubectl label --overwrite deployment cloister-api -n {SYSTEM} app.kubernetes.io/version"
    )
    shell.run(f"{label}=0.7.0")
    refused = shell.run(f"{upgrade} --set operator.replicas=1 --wait", code=1)
    assert "the api that runs is Cloister 0.7.0, and this is 0.0.0; versions that work" in refused
    shown = cluster.kubectl(
        *("get", "deployment", "cloister-operator", "-n", SYSTEM, "-o", "jsonpath={.spec.replicas}")
    )
    assert shown == "2"
    shell.run(f"{label}={VERSION}")
    shell.run(f"{upgrade} --wait --force-conflicts")
    left = cluster.kubectl("get", "sa,job,role,rolebinding,cm", "-n", SYSTEM, "-o", "name")
    assert "cloister-upgrade-check" not in left


def test_the_manifest_can_be_applied(installed: str, made: Made, shell: Shell) -> None:
    assert installed
    apply = "kubectl apply --server-side --dry-run=server --force-conflicts -f"
    said = shell.run(f"{apply} {made.output / 'install.yaml'}")
    assert "deployment.apps/cloister-api serverside-applied (server dry run)" in said


def test_helm_3_renders_the_same_and_installs_it(
    installed: str, made: Made, shell: Shell, cluster: local.Cluster
) -> None:
    """After an uninstall by Helm 4; kinds, policies, keys and ledger are found again."""
    assert installed
    package = made.output / f"cloister-{VERSION}.tgz"
    asked = "--kube-version 1.36.3 -f values.yaml --set keys.existingSecret=own"
    render = f"template cloister {package} -n {SYSTEM} {asked}"
    first, second = (
        objects(shell.run(f"{binary(program)} {render}")) for program in ("helm", "helm3")
    )
    assert first == second
    shell.run("kubectl delete ctr --all -n org-acme --timeout=120s")
    shell.run("kubectl wait --for=delete encl --all -n org-acme --timeout=120s")
    shell.run(f"helm uninstall cloister -n {SYSTEM} --wait")
    cluster.kubectl("patch", "pv", "ledger", "--type=merge", "-p", '{"spec":{"claimRef":null}}')
    shell.run(f"{binary('helm3')} install cloister {package} -n {SYSTEM} -f values.yaml --wait")
    said = shell.run(f"{binary('helm3')} test cloister -n {SYSTEM} --logs")
    assert said.count("Phase:          Succeeded") == 2
