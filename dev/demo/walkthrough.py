"""The steps of the demo, each with its checks and the lines that it prints."""

import shlex
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import httpx

from dev.chart.helm import NAMESPACE as SYSTEM
from dev.cluster import Cluster, LocalClusterError
from dev.cluster.images import Image, push
from dev.cluster.processes import wait_until
from dev.demo import manifests, repository
from dev.demo.https_client import Page, fetch_page, forward_port
from dev.demo.installation import DemoInstallation
from dev.demo.next_steps import NextSteps
from dev.demo.verification import NOT_CONFIDENTIAL, verify
from dev.plain_http import NO_TRUST

PATIENCE = 300.0
"""Seconds that a container may take to be ready on a busy machine."""
LINE = 150
"""Columns of a line of another program that is shown."""
FIRST, SECOND = "v1.0.0", "v1.1.0"
NAMESPACE = manifests.NAMESPACE


@dataclass(slots=True)
class Walkthrough:
    """One run of the demo."""

    installation: DemoInstallation
    """The installation that it uses."""
    key: str = ""
    """The admin key; empty = not created yet."""
    api: httpx.Client | None = None
    """Client of the API; None = it is not reached yet."""

    @property
    def cluster(self) -> Cluster:
        """The local cluster."""
        return self.installation.cluster

    def run(self) -> NextSteps:
        """Run all steps, print what happens, and return what can be done then.

        Raises
        ------
        ImageError
            When the images cannot be pushed.
        LocalClusterError
            When a check fails; the message names it and ends with the last lines of the logs.
        """
        self._release()
        self._install()
        with self._reach_api() as self.api:
            container = self._create()
            self._relaunch(container)
        self._apply()
        address = self.installation.release.dashboard
        return NextSteps(self.cluster, self.installation.authority, self.key, container, address)

    def remove(self) -> None:
        """Remove the demo from a cluster that stays in use."""
        release = self.installation.release
        delete = ("delete", "--ignore-not-found", "--timeout=120s")
        if self._kubectl("get", "namespace", NAMESPACE, "--ignore-not-found", "-oname"):
            self._kubectl(*delete, "ctr", "--all", "-n", NAMESPACE)
            self._await_no_enclave()
            release.remove_policies(NAMESPACE)
        for one in (f"org/{manifests.ORGANIZATION}", f"ns/{NAMESPACE}", f"chost/{manifests.HOST}"):
            self._kubectl(*delete, one)
        release.uninstall()

    def _release(self) -> None:
        say("Publishing two releases of the service: image, service-config.yml, git tag")
        for tag in (FIRST, SECOND):
            program = repository.build_program(tag, self.installation.folder / "programs")
            image = Image(files={"/hello": program}, entrypoint=("/hello",), user="65532:65532")
            reference = push(image, self.cluster.registry, repository.REPO, tag)
            commit = repository.release(self.installation.repositories, tag=tag, image=reference)
            note(f"{repository.REPO} {tag} at {commit[:12]}, image {reference}")

    def _install(self) -> None:
        say("Installing Cloister by its chart, then a Host, an Organization and an admin key")
        self.installation.install()
        release = self.installation.release
        note(f"helm install {release.helm.release} {release.chart.name} -n {SYSTEM}")
        release.apply(manifests.host(), manifests.organization())
        note(
            f"Host {manifests.HOST}: no TEE (so not confidential: Confidential is False), "
            "one network per enclave, 5 % of the configured cpus and 2 % of the memory reserved"
        )
        self.installation.await_namespace(NAMESPACE)
        self.key = release.create_admin_key(
            organization=manifests.ORGANIZATION, user=manifests.USER, name="demo"
        )
        note(f"admin key of {manifests.USER}, made in the API's Pod")

    @contextmanager
    def _reach_api(self) -> Iterator[httpx.Client]:
        """Provide a client of the API, by `kubectl port-forward`."""
        try:
            with (
                forward_port(self.cluster, SYSTEM, "cloister-api", 80) as port,
                httpx.Client(
                    base_url=f"http://127.0.0.1:{port}",
                    headers={"Authorization": f"Bearer {self.key}"},
                    timeout=60,
                    # Shorter than the server's, so that no call takes a connection as it ends.
                    limits=httpx.Limits(keepalive_expiry=2),
                    trust_env=False,
                    verify=NO_TRUST,
                ) as client,
            ):
                yield client
        except ConnectionError as error:
            self._fail(str(error))

    def _create(self) -> str:
        say(f"Creating container web from {repository.REPO} {FIRST} over REST")
        self._remove_old("web")
        body = {
            "name": "web",
            "repo": repository.REPO,
            "tag": FIRST,
            "variables": {"GREETING": "Hello"},
        }
        record = self._call("POST", "/api/containers", json=body)
        identifier = str(record["id"])
        self._await_tag(identifier, FIRST)
        page = self._fetch("web", record["domain"], "/")
        self._expect("Hello from v1.0.0" in page.body, f"response body: {page.body.strip()!r}")
        self._expect(
            record["domain"] in page.certificate_names,
            f"the verified certificate covers {', '.join(page.certificate_names)} "
            f"(issuer {page.issuer}); its private key never left the enclave",
        )
        missing = self._fetch("web", record["domain"], "/not-listed")
        self._expect(
            missing.status == httpx.codes.NOT_FOUND,
            f"a path not listed in service-config.yml: {missing.status} {missing.body.strip()}",
        )
        return identifier

    def _relaunch(self, identifier: str) -> None:
        say(f"Updating container web to {SECOND}")
        record = self._call("POST", f"/api/containers/{identifier}/relaunch", json={"tag": SECOND})
        self._await_tag(identifier, SECOND)
        page = self._fetch("web", record["domain"], "/")
        self._expect("from v1.1.0" in page.body, f"response body: {page.body.strip()!r}")

        self._verify(record["domain"])

    def _verify(self, domain: str) -> None:
        say("Verifying container web as its client: cloister-verify computes what must run")
        try:
            code, said = verify(
                self.cluster,
                domain,
                (NAMESPACE, self._service("web")),
                release=(repository.REPO, SECOND),
                git=self.installation.git,
                folder=self.installation.folder,
            )
        except ConnectionError as error:
            self._fail(str(error))
        quote(said.splitlines())
        self._expect(
            code == NOT_CONFIDENTIAL,
            f"exit code {code}: what runs is what the release says, on the word of this machine: "
            "it has no TEE, so nothing here is confidential",
        )

    def _apply(self) -> None:
        say("Creating a second container with kubectl apply")
        second = manifests.container(
            "bonjour", repo=repository.REPO, tag=SECOND, GREETING="Bonjour"
        )
        self.installation.release.apply(second)
        waited = self._kubectl(
            *("wait", "--for=condition=Ready", f"--timeout={PATIENCE:.0f}s", "ctr/bonjour"),
            *("-n", NAMESPACE),
        )
        note(waited.strip())
        domain = self._kubectl(
            "get", "ctr", "bonjour", "-n", NAMESPACE, "-ojsonpath={.status.domain}"
        )
        page = self._fetch("bonjour", domain, "/")
        self._expect("Bonjour from v1.1.0" in page.body, f"response body: {page.body.strip()!r}")
        print(self._kubectl("get", "ctr,encl", "-A"), end="")

    def _remove_old(self, name: str) -> None:
        """Delete the container of an earlier run of the demo."""
        for record in self._call("GET", "/api/containers", quiet=True):
            if record["name"] == name:
                self._call("DELETE", f"/api/containers/{record['id']}")
        gone = wait_until(lambda: not self._objects_of(name), within=PATIENCE)
        if not gone:
            self._fail(f"container {name} of an earlier run was deleted but is not gone")

    def _objects_of(self, name: str) -> str:
        return self._kubectl("get", "ctr", name, "-n", NAMESPACE, "--ignore-not-found", "-oname")

    def _await_no_enclave(self) -> None:
        """Wait until what was deleted has ended, since an uninstall asks for that."""
        get = ("get", "encl", "-n", NAMESPACE, "-oname")
        if not wait_until(lambda: not self._kubectl(*get), within=PATIENCE):
            self._fail("containers were deleted, but their enclaves do not end")

    def _call(
        self, method: str, path: str, *, json: dict[str, Any] | None = None, quiet: bool = False
    ) -> Any:
        assert self.api is not None
        try:
            response = self.api.request(method, path, json=json)
        except httpx.TransportError as error:
            self._fail(f"{method} {path} has no response: {error}")
        if not quiet:
            note(f"{method} {path} -> {response.status_code}")
        if response.is_error:
            self._fail(f"{method} {path} returned {response.status_code}: {response.text}")
        return response.json() if response.content else None

    def _await_tag(self, identifier: str, tag: str) -> None:
        """Wait until a release serves, and print each status on the way."""
        reported: list[str] = []

        def serves() -> bool:
            record = self._call("GET", f"/api/containers/{identifier}", quiet=True)
            status = record["status"]
            if record.get("update_status"):
                status += f", update to {record['update_tag']} {record['update_status']}"
            if [status] != reported[-1:]:
                reported.append(status)
                note(f"status: {status}")
            if record["status"] == "failed" or record.get("update_status") == "failed":
                self._fail(f"the container has failed: {record.get('error_message')}")
            ready: bool = record["status"] == "ready" and record["current_tag"] == tag
            return ready and not record.get("update_status")

        began = time.monotonic()
        if not wait_until(serves, within=PATIENCE, every=0.2):
            self._fail(f"{tag} was not ready within {PATIENCE:.0f} s")
        note(f"{tag} is ready after {time.monotonic() - began:.1f} s")

    def _fetch(self, container: str, domain: str, path: str) -> Page:
        """Fetch a page through `kubectl port-forward`, which works on every kind of cluster."""
        service = self._service(container)
        authority = self.installation.authority.read_text()
        pages: list[Page] = []
        last: list[OSError] = []

        def fetched() -> bool:
            try:
                with forward_port(self.cluster, NAMESPACE, service) as port:
                    pages.append(fetch_page("127.0.0.1", port, domain, path, authority=authority))
            except OSError as error:
                last[:] = [error]
            return bool(pages)

        if not wait_until(fetched, within=PATIENCE):
            self._fail(f"https://{domain}{path} does not respond: {last[0]}")
        note(f"GET https://{domain}{path} -> {pages[0].status}")
        return pages[0]

    def _service(self, container: str) -> str:
        """Return the name of the Service of a container's enclave."""
        return self._kubectl(
            *("get", "service", "-n", NAMESPACE, "-l", f"cloister.dev/container={container}"),
            "-ojsonpath={.items[0].metadata.name}",
        )

    def _kubectl(self, *arguments: str) -> str:
        try:
            return self.cluster.kubectl(*arguments)
        except subprocess.CalledProcessError as error:
            self._fail(f"`kubectl {shlex.join(arguments)}` failed: {error.stderr}")

    def _expect(self, holds: bool, what: str) -> None:  # noqa: FBT001 - reads as a sentence
        if not holds:
            self._fail(f"check failed: {what}")
        note(what)

    def _fail(self, what: str) -> NoReturn:
        raise LocalClusterError(f"{what}\n{self.installation.release.state()}")


def say(text: str) -> None:
    """Print the heading of a step."""
    print(f"\n== {text}", flush=True)


def quote(lines: Iterable[str]) -> None:
    """Print lines of another program, shortened."""
    for line in lines:
        note(line if len(line) <= LINE else f"{line[:LINE]}…")


def note(text: str) -> None:
    """Print a result within a step."""
    print(f"   {text}", flush=True)
