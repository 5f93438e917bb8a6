"""The operator as a process, and a small installation around it.

`OperatorProcess` starts ``cloister operator``, keeps its log and stops it by its id. `Installation`
holds what it needs: settings, git repositories, the CRDs and a Lease namespace on a cluster.
Operators work on a whole cluster, so `operator_lock` lets one test at a time run one on each.
"""

import contextlib
import fcntl
import os
import re
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml

from cloister_crds.kinds import KINDS, Container, Enclave
from dev.cluster.cluster import KubectlError
from dev.plain_http import NO_TRUST
from tests.support.cluster.accounts import account_kubeconfig, roles_in
from tests.support.servers.git import Repositories, Repository
from tests.support.waiting import PATIENCE, until_sync

__all__ = [
    "CONTAINERS_DOMAIN",
    "Installation",
    "OperatorProcess",
    "condition_of",
    "file_text",
    "manifest",
    "operator_lock",
]

CONTAINERS_DOMAIN = "containers.example"
"""Domain of generated host names in tests."""
NO_IMAGE = "registry.invalid/ours@sha256:" + "0" * 64
"""An image for tests whose Pods never run."""


@contextlib.contextmanager
def operator_lock(cluster: str) -> Iterator[None]:
    """Hold the lock of a cluster's operator, so that no other test runs one on it.

    The test's timer (pytest-timeout) is paused while it waits.
    """
    path = Path(tempfile.gettempdir()) / f"cloister-operator-{cluster}.lock"
    with path.open("w") as lock:
        left, _ = signal.setitimer(signal.ITIMER_REAL, 0)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
        finally:
            signal.setitimer(signal.ITIMER_REAL, left)
        yield


