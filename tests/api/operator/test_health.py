"""What the probes say: liveness whether work is done, readiness whether the cluster is known."""

import random
from collections.abc import Callable
from pathlib import Path

from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Container
from dev.cluster import Cluster
from tests.support.faults.crashing_operators import disturbed
from tests.support.faults.fault_kinds import Ask, Held, HeldWrites, Unreliable
from tests.support.programs.operator import OperatorProcess
from tests.support.waiting import until_sync

STALE = 6.0
"""Seconds without a pass that are allowed here."""


def says(process: OperatorProcess, path: str, status: int, text: str) -> bool:
    found = process.ask(path)
    assert found[0] == status, found
    assert text in found[1], found
    return True


def test_probes(api_cluster: Cluster, tmp_path: Path) -> None:
    settings = {"health": {"staleSeconds": STALE}, "relistSeconds": 1, "workers": 2}
    with disturbed(api_cluster, tmp_path, settings) as place:
        process = place.operator("only")
        place.installation.repository("acme/web")
        refusing = Unreliable(random.Random(0), 1.0, statuses=(503,), verbs=("list",))
        place.proxy.faults = [refusing]
        until_sync(lambda: says(process, "/readyz", 503, "syncing"), what="not ready")
        until_sync(lambda: process.ask("/healthz") == (200, "syncing\n"), what="alive")
        place.proxy.faults = []
        process.wait_until_it_leads()
        until_sync(lambda: process.ask("/readyz") == (200, "working\n"))

        silent = Held(lambda ask: ask.kind == of(Container).plural)
        place.proxy.faults = [silent]
        place.installation.create_container("unseen", repo="acme/web", tag="v9")
        behind = "the watch of containers is 1 objects behind"
        until_sync(lambda: says(process, "/readyz", 503, behind))
        silent.release()
        place.installation.wait_for("unseen", "Stalled")
        until_sync(lambda: process.ask("/readyz") == (200, "working\n"))

        stuck = HeldWrites(None, _status_of("stuck"))
        place.proxy.faults = [stuck]
        place.installation.create_container("stuck", repo="acme/web", tag="v9")
        until_sync(lambda: says(process, "/healthz", 503, "workers silent"))
        stuck.release()
        place.installation.wait_for("stuck", "Stalled")
        until_sync(lambda: process.ask("/healthz") == (200, "working\n"))


def _status_of(name: str) -> Callable[[Ask], bool]:
    """Answer what tells the writes of a Container's status."""
    return lambda ask: (ask.name, ask.subresource) == (name, "status")
