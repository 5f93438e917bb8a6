"""SSH into a debug enclave on a real node, with the OpenSSH client, by the port of the node."""

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dev.cluster import Cluster
from dev.demo.https_client import fetch_page
from tests.support.programs.operator import Installation, manifest, operator_lock
from tests.support.programs.web_service import PageServices, page_file
from tests.support.waiting import until_sync

pytestmark = [
    pytest.mark.node,
    pytest.mark.skipif(shutil.which("ssh") is None, reason="the OpenSSH client is not installed"),
]

SECONDS = 60
"""Timeout of one client, in seconds."""


@dataclass
class Client:
    """A user with an SSH key."""

    folder: Path
    """Folder of the key and the known hosts."""
    host: str = ""
    """Address of the node."""
    port: int = 0
    """Port of the node."""

    def make_key(self) -> str:
        """Create a key and return its public key line."""
        self._run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / "key"))
        return (self.folder / "key.pub").read_text().strip()

    def trust(self, host_key: str) -> None:
        """Trust a host key as the enclave's."""
        line = f"[{self.host}]:{self.port} {host_key}"
        (self.folder / "known_hosts").write_text(line)

    def run(self, login: str, *command: str, key: str = "key") -> subprocess.CompletedProcess[str]:
        """Run a command in a container."""
        options = [*self._options(key), "-p", str(self.port)]
        return self._run("ssh", *options, f"{login}@{self.host}", *command, check=False)

    def copy(self, source: str, target: str) -> None:
        """Copy a file; a path in a container begins with ``login:``."""
        places = [
            each.replace(":", f"@{self.host}:", 1) if ":" in each else each
            for each in (source, target)
        ]
        self._run("scp", *self._options("key"), "-P", str(self.port), *places)

    def _options(self, key: str) -> list[str]:
        given = {
            "UserKnownHostsFile": self.folder / "known_hosts",
            "StrictHostKeyChecking": "yes",
            "IdentitiesOnly": "yes",
            "BatchMode": "yes",
            "ConnectTimeout": 20,
        }
        named = [part for name, value in given.items() for part in ("-o", f"{name}={value}")]
        return ["-F", "none", "-i", str(self.folder / key), *named]

    @staticmethod
    def _run(*line: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return subprocess.run(line, capture_output=True, text=True, timeout=SECONDS, check=check)


@pytest.fixture(scope="module")
def installation(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    folder = tmp_path_factory.mktemp("installation")
    pages = PageServices(cluster)
    with operator_lock(cluster.name):
        installed = Installation(cluster, folder, pages.settings | {"claimAgeSeconds": 1})
        try:
            installed.prepare()
            installed.create_organization(host={"networkIsolation": "Container"})
            installed.repository("acme/web").release("v1.0.0", page_file(pages.web, "one"))
            installed.operator().wait_until_it_leads()
            yield installed
        finally:
            installed.end()


def service_of(installation: Installation, name: str) -> dict[str, Any] | None:
    services = installation.objects("services")
    return next((each for each in services if each["metadata"]["name"] == name), None)


def node_address(cluster: Cluster) -> str:
    path = '{.items[0].status.addresses[?(@.type=="InternalIP")].address}'
    return cluster.kubectl("get", "nodes", "-o", f"jsonpath={path}").strip()


def host_key_of(installation: Installation, name: str) -> str:
    """Read the host key over the enclave's TLS, as docs/enclave.md tells users to."""
    service, container = service_of(installation, name), installation.container(name)
    assert service is not None
    assert container is not None
    path = "/.well-known/cloister-ssh-host-key"

    def fetched() -> str:
        try:
            page = fetch_page(service["spec"]["clusterIP"], 443, container.status.domain, path)
        except OSError:
            return ""  # the node does not lead there yet
        return page.body if page.status == 200 else ""

    return until_sync(fetched, what="the host key")


def test_ssh_admits_users_with_a_key(
    cluster: Cluster, installation: Installation, tmp_path: Path
) -> None:
    client = Client(tmp_path, node_address(cluster))
    key = {"publicKey": client.make_key()}
    installation.apply(manifest("SSHKey", "me", key, installation.namespace))
    installation.create_container(
        "opened", repo="acme/web", tag="v1.0.0", debug=True, sshKeys=["me"]
    )
    installation.wait_for("opened", "Ready")

    def port() -> int | None:
        container = installation.container("opened")
        assert container is not None
        return container.status.ssh_port

    client.port = until_sync(port, what="sshPort in the status") or 0
    client.trust(host_key_of(installation, "opened"))
    until_sync(lambda: client.run("web", "true").returncode == 0, what="the port")
    done = client.run("web", "cat /proc/self/status; cat /proc/1/comm; hostname; exit 7")
    assert done.returncode == 7, done
    facts = dict(line.split(":\t", 1) for line in done.stdout.splitlines() if ":\t" in line)
    assert int(facts["CapEff"], 16) == int(facts["CapBnd"], 16) == 0
    assert facts["NoNewPrivs"] == "1"
    assert done.stdout.splitlines()[-2:] == ["guest", "web"]
    page = client.run("web", "wget -q -O - http://127.0.0.1:8080/")
    assert page.stdout == "one\n"
    terminal = client.run("web", "-tt", "tty; stty size")
    assert "/dev/pts/" in terminal.stdout
    (tmp_path / "sent").write_text("sent\n")
    client.copy(str(tmp_path / "sent"), "web:/tmp/got")
    assert client.run("web", "cat /tmp/got").stdout == "sent\n"
    other = client.run("api", "true")
    assert (other.returncode, "web" in other.stderr) == (1, True)


def test_ssh_refuses_an_unknown_key(
    cluster: Cluster, installation: Installation, tmp_path: Path
) -> None:
    container = installation.container("opened")
    assert container is not None
    client = Client(tmp_path, node_address(cluster), container.status.ssh_port or 0)
    client.make_key()
    client.trust(host_key_of(installation, "opened"))
    done = client.run("web", "true")
    assert (done.returncode, "Permission denied" in done.stderr) == (255, True)


def test_a_container_with_ssh_restarts_as_without_it(installation: Installation) -> None:
    name = installation.wait_for("opened", "Ready").status.active_enclave
    inside = ("exec", "-n", installation.namespace, name, "-c", "web", "--")
    # The exit of process 1 kills the shell, often before it could exit with success.
    installation.cluster.kubectl(*inside, "sh", "-c", "kill -TERM 1", "--", check=False)

    def restarted() -> bool:
        pods = installation.objects("pods")
        pod = next(each for each in pods if each["metadata"]["name"] == name)
        return any(
            (each["name"] == "web" and each["restartCount"] > 0) or each["state"].get("terminated")
            for each in pod["status"]["containerStatuses"]
        )

    until_sync(restarted, what="the end of the program by the signal")


@pytest.mark.spec("8.5")
def test_a_production_enclave_has_no_ssh(cluster: Cluster, installation: Installation) -> None:
    installation.create_container("closed", repo="acme/web", tag="v1.0.0")
    container = installation.wait_for("closed", "Ready")
    assert container.status.ssh_port is None
    pods = installation.objects("pods")
    pod = next(each for each in pods if each["metadata"]["name"] == container.status.active_enclave)
    parts = [pod["spec"][kind] for kind in ("containers", "initContainers", "volumes")]
    assert "ssh" not in str(parts).lower().replace(cluster.registry, "")
    nodes = [each for each in installation.objects("services") if "closed" in str(each)]
    assert all(each["spec"]["type"] == "ClusterIP" for each in nodes)
