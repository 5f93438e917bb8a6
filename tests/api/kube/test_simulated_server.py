"""The simulated API server against the real one: the same requests have the same responses."""

import os
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from cloister_clients.kube import KubeConfig
from tests.simulation.fidelity import KINDS, NAMES, Operation, Server, compared, real, simulated
from tests.support.cluster.clusters import unique

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dev.cluster import Cluster

SEQUENCES = int(os.environ.get("CLOISTER_SEQUENCES", "40"))
"""How many sequences are tried."""
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0iGdDP4QW2oZ8bRrNf1DkfSxaVQJHq6S0EoBRMJFSu"
METADATA: list[dict[str, Any]] = [
    {},
    {"labels": {"a": "1"}},
    {"labels": {"a": "2", "b": "1"}, "annotations": {"note": "x"}},
    {"finalizers": ["example.com/kept"]},
    {"resourceVersion": "$version"},
    {"resourceVersion": "1"},
    {"uid": "$uid"},
]
CONTENTS: dict[str, list[dict[str, Any]]] = {
    "configmap": [{"data": {"a": "1"}}, {"data": {"a": "2", "b": "x"}}, {"data": {"b": "y"}}, {}],
    "lease": [
        {"spec": {"holderIdentity": "x", "leaseDurationSeconds": 5}},
        {"spec": {"holderIdentity": "y"}},
        {"spec": {"leaseTransitions": 2}},
    ],
    "container": [
        {"spec": {"repo": "acme/site", "tag": "v1"}},
        {"spec": {"repo": "acme/site", "tag": "v2", "variables": [{"name": "A", "value": "1"}]}},
        {"spec": {"variables": [{"name": "A", "value": "2"}, {"name": "B", "value": "1"}]}},
        {"spec": {"repo": "acme/site", "tag": "v1", "secrets": ["x", "y"], "state": "Stopped"}},
        {"spec": {"repo": "acme/other", "tag": "v1"}},
        {"spec": {"repo": "acme/site", "tag": "v1", "nothing": 1}},
        {"spec": {"repo": "acme/site", "tag": "v1", "debug": True, "autoUpdate": True}},
    ],
    "sshkey": [
        {"spec": {"publicKey": KEY}},
        {"spec": {"publicKey": KEY + " me"}},
        {"spec": {"publicKey": ""}},
        {},
    ],
}
REMOVALS: dict[str, list[dict[str, Any]]] = {
    "configmap": [{"data": {"a": None}}, {"data": None}],
    "lease": [{"spec": {"holderIdentity": None}}],
    "container": [
        {"spec": {"variables": None}},
        {"spec": {"state": None}},
        {"spec": {"tag": None}},
    ],
}
STATUSES: list[dict[str, Any]] = [
    {"status": {"phase": "ready"}},
    {"status": {"phase": "failed", "observedGeneration": 1}},
    {"status": {"message": "x", "nothing": 1}},
    {"status": None},
]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"preconditions": {"uid": "$uid"}},
    {"preconditions": {"resourceVersion": "$version"}},
    {"preconditions": {"uid": "00000000-0000-4000-8000-000000000000"}},
    {"propagationPolicy": "Background"},
]


@st.composite
def operations(draw: st.DrawFn) -> Operation:
    """Draw one operation."""
    kind = draw(st.sampled_from(sorted(KINDS)))
    name = draw(st.sampled_from(NAMES))
    verb = draw(
        st.sampled_from(
            ["create", "create", "apply", "apply", "apply", "patch", "replace", "delete", "get"]
        )
    )
    manager = draw(st.sampled_from(["one", "two"]))
    if verb == "delete":
        return Operation(verb, kind, name, draw(st.sampled_from(OPTIONS)))
    if verb == "get":
        return Operation(draw(st.sampled_from(["get", "list"])), kind, name)
    status = kind == "container" and verb == "patch" and draw(st.booleans())
    contents = STATUSES if status else CONTENTS[kind]
    # Null means removal in a merge patch only; elsewhere it is what the kind makes of it.
    removals = REMOVALS.get(kind, []) if verb == "patch" and not status else []
    content = draw(st.sampled_from([*contents, *removals]))
    removal: list[dict[str, Any]] = [{"finalizers": None}] if verb == "patch" else []
    metadata = draw(st.sampled_from([*METADATA, *removal]))
    body = {**content, "metadata": metadata} if metadata else dict(content)
    return Operation(verb, kind, name, body, manager, status=status, force=draw(st.booleans()))


@pytest.fixture(scope="module")
def model() -> "Iterator[Server]":
    with simulated() as found:
        yield found


@pytest.fixture(scope="module")
def server(api_cluster: "Cluster") -> "Iterator[httpx.Client]":
    config = KubeConfig.from_file(api_cluster.kubeconfig)
    options: dict[str, Any] = {"verify": config.tls or True, "trust_env": False, "timeout": 30}
    with httpx.Client(base_url=config.server, **options) as client:
        yield client


@given(sequence=st.lists(operations(), min_size=1, max_size=30))
@settings(
    max_examples=SEQUENCES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
)
def test_both_servers_respond_alike(
    server: httpx.Client, model: Server, sequence: list[Operation]
) -> None:
    namespace = unique("f")
    modelled = compared(model, namespace, sequence, {})
    counts = {kind: len(events) for verb, kind, events in modelled if verb == "watch"}
    expected = compared(real(server), namespace, sequence, counts)
    named = [*sequence, *counts]
    for number, (one, other) in enumerate(zip(modelled, expected, strict=True)):
        assert one == other, f"{named[number]}\nsimulated {one}\nreal      {other}"
