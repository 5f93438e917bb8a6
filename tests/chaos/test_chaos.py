"""A chaos run: random actions through all interfaces, with faults of all kinds, from one seed.

At the end every Container has converged to its spec, and there are no orphans. ``make test`` does
the first actions of one seed, ``make chaos`` those of a seed of its own for 30 minutes;
``CLOISTER_CHAOS_SECONDS`` and ``CLOISTER_CHAOS_SEED`` set duration and seed.
"""

import asyncio
import contextlib
import os
import random
import secrets
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from cloister_api.commands.keys import create_key
from cloister_api.settings import ApiSettings
from cloister_clients.kube.kinds import SECRET, of
from cloister_crds.kinds import Container, Host, Organization
from dev import cluster as local
from dev.cluster.images import Image, push
from dev.plain_http import NO_TRUST
from tests.support.chaos.actions import KEY, SECRETS, ChaosRun, OperatorPair, carry_out, outcome_of
from tests.support.chaos.convergence import OrganizationSnapshot, orphans, unfulfilled
from tests.support.chaos.plan import NODES, SHORT, SHORT_SEED, ZONE
from tests.support.cluster.clusters import install_crds, session_name
from tests.support.faults.crashing_operators import ProxiedInstallation, proxied_installation
from tests.support.lifecycles.end_states import left_over
from tests.support.lifecycles.steps import KEY as PUBLIC_KEY
from tests.support.programs.facade import ADMIN, run_command, start_facade
from tests.support.programs.operator import CONTAINERS_DOMAIN, manifest
from tests.support.programs.published_settings import settings_manifest
from tests.support.servers.nameserver import NameServer, serve_zone
from tests.support.stand_ins.gateway_controller import ROUTE
from tests.support.waiting import until_sync

SECONDS = float(os.environ.get("CLOISTER_CHAOS_SECONDS") or 0)
"""Seconds of actions; 0 = the number of actions of the short run."""
SEED = int(
    os.environ.get("CLOISTER_CHAOS_SEED")
    or (random.SystemRandom().randrange(10**6) if SECONDS else SHORT_SEED)
)
IMAGE = Image(files={"/x": b"x"}, entrypoint=("/x",))
PATIENCE = 600.0
"""Seconds until all has settled; the backoff of a repeatedly lost enclave is up to 5 minutes."""
SETTINGS = {
    "claimAgeSeconds": 1,
    "followIntervalSeconds": 10,
    "gateway": {"name": "public"},
    "lease": {"durationSeconds": 4, "renewSeconds": 3, "retrySeconds": 0.3},
}

pytestmark = [
    pytest.mark.timeout(int(SECONDS) + 1200),
    pytest.mark.skipif(os.geteuid() != 0, reason="a name server on port 53 needs root"),
]


@pytest.fixture
def own_cluster() -> Iterator[local.Cluster]:
    name = f"{session_name()}-chaos"
    local.down(name)
    try:
        cluster = local.up(name, node=False)
        install_crds(cluster)
        yield cluster
    finally:
        local.down(name)


@pytest.fixture
def zone(tmp_path: Path) -> Iterator[NameServer]:
    with serve_zone(tmp_path / "knot", ZONE) as served:
        yield served


@pytest.fixture
def place(
    own_cluster: local.Cluster, tmp_path: Path, zone: NameServer
) -> Iterator[ProxiedInstallation]:
    (tmp_path / "key").write_bytes(secrets.token_bytes(32))
    domains = {
        "target": "dns.example.test",
        "installationKeyFile": str(tmp_path / "key"),
        "checkSeconds": 2,
        "graceSeconds": 5,
        "dns": {"resolvers": [zone.address], "allowPrivate": [zone.address]},
    }
    nodes = {"nodes": NODES, "outcome": outcome_of}
    with proxied_installation(
        own_cluster, tmp_path, {**SETTINGS, "domains": domains}, **nodes
    ) as found:
        prepare(found)
        yield found


def prepare(place: ProxiedInstallation) -> None:
    """Create the values of secrets, an SSH key, and an Organization with entitlements."""
    installation, direct = place.installation, place.direct
    installation.apply(manifest("SSHKey", KEY, {"publicKey": PUBLIC_KEY}, installation.namespace))
    for name in SECRETS:
        metadata = {"name": f"{name}-value", "namespace": installation.namespace}
        direct.create(SECRET, {"metadata": metadata, "stringData": {"value": "x"}})
    spec = {
        "members": [{"user": ADMIN, "role": "Admin"}],
        "entitlements": {"hostSelection": True, "domainSuffixes": [ZONE]},
    }
    assert direct.patch(of(Organization), installation.slug, {"spec": spec}).is_success
    assert direct.patch(of(Host), installation.host, {"spec": {"default": True}}).is_success


