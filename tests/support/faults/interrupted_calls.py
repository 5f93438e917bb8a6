"""One call of the facade, interrupted at a write: it is atomic, and a retry completes it.

The test chooses what crashes: the API server (`test_server_dies`) or the facade
(`test_facade_dies`).
"""

import asyncio
import contextlib
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from cloister_clients.kube.kinds import SECRET, of
from cloister_crds.kinds import (
    Container,
    Deployment,
    Domain,
    RegistryCredential,
    SSHKey,
)
from cloister_crds.kinds import Secret as Csec
from cloister_crds.names import VALUE_LABEL
from dev.cluster import Cluster
from tests.support.cluster.accounts import account_user
from tests.support.cluster.clusters import unique
from tests.support.faults.fault_kinds import ApiRequest, CrashPoints, WriteRecorder
from tests.support.faults.faulty_proxy import FaultyProxy, faulty_proxy
from tests.support.faults.mutations import CALLS, Call, Sent, simulated_domain_checks
from tests.support.programs.facade import (
    Facade,
    FacadeInstallation,
    new_installation,
    start_facade,
)
from tests.support.waiting import until

__all__ = [
    "DOOMED",
    "InterruptedCall",
    "Successors",
    "entitled_world",
    "proxied_settings",
    "proxy",
]

DOOMED = "facade"
"""Name of the port by which the facade that crashes reaches the API server."""

KINDS = (Csec, RegistryCredential, SSHKey, Domain, Container, Deployment)
LISTS = ("containers", "deployments", "secrets", "ssh-keys", "domains", "registry-credentials")
VOLATILE = {"id", "deployment_id", "update_deployment_id", "created_at", "updated_at"} | {
    f"{each}_count" for each in ("instance", "ready", "failed", "stopped", "deploying")
}
"""Fields of records that differ between equal objects, or follow from others."""
Seen = Counter[str]


@pytest.fixture(scope="module")
def proxy(api_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyProxy]:
    """Provide a proxy in front of the API server."""
    with faulty_proxy(api_cluster.kubeconfig, tmp_path_factory.mktemp("faulty")) as running:
        running.user = account_user("api")
        yield running


@pytest.fixture(scope="module")
def proxied_settings(proxy: FaultyProxy, facade_settings: Path) -> Path:
    """Provide settings of a facade that uses the proxy."""
    settings = yaml.safe_load(facade_settings.read_text())
    path = facade_settings.with_name("shaken.yml")
    path.write_text(
        yaml.safe_dump({**settings, "kubeconfig": str(proxy.open_port(DOOMED).kubeconfig)})
    )
    return path


@pytest.fixture(scope="module")
def proxied(proxied_settings: Path) -> Iterator[Facade]:
    """Provide a facade that reaches the cluster through the proxy."""
    with start_facade(proxied_settings) as running:
        yield running


@pytest.fixture
async def entitled_world(
    request: pytest.FixtureRequest, facade_settings: Path
) -> AsyncIterator[FacadeInstallation]:
    """Provide an organization with all entitlements, and a simulated operator for its Domains.

    It has them from its creation on: a facade that has not cached it reads it from the server, and
    may cache an earlier version after that.
    """
    slug = unique("acme")
    entitlements = {"privateRegistries": True, "domainSuffixes": [f"{slug}.test"]}
    more = {"entitlements": entitlements, "limits": {"containers": 1000}}
    async with (
        new_installation(request, facade_settings, slug, **more) as made,
        simulated_domain_checks(made),
    ):
        yield made


async def records(client: httpx.AsyncClient, name: str) -> Seen:
    """Return the records that the API shows, without what depends on the name."""
    found: Seen = Counter()
    for each in LISTS:
        response = await client.get(f"/api/{each}")
        assert response.status_code == 200, response.text
        body = response.json()
        listed = body if isinstance(body, list) else [{**body[key], "of": key} for key in body]
        for record in listed:
            kept = {key: value for key, value in record.items() if key not in VOLATILE}
            found[f"{each} {json.dumps(kept, sort_keys=True)}".replace(name, "NAME")] += 1
    return found


