"""The facade as a process, and an installation for it: organization, host, releases, images, keys.

Used by `tests/api/facade`. The API server, git, the registry, the ledger and the facade are real.
No operator runs: a Container has no status unless `FacadeInstallation.report` writes it.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from sqlalchemy import delete, update
from sqlalchemy.ext.asyncio import AsyncEngine

from cloister_api.commands.keys import create_key, revoke_key
from cloister_api.ledger.audit import AuditRow, AuditTrail
from cloister_api.ledger.database import open_ledger, place_of
from cloister_api.ledger.keys.admin_keys import AdminKey, AdminKeys, count_change
from cloister_api.ledger.keys.key_material import KeyMaterial
from cloister_api.ledger.tables import ADMIN_KEYS, AUDIT
from cloister_api.settings import ApiSettings
from cloister_clients.kube import KubeClient, NotFound
from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Container, Domain, Enclave, Host, HostnameClaim, Organization
from cloister_crds.lifecycle.request import record
from cloister_crds.names import CONTAINER_LABEL, service_name
from dev.cluster import Cluster
from dev.plain_http import NO_TRUST
from tests.support.clients.openapi_check import check_response
from tests.support.cluster.accounts import account_kubeconfig, organization_namespace
from tests.support.cluster.clusters import administrator, unique
from tests.support.programs.published_settings import publish
from tests.support.servers.git import Repositories, Repository
from tests.support.servers.registry import Registry, registry
from tests.support.waiting import until, until_sync

__all__ = [
    "ADMIN",
    "COMMIT_OF_TAG",
    "DOMAIN",
    "LIMITS",
    "WEBHOOK_SECRET",
    "Facade",
    "FacadeInstallation",
    "config_file",
    "facade",
    "facade_registry",
    "facade_settings",
    "new_installation",
    "other_world",
    "run_command",
    "start_facade",
    "world",
]

DOMAIN = "containers.test"
"""Domain of generated host names in these tests."""
WEBHOOK_SECRET = "made-up-secret-of-webhooks"
"""Secret of release webhooks."""
COMMAND = Path(sys.executable).parent / "cloister"
"""The tested command."""
ADMIN = "ada@example.test"
"""Administrator of every organization of these tests."""
LIMITS = httpx.Limits(keepalive_expiry=1)
"""Of connections: below the facade's keep-alive timeout; a closing one loses requests."""
COMMIT_OF_TAG = "c" * 40
"""As currentCommit of a reported status: the commit that currentTag points to."""
CACHING = ("facade", "proxied", "dashboard", "real_sign_ins", "forged_sign_ins")
"""Fixtures of running facades, which have to cache an installation before its test begins."""


def config_file(image: str, *, extra: Mapping[str, Any] | None = None) -> bytes:
    """Return a valid configuration file with one container."""
    size = {"cvm-version": "0.10.0", "cpus": 2, "memory": 8192}
    document: dict[str, Any] = {
        **size,
        "containers": [{"name": "web", "image": image, "env": ["GREETING"]}],
        "shim": {"upstream-port": 8080, "paths": ["/*"]},
    }
    return yaml.safe_dump({**document, **(extra or {})}, sort_keys=False).encode()


@dataclass
class Facade:
    """A running facade."""

    process: subprocess.Popen[bytes]
    """The process."""
    base: str
    """Its address."""
    log: Path
    """Its log."""

    def client(self, key: str | None = None) -> httpx.AsyncClient:
        """Return a client with an admin key; responses are checked against the OpenAPI document."""
        return httpx.AsyncClient(
            base_url=self.base,
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=60,
            verify=NO_TRUST,
            limits=LIMITS,
            event_hooks={"response": [check_response]},
        )

    async def until_cached(self, world: "FacadeInstallation") -> None:
        """Wait until it has cached what was created for a test."""
        await world.await_cached_by(self)

    def kill(self) -> None:
        """Kill it (SIGKILL)."""
        self.process.kill()
        self.process.wait(30)

    def stop(self) -> int:
        """Stop it (SIGTERM), and return its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def run_command(
    *arguments: str, check: bool = True, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run ``cloister`` with arguments."""
    done = subprocess.run(
        [str(COMMAND), *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **(environment or {})},
    )
    assert not check or done.returncode == 0, f"cloister {' '.join(arguments)}: {done.stderr}"
    return done