@pytest.fixture
def rest(place: ProxiedInstallation, tmp_path: Path) -> Iterator[httpx.Client]:
    """Provide the API of the installation, with an admin key."""
    registry = place.installation.cluster.registry
    # The operators of the test start later.
    place.installation.apply(settings_manifest(CONTAINERS_DOMAIN, place.installation.system))
    settings = {
        "operatorNamespace": place.installation.system,
        "kubeconfig": str(place.installation.kubeconfig("api")),
        "listen": {"port": 0},
        "ledger": {"path": "ledger.db", "keyMaterial": "keys.json"},
        "sources": {"kind": "git", "base": str(place.installation.repositories.path)},
        "registry": {"allowPrivate": [registry], "plainHttp": [registry]},
    }
    path = tmp_path / "api.yml"
    path.write_text(yaml.safe_dump(settings))
    run_command("admin-key", "init", "--config", str(path))
    slug = place.installation.slug
    key = asyncio.run(create_key(ApiSettings.read(path), slug, ADMIN, "chaos", None))
    headers = {"Authorization": f"Bearer {key}"}
    with (
        start_facade(path) as facade,
        httpx.Client(base_url=facade.base, headers=headers, timeout=60, verify=NO_TRUST) as client,
    ):
        yield client


@pytest.fixture
def chaos(place: ProxiedInstallation, rest: httpx.Client, zone: NameServer) -> ChaosRun:
    installation = place.installation
    made = ChaosRun(
        cluster=installation.cluster,
        installation=installation,
        direct=place.direct,
        nodes=place.nodes,
        operators=OperatorPair(installation, place.proxy),
        rest=rest,
        zone=zone,
        image=push(IMAGE, installation.cluster.registry, "x"),
    )
    made.prepare()
    return made


def test_chaos(chaos: ChaosRun) -> None:
    length = f"CLOISTER_CHAOS_SECONDS={SECONDS:g}" if SECONDS else f"{SHORT} actions"
    sys.stderr.write(f"\nCLOISTER_CHAOS_SEED={SEED} {length}\n")
    installation, direct = chaos.installation, chaos.direct
    try:
        done = carry_out(chaos, SEED, seconds=SECONDS, most=None if SECONDS else SHORT)
        sys.stderr.write(f"{len(done)} actions, and the number of each response:\n{table(done)}\n")
        assert any("201" in each for each in done), "not one container was created"
        chaos.end_faults()
        until_sync(lambda: await_settled(chaos), within=PATIENCE, every=0.5, what="convergence")
        for container in chaos.containers():
            direct.delete(of(Container), container.metadata.name, installation.namespace)
        until_sync(lambda: nothing_left(chaos), within=PATIENCE, what="an end of all that was made")
    except BaseException:
        report(chaos, Path(installation.folder))
        raise


def nothing_left(chaos: ChaosRun) -> bool:
    """Return whether nothing is left of deleted Containers."""
    chaos.operators.restart_exited()
    installation = chaos.installation
    left = left_over(chaos.direct, installation.namespace)
    left += [
        each["metadata"]["name"] for each in chaos.direct.list_objects(ROUTE, installation.system)
    ]
    assert not left, left
    return True


def await_settled(chaos: ChaosRun) -> bool:
    """Return whether all Containers have converged and there are no orphans."""
    chaos.operators.restart_exited()
    end = OrganizationSnapshot.read(chaos.direct, chaos.installation, newest=chaos.newest)
    wrong = {
        each.metadata.name: text for each in end.containers if (text := unfulfilled(each, end))
    }
    left = orphans(chaos.direct, end)
    assert not wrong, wrong
    assert not left, left
    return True


def table(done: list[str]) -> str:
    """Count the responses of each action."""
    responses: dict[str, Counter[str]] = {}
    for line in done:
        action, _, response = line.partition(": ")
        reported = response.split() if response[:3].isdigit() else [response.partition(":")[0]]
        responses.setdefault(action.split()[0], Counter()).update(reported)
    rows = {
        verb: ", ".join(f"{n} {k}" for k, n in c.most_common()) for verb, c in responses.items()
    }
    return "\n".join(f"  {verb:15} {row}" for verb, row in sorted(rows.items()))


def report(chaos: ChaosRun, folder: Path) -> None:
    """Save actions and objects for the analysis of a failure."""
    (folder / "actions.txt").write_text("\n".join(chaos.done))
    with contextlib.suppress(Exception):
        text = chaos.installation.kubectl(
            "get",
            "ctr,encl,pods,services,cdep,cdom,csec,hostnameclaims,tlsroutes",
            "-A",
            "-o",
            "yaml",
            "--show-managed-fields=false",
        )
        (folder / "objects.yaml").write_text(text)
    sys.stderr.write(f"\nseed {SEED}; actions, objects and logs: {folder}\n")
    sys.stderr.write("\n".join(chaos.done[-60:]) + "\n")