async def objects(world: FacadeInstallation, name: str) -> Seen:
    """Return the organization's objects in the cluster, without what depends on the name."""
    found: Seen = Counter()
    for kind in KINDS:
        for each in (await world.kube.list(of(kind), world.namespace)).items:
            if "deletionTimestamp" not in each["metadata"]:
                found[f"{kind.__name__} {each['metadata']['name']}"] += 1
    for hostname in await world.claims():
        found[f"claim {hostname}"] += 1
    cores = (await world.kube.list(SECRET, world.namespace, label_selector=VALUE_LABEL)).items
    named = {
        each["spec"]["secretRef"]["name"]
        for kind in (Csec, RegistryCredential)
        for each in (await world.kube.list(of(kind), world.namespace)).items
    }
    for each in cores:
        meta = each["metadata"]
        if meta.get("ownerReferences") or meta["name"] in named:
            owned = "owned" if meta.get("ownerReferences") else "nobody's"
            found[f"core Secret {meta['name']} {owned}"] += 1
        # The operator deletes Secrets without owner or reference.
    return Counter(
        {
            re.sub(r"(-[0-9a-f]{16}-)?-[a-z2-7]{10}\b", "-HASH", key.replace(name, "NAME")): count
            for key, count in found.items()
        }
    )


def difference(before: Seen, after: Seen) -> tuple[Seen, Seen]:
    """Return what was added and what was removed."""
    return after - before, before - after


class Successors:
    """Facades on the same settings, each started after the death of the one before."""

    def __init__(self, stack: contextlib.ExitStack, settings: Path) -> None:
        self._stack, self._settings = stack, settings
        self.serving = self.start()

    def start(self) -> Facade:
        """Start the next one."""
        self.serving = self._stack.enter_context(start_facade(self._settings))
        return self.serving


class InterruptedCall:
    """One operation that is interrupted at its writes."""

    def __init__(
        self,
        operation: str,
        proxy: FaultyProxy,
        world: FacadeInstallation,
        client: httpx.AsyncClient,
        call: Call | None = None,
    ) -> None:
        self.call = call or CALLS[operation]
        self.stem = operation.replace("_", "-")
        self.proxy, self.world, self.client = proxy, world, client
        self.whole: tuple[tuple[Seen, Seen], tuple[Seen, Seen]] | None = None
        """Effect of the call: on the records, and on the cluster."""

    def writes(self, request: ApiRequest) -> bool:
        """Return whether a request may be a write of the call.

        A facade works for every organization: those of tests of another worker are not counted.
        """
        return request.writes and request.namespace in ("", self.world.namespace)

    async def run_uninterrupted(self) -> list[str]:
        """Make the call once without faults, record its effect, and return its writes."""
        name = f"{self.stem}-whole"
        sent = await self.call.prepare(self.world, self.client, name)
        shown, there = await self.state(name)
        writes = WriteRecorder(self.writes)
        self.proxy.faults = (writes,)
        response = await sent.by(self.client)
        self.proxy.faults = ()
        assert not response.is_error, response.text
        after = await self.state(name)
        self.whole = difference(shown, after[0]), difference(there, after[1])
        return writes.done

    async def kill_after(self, doomed: Facade, sent: Sent, at: int) -> None:
        """Make the call, and kill the facade when the server has done a write of it."""
        fault = CrashPoints({DOOMED: at}, lambda request, _: self.writes(request))
        self.proxy.faults = (fault,)
        sending = asyncio.create_task(sent.by(self.client))

        async def is_cut() -> bool:
            return fault.is_cut(DOOMED) or sending.done()

        try:
            await until(is_cut, every=0.01, what=f"write {at} of {sent.method} {sent.path}")
            doomed.kill()
            with pytest.raises(httpx.TransportError):
                await sending
        finally:
            fault.release()
            self.proxy.faults = ()

    async def state(self, name: str) -> tuple[Seen, Seen]:
        """Return the records and the objects in the cluster."""
        return await records(self.client, name), await objects(self.world, name)

    async def check_completion(self, sent: Sent, name: str, before: tuple[Seen, Seen]) -> None:
        """Check that an interrupted call was atomic, and that a retry completes it."""
        shown, there = before
        assert self.whole is not None
        seen_whole, made_whole = self.whole
        nothing: tuple[Seen, Seen] = (Counter(), Counter())

        async def all_or_nothing() -> bool:
            seen = difference(shown, await records(self.client, name))
            assert seen in (nothing, seen_whole), f"a partial effect is visible:  {seen}"
            return True

        # Events that the watch has not delivered yet may still arrive.
        await until(all_or_nothing, every=0.02, what=f"{name}: all or nothing")
        again = await sent.by(self.client)
        assert not again.is_error or again.status_code in self.call.again, again.text

        async def is_whole() -> bool:
            now = await self.state(name)
            assert difference(shown, now[0]) == seen_whole
            assert difference(there, now[1]) == made_whole
            return True

        await until(is_whole, every=0.05, what=f"{name}: the entire effect and nothing else")
