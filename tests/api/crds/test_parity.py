"""What pydantic accepts and what the API server accepts is one set, for every kind.

CLOISTER_PARITY_OBJECTS says how many objects of each kind are compared (default 2000);
CLOISTER_PARITY_SEED draws others than the usual ones.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from cloister_crds.kinds import KINDS
from cloister_crds.kinds.meta import Resource
from tests.support.builders.generated_resources import full, schema_of, specimens, statuses, sweep
from tests.support.cluster.api_server import ApiServer

pytestmark = pytest.mark.timeout(1200)

OBJECTS = int(os.environ.get("CLOISTER_PARITY_OBJECTS", "2000"))
SEED = os.environ.get("CLOISTER_PARITY_SEED")
NAMESPACE = "parity"
"""Where objects are tried."""
STANDING_NAMESPACE = "parity-standing"
"""Where objects are that are there, for their status to be tried."""
CONCURRENT = 24


@dataclass(frozen=True, slots=True)
class Trial:
    """One object and where it is sent."""

    body: dict[str, Any]
    """Object; for a status the whole object with it."""
    status: bool
    """Whether it goes to the status subresource of an object that is there."""
    accepted: bool
    """What pydantic says."""
    reason: str
    """Why pydantic refuses."""


@pytest.fixture
async def server(kubeconfig: Path) -> AsyncIterator[ApiServer]:
    """Serve the kinds."""
    server = ApiServer.administrator(kubeconfig)
    for name in (NAMESPACE, STANDING_NAMESPACE):
        await server.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
            f"/api/v1/namespaces/{name}",
        )
    yield server
    await server.aclose()


def path_of(kind: type[Resource], namespace: str = NAMESPACE) -> str:
    """Return where objects of a kind are created."""
    info = kind.INFO
    middle = f"namespaces/{namespace}/" if info.namespaced else ""
    return f"/apis/{info.api_version}/{middle}{info.plural}"


MINIMAL: dict[str, dict[str, Any]] = {
    "Organization": {"namespace": "org-parity"},
    "Host": {},
    "Container": {"repo": "acme/web", "tag": "v1"},
    "Enclave": {
        "container": {"name": "web", "uid": "1"},
        "request": {"repo": "acme/web", "tag": "v1"},
        "revision": "r",
        "attempt": 1,
        "repo": "acme/web",
        "tag": "v1",
        "commit": "0" * 40,
        "configDigest": "sha256:0",
        "configFile": "service-config.yml",
        "summary": {"cpus": 2, "memoryMB": 8192},
        "host": "small",
    },
    "Deployment": {"repo": "acme/web"},
    "Secret": {"name": "KEY", "secretRef": {"name": "key"}},
    "SSHKey": {"publicKey": "ssh-ed25519 AAAA me"},
    "RegistryCredential": {"registry": "gcr", "secretRef": {"name": "gcr"}},
    "Domain": {"domain": "app.example.com"},
    "HostnameClaim": {"holder": {"namespace": "org-acme", "name": "web"}},
}
"""Smallest valid spec of each kind."""
STANDING = {"RegistryCredential": "gcr", "HostnameClaim": "standing.example.com"}
"""Names of objects that are there, where the kind has a rule about its name."""
FRESH = {"RegistryCredential": "ghcr", "HostnameClaim": "fresh.example.com"}
"""Names of objects that are not there."""


def minimal(kind: type[Resource]) -> dict[str, Any]:
    """Return an object that is there while statuses are tried."""
    return {
        "apiVersion": kind.INFO.api_version,
        "kind": kind.INFO.kind,
        "metadata": {"name": STANDING.get(kind.INFO.kind, "standing")},
        "spec": MINIMAL[kind.INFO.kind],
    }


async def make_standing(server: ApiServer, kind: type[Resource]) -> None:
    """Build the object whose status is tried."""
    body = minimal(kind)
    await server.apply(body, f"{path_of(kind, STANDING_NAMESPACE)}/{body['metadata']['name']}")


def judge(kind: type[Resource], body: dict[str, Any], *, status: bool) -> Trial:
    """Ask pydantic."""
    try:
        kind.read(body)
    except ValidationError as error:
        return Trial(body, status, accepted=False, reason=str(error))
    return Trial(body, status, accepted=True, reason="")


def draw(kind: type[Resource], *, count: int, status: bool) -> list[Trial]:
    """Draw objects with hypothesis and ask pydantic about each."""
    trials: list[Trial] = []
    strategy: st.SearchStrategy[dict[str, Any]]
    if status:
        base = minimal(kind)
        strategy = statuses(kind).map(lambda drawn: {**base, "status": drawn})
    else:
        strategy = specimens(kind)

    @settings(
        max_examples=count,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        derandomize=SEED is None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(body: dict[str, Any]) -> None:
        trials.append(judge(kind, body, status=status))

    (collect if SEED is None else seed(int(SEED))(collect))()
    return trials


async def verdicts(server: ApiServer, kind: type[Resource], trials: list[Trial]) -> list[str]:
    """Ask the server about each and answer the disagreements, the shortest first."""
    gate = asyncio.Semaphore(CONCURRENT)
    path, standing = path_of(kind), path_of(kind, STANDING_NAMESPACE)

    async def ask(trial: Trial) -> str:
        async with gate:
            if trial.status:
                change = [{"op": "add", "path": "/status", "value": trial.body["status"]}]
                name = trial.body["metadata"]["name"]
                verdict = await server.patch(
                    f"{standing}/{name}/status", change, form="json", dryRun="All"
                )
            else:
                verdict = await server.post(path, trial.body, dryRun="All")
        if verdict.accepted == trial.accepted and verdict.status in {200, 201, 400, 422}:
            return ""
        return (
            f"{json.dumps(trial.body)}\n  pydantic: {trial.reason or 'accepted'}"
            f"\n  server: {verdict.message or 'accepted'}"
        )

    answers = await asyncio.gather(*(ask(trial) for trial in trials))
    return sorted(filter(None, answers), key=len)


def swept(kind: type[Resource]) -> list[Trial]:
    """Build every field of a kind wrong in turn, in every way there is a word for."""
    name = FRESH.get(kind.INFO.kind, "fresh")
    fresh = {**minimal(kind), "metadata": {"name": name}}
    spec = schema_of(kind, "spec")
    filled = {**full(spec), **QUIET.get(kind.INFO.kind, {})}
    filled = {key: value for key, value in filled.items() if value is not None}
    trials = [
        judge(kind, {**fresh, "spec": variant}, status=False)
        for variant in (filled, *sweep(spec, filled))
    ]
    if "status" in kind.model_fields:
        status = schema_of(kind, "status")
        trials += [
            judge(kind, {**minimal(kind), "status": variant}, status=True)
            for variant in (full(status), *sweep(status, full(status)))
            if variant is not None
        ]
    return trials


QUIET: dict[str, dict[str, Any]] = {
    "Container": {"autoUpdate": False},
    "Host": {
        "tolerations": [{"key": "gpu", "operator": "Equal", "value": "a", "effect": "NoExecute"}],
        "tee": "SNP",
        "teeUnit": "Pod",
        "attestationService": "http://127.0.0.1:8006",
        "overcommit": None,
        "gpu": {
            "resource": "nvidia.com/gpu",
            "counts": [1, 8],
            "type": "H100",
            "metrics": "http://dcgm-exporter.gpus.svc:9400/metrics",
        },
        "models": {
            "directory": "/srv/models",
            "known": ["ab" * 32 + "_4096_6493760e-f831-5d28-81b4-39e665a8095a"],
        },
    },
}
"""Values with which a full spec breaks no rule between fields; None leaves a field out."""

every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.INFO.kind)


@every_kind
async def test_both_judge_each_field_alike(server: ApiServer, kind: type[Resource]) -> None:
    await make_standing(server, kind)
    trials = swept(kind)
    assert trials[0].accepted, trials[0].reason
    disagreements = await verdicts(server, kind, trials)
    assert not disagreements, f"{len(disagreements)} disagree:\n" + "\n".join(disagreements[:8])


@every_kind
async def test_both_accept_the_same_objects(server: ApiServer, kind: type[Resource]) -> None:
    with_status = "status" in kind.model_fields
    await make_standing(server, kind)
    trials = draw(kind, count=OBJECTS * 3 // 4 if with_status else OBJECTS, status=False)
    if with_status:
        trials += draw(kind, count=OBJECTS - len(trials), status=True)
    assert len(trials) >= OBJECTS
    disagreements = await verdicts(server, kind, trials)
    assert not disagreements, f"{len(disagreements)} disagree:\n" + "\n".join(disagreements[:8])
    accepted = sum(trial.accepted for trial in trials)
    assert 0.1 < accepted / len(trials) < 0.9, f"{accepted} of {len(trials)} were accepted"