@contextlib.contextmanager
def start_facade(settings: Path) -> Iterator[Facade]:
    """Run ``cloister api`` until the block ends; its log is shown when it fails."""
    log = settings.parent / f"{unique('api')}.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [str(COMMAND), "api", "--config", str(settings)],
            stdout=sink,
            stderr=subprocess.STDOUT,
        )
    try:
        base = until_sync(lambda: printed_address(process, log), what="the facade's address")
        ready = Facade(process, base, log)
        until_sync(lambda: is_ready(ready), what="the facade to be ready")
        yield ready
    except BaseException:
        sys.stderr.write(f"\n--- {log} ---\n{log.read_text()[-8000:]}\n")
        raise
    finally:
        process.kill()
        process.wait(30)


def printed_address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Return the address that the facade has printed; empty = not yet."""
    assert_running(process)
    found = re.search(r'\blistening on (http://[^\s"]+)', log.read_text())
    return found[1] if found else ""


def assert_running(process: subprocess.Popen[bytes]) -> None:
    """Fail at once when the process has exited."""
    if process.poll() is not None:
        raise RuntimeError(f"the facade exited with {process.returncode}")


def is_ready(facade: Facade) -> bool:
    """Return whether the facade is ready."""
    assert_running(facade.process)
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"{facade.base}/readyz", timeout=5, verify=NO_TRUST).is_success
    return False


@dataclass
class FacadeInstallation:
    """An organization and its Host, repository, image and keys; names are unique to the test."""

    kube: KubeClient
    """Client with all permissions."""
    organization: str
    """Slug."""
    host: str
    """Default Host that runs without the guest."""
    registry: Registry
    """The registry."""
    image: str
    """Reference of an image in the registry, with digest."""
    settings: Path
    """Settings file of the facade."""
    key: str = field(default="", repr=False)
    """Admin key of the organization."""

    @property
    def namespace(self) -> str:
        """Namespace of the organization."""
        return f"org-{self.organization}"

    @property
    def repo(self) -> str:
        """Name of a repository with the releases v1.0.0 and v1.1.0."""
        return f"{self.organization}/web"

    @property
    def repository(self) -> Repository:
        """The repository, for writing."""
        return Repository(self.settings.parent / "repositories" / f"{self.repo}.git")

    async def build(self, **more: Any) -> None:
        """Create everything, with other fields of the Organization's spec."""
        repository = Repositories(self.settings.parent / "repositories").create(self.repo)
        repository.release("v1.0.0", config_file(self.image))
        repository.release("v1.1.0", config_file(self.image))
        for kind, body in organization_namespace(self.organization):
            await self.kube.create(kind, body)
        host = {"tee": "None", "networkIsolation": "Container", "default": True}
        await self.kube.create(of(Host), {"metadata": {"name": self.host}, "spec": host})
        spec = {
            "namespace": self.namespace,
            "members": [{"user": ADMIN, "role": "Admin"}],
            "billing": {"containerSubscription": True},
        }
        body = {"metadata": {"name": self.organization}, "spec": {**spec, **more}}
        await self.kube.create(of(Organization), body)
        self.key = await self.new_key()

    async def await_cached_by(self, facade: Facade) -> None:
        """Wait until a running facade has cached what was created."""
        async with facade.client(self.key) as client:

            async def shown() -> bool:
                answer = await client.get("/api/containers/hosts")
                assert answer.status_code == 200, answer.text
                return self.host in {each["name"] for each in answer.json()}

            await until(shown, every=0.02, what=f"the Host {self.host}")

    async def sweep(self) -> None:
        """Delete what facades process; the rest stays with its namespace (see `namespace`)."""
        await self.kube.delete(of(Host), self.host)
        with contextlib.suppress(NotFound):
            await self.kube.delete(of(Organization), self.organization)
        for kind in (Container, Enclave, Domain):
            for item in (await self.kube.list(of(kind), self.namespace)).items:
                with contextlib.suppress(NotFound):
                    await self.kube.delete(of(kind), item["metadata"]["name"], self.namespace)
        for item in (await self.kube.list(of(HostnameClaim))).items:
            if item["spec"]["holder"]["namespace"] == self.namespace:
                await self.kube.delete(of(HostnameClaim), item["metadata"]["name"])

    async def new_key(self, *, user: str = ADMIN, days: int | None = None) -> str:
        """Create an admin key with the command."""
        settings = ApiSettings.read(self.settings)
        return await create_key(settings, self.organization, user, "test", days)

    async def claims(self) -> list[str]:
        """Return the host names claimed by containers of the organization."""
        items = (await self.kube.list(of(HostnameClaim))).items
        return sorted(
            item["metadata"]["name"]
            for item in items
            if item["spec"]["holder"]["namespace"] == self.namespace
        )

    def body(self, name: str, **more: Any) -> dict[str, Any]:
        """Return the body of a create request."""
        return {"name": name, "repo": self.repo, "tag": "v1.0.0", **more}

    async def containers(self) -> list[dict[str, Any]]:
        """Read the Containers of the organization from the server."""
        return list((await self.kube.list(of(Container), self.namespace)).items)

    async def container(self, name: str) -> dict[str, Any] | None:
        """Read a Container from the server; None = it does not exist."""
        try:
            return await self.kube.get(of(Container), name, self.namespace)
        except NotFound:
            return None

    async def report(self, name: str, **status: Any) -> None:
        """Write a Container's status as the operator does, for its current generation."""
        present = await self.kube.get(of(Container), name, self.namespace)
        if status.get("currentCommit") == COMMIT_OF_TAG:
            status["currentCommit"] = self.repository.git("rev-parse", status["currentTag"])
        seen = {"observedGeneration": present["metadata"]["generation"], **status}
        await self.kube.merge_patch(
            of(Container), name, {"status": seen}, self.namespace, subresource="status"
        )

    async def enclave(
        self,
        container: str,
        *,
        name: str = "",
        finalizers: Sequence[str] = (),
        hostnames: Sequence[str] = (),
    ) -> str:
        """Create an Enclave of a Container's current request, as the operator does."""
        present = await self.kube.get(of(Container), container, self.namespace)
        owner = Container.read(present)
        name = name or f"{container}-a-1"
        metadata = {
            "labels": {CONTAINER_LABEL: service_name(container)},
            "finalizers": list(finalizers),
            "ownerReferences": [owner.owner_reference()],
        }
        spec = {
            "container": {"name": container, "uid": owner.metadata.uid},
            "request": record(owner.spec).wire(),
            "tag": owner.spec.tag,
            "commit": owner.spec.commit,
            "hostnames": list(hostnames),
        }
        return await self.create_enclave(name, metadata, spec)

    async def create_enclave(
        self, name: str, metadata: dict[str, Any], spec: dict[str, Any]
    ) -> str:
        """Create an Enclave; common fields are added."""
        always = {
            "revision": "a",
            "attempt": 1,
            "repo": self.repo,
            "configDigest": f"sha256:{'0' * 64}",
            "configFile": "service-config.yml",
            "summary": {"cpus": 2, "memoryMB": 8192, "containers": ["web"]},
            "host": self.host,
        }
        body = {"metadata": {"name": name, **metadata}, "spec": {**always, **spec}}
        await self.kube.create(of(Enclave), body, self.namespace)
        return name

    async def report_enclave(self, name: str, **status: Any) -> None:
        """Write an Enclave's status as the operator does."""
        patch = {"status": status}
        await self.kube.merge_patch(of(Enclave), name, patch, self.namespace, subresource="status")

    async def end_enclave(self, name: str) -> None:
        """Delete an Enclave and its finalizers; no garbage collector runs here."""
        patch: dict[str, Any] = {"metadata": {"finalizers": None}}
        await self.kube.merge_patch(of(Enclave), name, patch, self.namespace)
        with contextlib.suppress(NotFound):
            await self.kube.delete(of(Enclave), name, self.namespace)

    async def apply_as(self, manager: str, body: dict[str, Any]) -> None:
        """Apply a Container as another field manager."""
        async with self.as_manager(manager) as kube:
            await kube.apply(of(Container), body, self.namespace)

    def as_manager(self, manager: str) -> KubeClient:
        """Return a client with all permissions that writes as another field manager."""
        return KubeClient(self.kube.config, field_manager=manager, user_agent="tests")

    @contextlib.asynccontextmanager
    async def ledger(self) -> AsyncIterator[AsyncEngine]:
        """Open the facade's ledger."""
        engine = open_ledger(place_of(ApiSettings.read(self.settings).ledger))
        try:
            yield engine
        finally:
            await engine.dispose()

    async def audit(self) -> list[AuditRow]:
        """Return the audit trail of the organization."""
        async with self.ledger() as engine:
            return await AuditTrail(engine).of(self.organization)

    async def forget_response(self, target: str) -> None:
        """Leave the ledger as when the facade is killed just before its response."""
        async with self.ledger() as engine, engine.begin() as connection:
            await connection.execute(delete(AUDIT).where(AUDIT.c.target == target))

    async def record_of(self, key: str) -> AdminKey:
        """Return the ledger's record of a key."""
        settings = ApiSettings.read(self.settings)
        material = KeyMaterial.read(settings.ledger.key_material)
        async with self.ledger() as engine:
            keys = await AdminKeys(engine, material).all(self.organization)
        return next(one for one in keys if one.index == material.index(key))

    async def is_revoked(self, key: str) -> bool:
        """Return whether a key is revoked in the ledger."""
        return (await self.record_of(key)).revoked_at is not None

    async def expire(self, key: str) -> None:
        """Expire a key in the ledger."""
        found = await self.record_of(key)
        async with self.ledger() as engine, engine.begin() as connection:
            await count_change(connection)
            past = found.created_at - timedelta(days=1)
            change = update(ADMIN_KEYS).where(ADMIN_KEYS.c.id == found.id)
            await connection.execute(change.values(expires_at=past))

    async def revoke(self, key: str) -> None:
        """Revoke a key with the command."""
        found = await self.record_of(key)
        assert await revoke_key(ApiSettings.read(self.settings), found.id)

    async def change_organization(self, **spec: Any) -> None:
        """Change fields of the Organization's spec."""
        await self.kube.merge_patch(of(Organization), self.organization, {"spec": spec})


