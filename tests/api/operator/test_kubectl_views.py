"""What users of kubectl see of real objects: the tables of ``get``, the Events of ``describe``.

There is no node: `tests.support.stand_ins.pod_status` writes the status of Pods as a kubelet would.
"""

import base64
import json
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.cluster import Cluster
from dev.cluster.images import Image, push
from tests.support.programs.operator import Installation, file_text, manifest, operator_lock
from tests.support.stand_ins.pod_status import run_pod
from tests.support.waiting import until_sync

WIDTH = 120
"""Columns of a terminal."""
BLOB = b"\0\0\0\x0bssh-ed25519\0\0\0\x20" + bytes(32)
KEY = f"ssh-ed25519 {base64.b64encode(BLOB).decode()} me@home"

Row = dict[str, str]


@pytest.fixture(scope="module")
def operated(
    api_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """Provide an installation whose operator runs, with two releases of acme/web."""
    with operator_lock(api_cluster.name):
        folder: Path = tmp_path_factory.mktemp("installation")
        (folder / "key").write_bytes(secrets.token_bytes(32))
        domains = {
            "target": "dns.example.test",
            "installationKeyFile": str(folder / "key"),
            "dns": {"resolvers": ["127.0.0.1"], "allowPrivate": ["127.0.0.1"]},
        }
        settings = {"claimAgeSeconds": 1, "domains": domains}
        installed = Installation(api_cluster, folder, settings, slug="acme")
        try:
            installed.prepare()
            gpu = {"type": "H100", "resource": "nvidia.com/gpu", "counts": [1, 8]}
            installed.create_organization(host={"gpu": gpu})
            entitled = {"hostSelection": True, "domainSuffixes": ["customer.test"]}
            patch = json.dumps({"spec": {"entitlements": entitled}})
            installed.kubectl("patch", "org", installed.slug, "--type=merge", "-p", patch)
            image = push(Image(files={"/x": b"x"}, entrypoint=("/x",)), api_cluster.registry, "x")
            repository = installed.repository("acme/web")
            for tag in ("v1.0.0", "v1.1.0"):
                repository.release(tag, file_text(image, command=(f"/{tag}",)))
            installed.operator().wait_until_it_leads()
            yield installed
        finally:
            installed.end()


def table(installation: Installation, kind: str, *options: str) -> list[Row]:
    """Return the rows of ``kubectl get`` by heading."""
    head, *lines = printed(installation, kind, *options).splitlines()
    starts = [found.start() for found in re.finditer(r"(?<!\S)\S", head)]
    ends = [*starts[1:], None]
    names = head.split()
    return [
        {
            name: line[start:end].strip()
            for name, start, end in zip(names, starts, ends, strict=True)
        }
        for line in lines
    ]


def printed(installation: Installation, kind: str, *options: str) -> str:
    """Return what ``kubectl get`` prints."""
    return installation.kubectl("get", kind, "-n", installation.namespace, *options)


def row(installation: Installation, kind: str, name: str, **cells: str) -> Row:
    """Wait until the wide table has an object with these cells, with headings in lower case."""
    wanted = {name.upper().replace("_", "-"): cell for name, cell in cells.items()}

    def shown() -> Row | None:
        rows = table(installation, kind, "-o", "wide")
        found = next((each for each in rows if each["NAME"] == name), {})
        assert wanted.items() <= found.items(), (found, wanted)
        return found

    found = until_sync(shown, within=60, what=f"{kind} {name}")
    assert found is not None
    return found


def serve(installation: Installation, name: str) -> str:
    """Wait for the candidate of a Container and let its Pod come up; return its name."""

    def candidate() -> str:
        container = installation.container(name)
        return container.status.candidate if container else ""

    found = until_sync(candidate, within=60, what=f"a candidate of {name}")
    assert found
    run_pod(installation, found)
    return found


def test_which_enclave_serves_before_and_after_a_switch(operated: Installation) -> None:
    operated.create_container("web", repo="acme/web", tag="v1.0.0", staging=True)
    old = serve(operated, "web")
    operated.wait_for("web", "Ready", reason="Serving")
    operated.create_container("web", repo="acme/web", tag="v1.1.0", staging=True)
    new = serve(operated, "web")
    waiting = operated.wait_for("web", "Ready", reason="AwaitingPromotion")
    row(operated, "encl", old, serving="true", ready="True", tag="v1.0.0", attempt="1")
    row(operated, "encl", new, serving="false", ready="True", tag="v1.1.0", reason="Healthy")
    shown = row(operated, "ctr", "web", tag="v1.0.0", requested="v1.1.0", update="ready")
    assert shown["HOST"] == operated.host
    for kind in ("ctr", "encl"):
        assert all(len(each) <= WIDTH for each in printed(operated, kind).splitlines())
    assert waiting.status.update is not None
    revision = waiting.status.update.revision
    operated.create_container("web", repo="acme/web", tag="v1.1.0", staging=True, promote=revision)
    operated.wait_for("web", "Ready", reason="Serving")
    row(operated, "encl", new, serving="true")
    served = [each["NAME"] for each in table(operated, "encl") if each["SERVING"] == "true"]
    assert served == [new]


def test_two_containers_of_one_name_differ_and_a_failure_says_why(operated: Installation) -> None:
    spec = {"repo": "acme/web", "tag": "v9", "name": "shop"}
    operated.create_container("shop", **spec)
    operated.create_container("shop.debug", **spec, debug=True)
    row(operated, "ctr", "shop", debug="false", reason="TagNotFound", api_name="shop")
    row(operated, "ctr", "shop.debug", debug="true", api_name="shop")
    (shown,) = [each for each in table(operated, "ctr") if each["NAME"] == "shop"]
    assert "v9" in shown["MESSAGE"]


def events_of(installation: Installation, kind: str, name: str) -> list[str]:
    """Return the reasons of an object's Events as ``kubectl describe`` lists them."""
    described = installation.kubectl("describe", kind, name, "-n", installation.namespace)
    lines = described.partition("Events:")[2].splitlines()[3:]
    assert all(line.split()[0] == "Normal" for line in lines), described
    return [line.split()[1] for line in lines]


def await_events(installation: Installation, kind: str, name: str, *wanted: str) -> None:
    """Wait until these are all Events of an object."""

    def posted() -> bool:
        found = events_of(installation, kind, name)
        assert sorted(found) == sorted(wanted), found
        return True

    until_sync(posted, within=60, what=f"Events of {kind} {name}")


def test_describe_shows_a_normal_life(operated: Installation) -> None:
    spec = {"repo": "acme/web", "host": operated.host}
    operated.create_container("life", **spec, tag="v1.0.0")
    old = serve(operated, "life")
    operated.wait_for("life", "Ready", reason="Serving")
    started = ["Deploying", "Serving"]
    await_events(operated, "ctr", "life", *started)
    await_events(operated, "encl", old, "Serving")
    operated.create_container("life", **spec, tag="v1.1.0", staging=True)
    new = serve(operated, "life")
    waiting = operated.wait_for("life", "Ready", reason="AwaitingPromotion")
    await_events(operated, "encl", new, "Healthy")
    assert waiting.status.update is not None
    promoted = {"staging": True, "promote": waiting.status.update.revision}
    operated.create_container("life", **spec, tag="v1.1.0", **promoted)
    updated = [*started, "Updating", "AwaitingPromotion", "Serving", "Drained"]
    await_events(operated, "ctr", "life", *updated)
    await_events(operated, "encl", new, "Healthy", "Serving")
    drained = {
        each["reason"]
        for each in operated.objects("events.events.k8s.io")
        if each["regarding"]["name"] == old
    }
    assert drained == {"Serving", "Draining"}
    operated.create_container("life", **spec, tag="v1.1.0", **promoted, state="Stopped")
    operated.wait_for("life", "Ready", reason="Stopped")
    await_events(operated, "ctr", "life", *updated, "Stopped")


def test_every_other_kind_shows_what_one_looks_for(operated: Installation) -> None:
    space = operated.namespace
    operated.apply(
        manifest("SSHKey", "me", {"publicKey": KEY}, space),
        manifest("SSHKey", "cut", {"publicKey": KEY[:40]}, space),
        manifest("Domain", "api", {"domain": "api.customer.test"}, space),
        manifest("Secret", "api-key", {"name": "API_KEY", "secretRef": {"name": "none"}}, space),
        manifest(
            "RegistryCredential", "ghcr", {"registry": "ghcr", "secretRef": {"name": "none"}}, space
        ),
    )
    operated.create_container(
        "keyed", repo="acme/web", tag="v1.0.0", state="Stopped", debug=True,
        sshKeys=["me"], secrets=["API_KEY"],
    )  # fmt: skip
    row(operated, "sshkeys", "me", ready="True", reason="KeyUsable", used_by='["keyed"]')
    row(operated, "sshkeys", "cut", ready="False", reason="SSHKeyInvalid")
    shown = row(operated, "cdom", "api", verified="false", ready="False")
    # Whether a name server says so or none responds depends on the machine.
    assert shown["REASON"] in {"DomainNotVerified", "DnsUnavailable"}
    body = operated.objects("domains.cloister.dev")[0]["status"]["records"]
    assert (shown["CNAME-TARGET"], shown["TXT-NAME"], shown["TXT-VALUE"]) == (
        body["cnameTarget"],
        body["txtName"],
        body["txtValue"],
    )
    row(operated, "csec", "api-key", reason="SecretValueMissing", used_by='["keyed"]')
    row(operated, "registrycredentials", "ghcr", ready="False", reason="EntitlementRequired")
    row(operated, "hosts", operated.host, gpu="H100", gpu_counts="[1,8]", ready="True")
    shown = row(operated, "org", operated.slug, ready="True", reason="NamespaceReady")
    operated.create_container("other", repo="acme/web", tag="v1.0.0")
    serve(operated, "other")
    (deployment,) = operated.objects("deployments.cloister.dev")
    row(operated, "cdep", deployment["metadata"]["name"], default_staging="false")
