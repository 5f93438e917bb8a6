"""What a user of kubectl reads: the manual, the columns, and what a wrong manifest brings."""

import re
import shlex
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from dev import cluster as local
from tests.support.cluster.api_server import ApiServer
from tests.support.cluster.clusters import unique
from tests.support.waiting import until_sync

Kubectl = Callable[..., subprocess.CompletedProcess[str]]
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
async def kubectl(api_cluster: local.Cluster) -> AsyncIterator[Kubectl]:
    """Provide the real kubectl in a namespace of its own."""
    server = ApiServer.administrator(api_cluster.kubeconfig)
    space = unique("kubectl")
    await server.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}},
        f"/api/v1/namespaces/{space}",
    )
    home = Path(api_cluster.kubeconfig).parent
    kubectl = str(api_cluster.bin("kubectl"))
    config = str(api_cluster.kubeconfig)

    def run(*arguments: str, manifest: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [
                kubectl,
                "--kubeconfig",
                config,
                "--cache-dir",
                str(home / "cache"),
                "-n",
                space,
                *arguments,
            ],
            input=manifest,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    yield run
    await server.aclose()


def container(*lines: str, name: str = "web") -> str:
    """Write a Container's manifest with some lines of spec."""
    spec = "\n".join(f"  {line}" for line in ("repo: acme/web", "tag: v1.0.0", *lines))
    head = "apiVersion: cloister.dev/v1alpha1\nkind: Container"
    return f"{head}\nmetadata:\n  name: {name}\nspec:\n{spec}\n"


WRONG = {
    "a debug field in production": (
        container("sshKeys: [me]"),
        (
            "spec.sshKeys: Forbidden: sshKeys are for debug enclaves only; set debug: true or "
            "leave sshKeys out"
        ),
    ),
    "a repository with its address": (
        container().replace("acme/web", "https://github.com/acme/web"),
        "repo is written owner/name, such as acme/web",
    ),
    "a short commit": (
        container("commit: abc123"),
        "commit is written in full: 40 lowercase hexadecimal digits",
    ),
    "a name that no host name takes": (
        container(name="web.debug"),
        "spec.name: Required value: spec.name is required here",
    ),
    "a variable twice": (
        container("variables: [{name: A, value: a}, {name: A, value: b}]"),
        'spec.variables[1]: Duplicate value: {"name":"A"}',
    ),
    "few characters of many bytes in variables": (
        container(f"variables: [{{name: A, value: {chr(0x1F600) * 32_768}}}]"),
        "spec.variables: Invalid value: variables have more than 131072 bytes, names and values",
    ),
    "a secret twice": (
        container("secrets: [KEY, KEY]"),
        'spec.secrets[1]: Duplicate value: "KEY"',
    ),
    "a state that is none": (
        container("state: Paused"),
        'spec.state: Unsupported value: "Paused": supported values: "Running", "Stopped"',
    ),
    "a word for a number": (
        container('gpus: "two"'),
        'spec.gpus in body must be of type integer: "string"',
    ),
    "a field that nobody knows": (
        container("tags: v1"),
        'unknown field "spec.tags"',
    ),
    "no tag": (
        container().replace("  tag: v1.0.0\n", ""),
        "spec.tag: Required value",
    ),
    "a namespace of the system": (
        (
            "apiVersion: cloister.dev/v1alpha1\nkind: Organization\nmetadata:\n  name: acme\n"
            "spec:\n  namespace: kube-system\n"
        ),
        "spec.namespace: Forbidden: namespace belongs to the system",
    ),
    "a slug with a dot": (
        (
            "apiVersion: cloister.dev/v1alpha1\nkind: Organization\nmetadata:\n  name: acme.inc\n"
            "spec:\n  namespace: org-acme\n"
        ),
        "metadata.name is the organization's slug and is part of host names",
    ),
    "overcommit on a confidential host": (
        (
            "apiVersion: cloister.dev/v1alpha1\nkind: Host\nmetadata:\n  name: snp\n"
            "spec:\n  tee: SNP\n  overcommit: {cpuPercent: 50}\n"
        ),
        "spec.overcommit: Forbidden: overcommit is for tee None only",
    ),
    "a domain with its protocol": (
        (
            "apiVersion: cloister.dev/v1alpha1\nkind: Domain\nmetadata:\n  name: app\n"
            "spec:\n  domain: https://app.example.com\n"
        ),
        "leave out protocol, path, port and wildcard",
    ),
    "a private key": (
        (
            "apiVersion: cloister.dev/v1alpha1\nkind: SSHKey\nmetadata:\n  name: me\n"
            "spec:\n  publicKey: -----BEGIN OPENSSH PRIVATE KEY-----\n"
        ),
        "publicKey is one line of an OpenSSH public key file",
    ),
    "a credential with another name": (
        (
            "apiVersion: cloister.dev/v1alpha1\nkind: RegistryCredential\nmetadata:\n  name: mine\n"
            "spec:\n  registry: ghcr\n  secretRef: {name: ghcr}\n"
        ),
        "metadata.name is the registry",
    ),
}
"""Manifests that are wrong, and the sentence that must stand in the answer."""


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_manifest_is_answered_with_what_to_do(kubectl: Kubectl, what: str) -> None:
    manifest, sentence = WRONG[what]
    result = kubectl("apply", "--dry-run=server", "-f", "-", manifest=manifest)
    assert result.returncode != 0
    assert sentence in result.stderr


def test_all_problems_of_a_manifest_come_at_once(kubectl: Kubectl) -> None:
    manifest = container("sshKeys: [me]", "disableConfidential: true", "commit: abc")
    result = kubectl("apply", "--dry-run=server", "-f", "-", manifest=manifest)
    for word in ("spec.sshKeys", "spec.disableConfidential", "spec.commit"):
        assert word in result.stderr


def test_explain_is_a_manual(kubectl: Kubectl) -> None:
    told = kubectl("explain", "containers.cloister.dev.spec").stdout
    assert "tag of the release to run." in told
    assert "sshKeys are the names of SSHKeys that may log in; debug only." in told
    assert "-required-" in told
    state = kubectl("explain", "ctr.spec.state").stdout
    assert "Running" in state
    assert "Default Running" in state


@pytest.mark.parametrize(
    ("short", "kind"),
    [
        ("org", "Organization"),
        ("chost", "Host"),
        ("ctr", "Container"),
        ("encl", "Enclave"),
        ("cdep", "Deployment"),
        ("csec", "Secret"),
        ("cdom", "Domain"),
    ],
)
def test_short_names_mean_our_kinds(kubectl: Kubectl, short: str, kind: str) -> None:
    told = kubectl("explain", short).stdout
    assert "GROUP:      cloister.dev" in told
    assert f"KIND:       {kind}" in told


@pytest.mark.parametrize(("word", "group"), [("secrets", ""), ("deployments", "apps")])
def test_plain_names_go_on_to_mean_the_core_kinds(kubectl: Kubectl, word: str, group: str) -> None:
    told = kubectl("explain", word).stdout
    assert "cloister.dev" not in told.splitlines()[0]
    assert (f"GROUP:      {group}" in told) is bool(group)


def test_a_fresh_object_waits_for_the_operator(kubectl: Kubectl) -> None:
    made = kubectl("apply", "-f", "-", manifest=container())
    assert made.returncode == 0, made.stderr
    seen = kubectl("get", "ctr", "web", "-o", "jsonpath={.status.observedGeneration}")
    assert seen.stdout == "-1"
    waited = kubectl("wait", "--for=condition=Ready", "--timeout=1s", "ctr/web")
    assert waited.returncode != 0


def test_defaults_are_filled_in_where_their_parents_are_missing(kubectl: Kubectl) -> None:
    name = unique("org")
    manifest = (
        f"apiVersion: cloister.dev/v1alpha1\nkind: Organization\nmetadata:\n  name: {name}\n"
        f"spec:\n  namespace: {name}\n"
    )
    path = "jsonpath={.spec.limits.containers} {.spec.limits.gpus} {.spec.entitlements.gpu}"
    result = kubectl("apply", "--dry-run=server", "-f", "-", "-o", path, manifest=manifest)
    assert result.stdout == "10 [1,8] false"


def test_columns_read_well(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", manifest=container())
    header = kubectl("get", "ctr").stdout.splitlines()[0]
    assert header.split() == [
        "NAME",
        "STATUS",
        "TAG",
        "UPDATE",
        "DEBUG",
        "DOMAIN",
        "READY",
        "REASON",
        "AGE",
        "MESSAGE",
    ]
    listed = kubectl("get", "cloister")
    assert "container.cloister.dev/web" in listed.stdout


def test_a_tenant_reads_hosts_and_its_own_organization(kubectl: Kubectl) -> None:
    """The commands are those of the manual, for an organization of another name."""
    slug, other = unique("acme"), unique("other")
    roles = kubectl("apply", "-f", str(ROOT / "crds/manifests/roles/tenants.yaml"))
    assert roles.returncode == 0, roles.stderr
    for name in (slug, other):
        head = f"apiVersion: cloister.dev/v1alpha1\nkind: Organization\nmetadata: {{name: {name}}}"
        made = kubectl("apply", "-f", "-", manifest=f"{head}\nspec: {{namespace: {name}}}\n")
        assert made.returncode == 0, made.stderr
    text = (ROOT / "docs/tenants.md").read_text().replace("\\\n", "")
    commands = re.findall(r"^kubectl (create clusterrole.*)$", text, re.MULTILINE)
    assert len(commands) == 3
    try:
        for command in commands:
            done = kubectl(*shlex.split(command.replace("acme", slug)))
            assert done.returncode == 0, done.stderr
        tenant = ("--as=dev", f"--as-group={slug}-developers", "--as-group=system:authenticated")

        def permitted() -> bool:
            reads = (("get", "hosts"), ("get", "org", slug))
            return not any(kubectl(*each, *tenant).returncode for each in reads)

        until_sync(permitted, what="the authorizer knows the bindings")
        label = ("label", "org", slug, "a=b")
        for arguments in (("get", "org"), ("get", "org", other), label, ("get", "nodes")):
            assert "Forbidden" in kubectl(*arguments, *tenant).stderr, arguments
    finally:
        kinds = "clusterrolebindings,clusterroles,organizations.cloister.dev"
        names = (f"{slug}-hosts", f"{slug}-organization", slug, other)
        kubectl("delete", kinds, "--ignore-not-found", *names)