@pytest.fixture(scope="session")
def facade_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Registry, str]]:
    """Provide a registry with one image, and the image's reference."""
    with registry(tmp_path_factory.mktemp("registry")) as running:
        pushed = running.image("team/web", config={"Entrypoint": ["/web"]})
        yield running, f"{running.host}/team/web:v1@{pushed.digest}"


@pytest.fixture(scope="session")
def facade_settings(
    api_cluster: Cluster,
    facade_registry: tuple[Registry, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """Provide the settings file of a facade with an empty ledger."""
    folder = tmp_path_factory.mktemp("facade")
    host = facade_registry[0].host
    settings = {
        "kubeconfig": str(account_kubeconfig(api_cluster, "api", folder)),
        "listen": {"port": 0},
        "stop": {"drainSeconds": 0},
        "metrics": {"port": 0},
        "utilization": {"everySeconds": 1},
        "ledger": {"path": "ledger.db", "keyMaterial": "keys.json"},
        "sources": {"kind": "git", "base": str(folder / "repositories")},
        "registry": {"allowPrivate": [host], "plainHttp": [host]},
        "gitopsManagers": ["kustomize-controller"],
        "webhooks": {"releaseSecretFile": str(folder / "release-webhooks")},
    }
    (folder / "release-webhooks").write_text(WEBHOOK_SECRET)
    path = folder / "api.yml"
    path.write_text(yaml.safe_dump(settings))
    run_command("admin-key", "init", "--config", str(path))
    publish(api_cluster, DOMAIN)
    return path


@pytest.fixture(scope="session")
def facade(facade_settings: Path) -> Iterator[Facade]:
    """Provide a running facade; tests that stop it start one of their own."""
    with start_facade(facade_settings) as running:
        yield running


@pytest.fixture
async def world(
    request: pytest.FixtureRequest, facade_settings: Path
) -> AsyncIterator[FacadeInstallation]:
    """Provide an organization with a host, a repository with two releases, and an admin key."""
    async with new_installation(request, facade_settings) as made:
        yield made


@pytest.fixture
async def other_world(
    request: pytest.FixtureRequest, facade_settings: Path
) -> AsyncIterator[FacadeInstallation]:
    """Provide a second organization at the same facade."""
    async with new_installation(request, facade_settings) as made:
        yield made


@contextlib.asynccontextmanager
async def new_installation(
    request: pytest.FixtureRequest, settings: Path, slug: str = "", **more: Any
) -> AsyncIterator[FacadeInstallation]:
    """Create an organization with its objects; the test's facades, if any, have cached it."""
    cluster: Cluster = request.getfixturevalue("api_cluster")
    registry, image = request.getfixturevalue("facade_registry")
    config = administrator(cluster.kubeconfig)
    async with KubeClient(config, field_manager="tests", user_agent="tests") as kube:
        slug, host = slug or unique("acme"), unique("host")
        made = FacadeInstallation(kube, slug, host, registry, image, settings)
        await made.build(**more)
        try:
            for name in CACHING:
                if name in request.fixturenames:
                    await request.getfixturevalue(name).until_cached(made)
            yield made
        finally:
            await made.sweep()
