"""The probes: liveness whether work is done, readiness whether the informer cache has synced."""

import random
from collections.abc import Callable
from pathlib import Path

from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Container
from dev.cluster import Cluster
from tests.support.faults.crashing_operators import proxied_installation
from tests.support.faults.fault_kinds import ApiRequest, HeldEvents, HeldWrites, Unreliable
from tests.support.programs.operator import OperatorProcess
from tests.support.waiting import until_sync

STALE = 6.0
"""Seconds without a reconcile that are allowed here."""


def says(process: OperatorProcess, path: str, status: int, text: str) -> bool:
    found = process.request(path)
    assert found[0] == status, found
    assert text in found[1], found
    return True


def test_probes(api_cluster: Cluster, tmp_path: Path) -> None:
    settings = {"health": {"staleSeconds": STALE}, "relistSeconds": 1, "workers": 2}
    with proxied_installation(api_cluster, tmp_path, settings) as place:
        process = place.operator("only")
        place.installation.repository("acme/web")
        refusing = Unreliable(random.Random(0), 1.0, statuses=(503,), verbs=("list",))
        place.proxy.faults = [refusing]
        until_sync(lambda: says(process, "/readyz", 503, "syncing"), what="not ready")
        until_sync(lambda: process.request("/healthz") == (200, "syncing\n"), what="alive")
        place.proxy.faults = []
        process.wait_until_it_leads()
        until_sync(lambda: process.request("/readyz") == (200, "working\n"))

        silent = HeldEvents(lambda request: request.kind == of(Container).plural)
        place.proxy.faults = [silent]
        place.installation.create_container("unseen", repo="acme/web", tag="v9")
        behind = "the watch of containers is 1 objects behind"
        until_sync(lambda: says(process, "/readyz", 503, behind))
        silent.release()
        place.installation.wait_for("unseen", "Stalled")
        until_sync(lambda: process.request("/readyz") == (200, "working\n"))

        stuck = HeldWrites(None, _status_of("stuck"))
        place.proxy.faults = [stuck]
        place.installation.create_container("stuck", repo="acme/web", tag="v9")
        until_sync(lambda: says(process, "/healthz", 503, "workers silent"))
        stuck.release()
        place.installation.wait_for("stuck", "Stalled")
        until_sync(lambda: process.request("/healthz") == (200, "working\n"))


def _status_of(name: str) -> Callable[[ApiRequest], bool]:
    """Return a predicate for writes of a Container's status."""
    return lambda request: (request.name, request.subresource) == (name, "status")