@dataclass
class OperatorProcess:
    """One ``cloister operator``."""

    config: Path
    """Its settings."""
    log: Path
    """Its log file."""
    environment: dict[str, str] = field(default_factory=dict)
    """Additional environment variables."""
    process: subprocess.Popen[bytes] | None = None
    """The process; None before its start."""

    def start(self) -> "OperatorProcess":
        """Start it; it may be restarted after its exit."""
        program = str(Path(sys.executable).with_name("cloister"))
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [program, "operator", "--config", self.config],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONWARNINGS": "default", **self.environment},
            )
        return self

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self.process is not None
        return self.process.pid

    @property
    def text(self) -> str:
        """Its log."""
        return self.log.read_text() if self.log.exists() else ""

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it (SIGKILL)."""
        self.send(signal.SIGKILL)
        self.wait()

    def stop(self, *, within: float = 30.0) -> int:
        """Send SIGTERM, wait for the exit and return the exit code."""
        self.send(signal.SIGTERM)
        return self.wait(within=within)

    def wait(self, *, within: float = 30.0) -> int:
        """Wait for its exit and return the exit code."""
        assert self.process is not None
        return self.process.wait(within)

    @property
    def running(self) -> bool:
        """Whether it is running."""
        return self.process is not None and self.process.poll() is None

    def end(self) -> None:
        """Kill it, even when it is frozen."""
        if self.running:
            self.send(signal.SIGCONT)
            self.send(signal.SIGTERM)
            try:
                self.wait(within=20.0)
            except subprocess.TimeoutExpired:
                self.kill()

    def wait_until_it_leads(self, *, within: float = PATIENCE) -> None:
        """Wait until it leads and its cache is complete.

        Raises
        ------
        RuntimeError
            When it exits; with the last lines of its log.
        AssertionError
            When it takes too long.
        """
        seen = self.text.count("the cache has synced")

        def leads() -> bool:
            if not self.running:
                raise RuntimeError(f"the operator exited:\n{self.text[-4000:]}")
            return self.text.count("the cache has synced") > seen or self.request("/readyz") == (
                200,
                "working\n",
            )

        until_sync(leads, within=within, what="an operator that leads")

    @property
    def port(self) -> int:
        """Port of health and metrics; 0 = not known yet."""
        found = re.findall(r"health and metrics on [^ ]+:(\d+)", self.text)
        return int(found[-1]) if found else 0

    def request(self, path: str) -> tuple[int, str]:
        """Send a request to its health server; ``(0, "")`` = no response."""
        if not self.port:
            return 0, ""
        try:
            response = httpx.get(
                f"http://127.0.0.1:{self.port}{path}", timeout=5, trust_env=False, verify=NO_TRUST
            )
        except httpx.HTTPError:
            return 0, ""
        return response.status_code, response.text


@dataclass
class Installation:
    """Settings, repositories and operators on one cluster, for one test or module."""

    cluster: Any
    """The cluster: ``name``, ``kubeconfig``, ``registry``, ``kubectl``."""
    folder: Path
    """Files of this installation."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Additional settings of the operator."""
    processes: list[OperatorProcess] = field(default_factory=list)
    """Started operators."""
    slug: str = field(default_factory=lambda: f"o{uuid.uuid4().hex[:8]}")
    """Slug of the Organization; its namespace is ``org-<slug>``."""
    host: str = ""
    """Name of the Host; set by `create_organization`."""

    @property
    def namespace(self) -> str:
        """Namespace of the Organization."""
        return f"org-{self.slug}"

    @property
    def system(self) -> str:
        """Namespace of the operator's Lease."""
        return f"system-{self.slug}"

    @property
    def repositories(self) -> Repositories:
        """Git repositories that the operator reads."""
        return Repositories(self.folder / "repositories")

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl as the administrator."""
        done: str = self.cluster.kubectl(*arguments, stdin=stdin)
        return done

    def prepare(self) -> None:
        """Install the CRDs, and create the Lease's namespace and the folder of repositories."""
        self.repositories.path.mkdir(parents=True, exist_ok=True)
        until_sync(self._is_removed, what="the end of an earlier installation of this name")
        names = [f"crd/{kind.INFO.crd_name}" for kind in KINDS]
        folder = Path(__file__).parents[3] / "crds" / "manifests" / "crds"
        self.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(folder))
        self.kubectl("wait", "--for=condition=Established", "--timeout=60s", *names)
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.system}}
        self.apply(namespace, *roles_in(self.system))

    def _is_removed(self) -> bool:
        """Return whether no namespace of an installation of this name is still being deleted."""
        since = "-ojsonpath={.items[*].metadata.deletionTimestamp}"
        names = (self.system, self.namespace)
        return not self.kubectl("get", "namespace", *names, "--ignore-not-found", since).strip()

    def create_organization(self, *, host: dict[str, Any] | None = None) -> None:
        """Create the Organization with its namespace, which the operator adopts, and a Host."""
        labels = {"cloister.dev/organization": self.slug}
        namespace = {"name": self.namespace, "labels": labels}
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": namespace})
        self.host = f"host-{self.slug}"
        spec = {
            "networkIsolation": "Container",
            "overcommit": {"cpuPercent": 1, "memoryPercent": 1},
            **(host or {}),
        }
        if spec.get("tee", "None") != "None":
            del spec["overcommit"]  # the memory of a confidential machine is fixed
        self.apply(manifest("Host", self.host, spec))
        organization = {
            "namespace": self.namespace,
            "billing": {"containerSubscription": True},
            "entitlements": {"hostSelection": True},
            "limits": {"containers": 1000},
        }
        self.apply(manifest("Organization", self.slug, organization))

    def repository(self, repo: str) -> Repository:
        """Make a repository."""
        return self.repositories.create(repo)

    def apply(self, *manifests: dict[str, Any]) -> None:
        """Apply manifests as a user with kubectl does."""
        text = yaml.safe_dump_all(manifests)

        refused: list[KubectlError] = []

        def judged() -> bool:
            refused.clear()
            try:
                self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)
            except KubectlError as error:
                refused.append(error)
            # Of a quota that was made a moment ago.
            return not any("status unknown for quota" in str(error) for error in refused)

        until_sync(judged, what="counts of the quota")
        if refused:
            raise refused[0]

    def create_container(self, name: str, /, **spec: Any) -> None:
        """Create or change a Container on this installation's Host."""
        body = manifest("Container", name, {"host": self.host, **spec}, self.namespace)
        self.apply(body)

    def kubeconfig(self, program: str) -> Path:
        """Write the kubeconfig of a program, with the rights of its account."""
        return account_kubeconfig(self.cluster, program, self.folder, self.system)

    def write_settings(self, kubeconfig: Path | None = None) -> Path:
        """Write the settings of the next operator, which uses that kubeconfig."""
        usual = {
            "containersDomain": CONTAINERS_DOMAIN,
            "shimImage": NO_IMAGE,
            "guestImage": NO_IMAGE,
            "enclaveNetwork": {"resolvers": self.cluster.resolvers},
            "kubeconfig": str(kubeconfig or self.kubeconfig("operator")),
            "operatorNamespace": self.system,
            "drainSeconds": 1,
            "sources": {"kind": "git", "base": str(self.repositories.path)},
            "registry": {
                "plain_http": [self.cluster.registry],
                "allow_private": [self.cluster.registry],
            },
        }
        path = self.folder / f"operator-{len(self.processes)}.yaml"
        path.write_text(yaml.safe_dump(usual | self.settings))
        return path

    def operator(
        self, *, environment: dict[str, str] | None = None, kubeconfig: Path | None = None
    ) -> OperatorProcess:
        """Start an operator with its account's kubeconfig or that one."""
        log = self.folder / f"operator-{len(self.processes)}.log"
        process = OperatorProcess(self.write_settings(kubeconfig), log, environment or {})
        self.processes.append(process)
        return process.start()

    def kill_operator(self) -> None:
        """Kill the last operator and delete its Lease, so that the next one need not wait."""
        self.processes[-1].kill()
        self.kubectl("delete", "lease/cloister-operator", "-n", self.system, "--ignore-not-found")

    def end(self) -> None:
        """Stop the operators, then remove what was created on the cluster."""
        for process in self.processes:
            process.end()
        with contextlib.suppress(Exception):
            remove = ("delete", "--ignore-not-found", "--wait=false")
            self.kubectl(*remove, "containers.cloister.dev", "--all", "-n", self.namespace)
            self.kubectl(*remove, f"organization/{self.slug}", f"host/host-{self.slug}")
            self._release_organization()
            self.kubectl(*remove, f"namespace/{self.namespace}", f"namespace/{self.system}")
            bindings = [each for each in roles_in(self.system) if "subjects" in each]
            self.kubectl(*remove, "-f", "-", stdin=yaml.safe_dump_all(bindings))
            self._release_claims()
            self._release_enclaves()

    def _release_enclaves(self) -> None:
        """Remove the finalizers of Enclaves: no operator runs that would do it."""
        for enclave in self.enclaves():
            if enclave.metadata.finalizers:
                patch = '{"metadata":{"finalizers":null}}'
                place = ("-n", self.namespace, enclave.metadata.name)
                self.kubectl("patch", "encl", *place, "--type=merge", "-p", patch)

    def _release_organization(self) -> None:
        """Remove the finalizer of the Organization: no operator runs that would do it."""
        patch = '{"metadata":{"finalizers":null}}'
        with contextlib.suppress(subprocess.CalledProcessError):
            self.kubectl("patch", "org", self.slug, "--type=merge", "-p", patch)

    def _release_claims(self) -> None:
        """Delete the claims of this Organization: no operator runs that would do it."""
        for claim in self.objects("hostnameclaims.cloister.dev", every=True):
            if claim["spec"]["holder"]["namespace"] == self.namespace:
                name = claim["metadata"]["name"]
                self.kubectl("delete", "--ignore-not-found", f"hostnameclaim/{name}")

    def logs(self) -> str:
        """Return the last lines of all logs, for the message of a failed test."""
        return "\n".join(f"--- {each.log.name}\n{each.text[-6000:]}" for each in self.processes)

    def objects(self, kind: str, *, every: bool = False) -> list[dict[str, Any]]:
        """List objects of the Organization's namespace, or all of the cluster."""
        where = ("-A",) if every else ("-n", self.namespace)
        items: list[dict[str, Any]] = yaml.safe_load(
            self.kubectl("get", kind, *where, "-o", "json")
        )["items"]
        return items

    def container(self, name: str) -> Container | None:
        """Read a Container; None = it does not exist."""
        found = [
            each
            for each in self.objects("containers.cloister.dev")
            if each["metadata"]["name"] == name
        ]
        return Container.read(found[0]) if found else None

    def enclaves(self, container: str | None = None) -> list[Enclave]:
        """Read the Enclaves, of one Container or all."""
        everything = (Enclave.read(each) for each in self.objects("enclaves.cloister.dev"))
        return [each for each in everything if container in (None, each.spec.container.name)]

    def wait_for(
        self, name: str, condition: str, *, reason: str = "", within: float = PATIENCE
    ) -> Container:
        """Wait until a condition of a Container is True, for this generation of its spec.

        Parameters
        ----------
        reason
            Reason that it must have; empty = any.
        within
            Timeout in seconds.

        Raises
        ------
        AssertionError
            When it is not reached; with the last status and the logs.
        """

        def holds() -> Container | None:
            container = self.container(name)
            assert container is not None
            found = condition_of(container, condition)
            current = container.status.observed_generation == container.metadata.generation
            fits = found is not None and found["status"] == "True"
            if found is None or not current or not fits or reason not in ("", found["reason"]):
                raise AssertionError(container.status.wire())
            return container

        try:
            found = until_sync(holds, within=within, every=0.3, what=f"{name} {condition} {reason}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.logs()}") from error
        assert found is not None
        return found


def condition_of(container: Container, kind: str) -> dict[str, Any] | None:
    """Return a condition of a Container as JSON data; None = it has none of that type."""
    for each in container.status.conditions:
        if each.type == kind:
            return each.wire()
    return None


def manifest(
    kind: str, name: str, spec: dict[str, Any], namespace: str | None = None
) -> dict[str, Any]:
    """Build an object of one of Cloister's kinds."""
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {
        "apiVersion": "cloister.dev/v1alpha1",
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
    }


def file_text(
    image: str,
    *,
    command: Sequence[str] = (),
    paths: Sequence[str] = ("/",),
    shim: Mapping[str, Any] | None = None,
    **container: Any,
) -> bytes:
    """Write a configuration file with one container ``web`` on port 8080.

    Parameters
    ----------
    image
        Image with digest.
    command
        Its command; empty = the image's own.
    """
    entry: dict[str, Any] = {"name": "web", "image": image, **container}
    if command:
        entry["command"] = list(command)
    document = {
        "cvm-version": "0.10.0",
        "cpus": 2,
        "memory": 8192,
        "containers": [entry],
        "shim": {"upstream-port": 8080, "paths": list(paths), **(shim or {})},
    }
    return yaml.safe_dump(document, sort_keys=False).encode()
