"""The run time of an Enclave on a lost node ends with the last renewal of the node's Lease."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cloister_clients.kube import Forbidden, KindRef, KubeError, NotFound
from cloister_clients.kube.kinds import LEASE, NODE
from cloister_operator.cache.reconcile_memory import ModelCache
from cloister_operator.cache.store import Store
from cloister_operator.context import ProcessContext
from cloister_operator.reconcile.metering import record_demoted
from cloister_operator.workqueue.triggers import Key
from tests.support.builders.resources import container_of, enclave_of

KEY = Key("Container", "org-a", "web")
PROMOTED = datetime(2026, 11, 22, 11, 0, tzinfo=UTC)
NOTICED = datetime(2026, 11, 22, 12, 0, 30, tzinfo=UTC)
RENEWED = {"spec": {"renewTime": "2026-11-22T11:55:07.123456Z"}}


class Server:
    """Has the Lease of one node, or refuses; records what is written."""

    def __init__(self, answer: dict[str, Any] | KubeError) -> None:
        self.answer = answer
        self.asked: list[tuple[KindRef, str, str | None]] = []
        self.written: list[dict[str, Any]] = []

    async def get(self, ref: KindRef, name: str, namespace: str | None) -> dict[str, Any]:
        """Return an object."""
        self.asked.append((ref, name, namespace))
        if isinstance(self.answer, KubeError):
            raise self.answer
        return self.answer

    async def patch_status(self, *call: Any) -> None:
        """Record what is written."""
        self.written.append(call[-1])


@pytest.mark.parametrize(
    ("reason", "answer", "wanted"),
    [
        ("NodeLost", RENEWED, "2026-11-22T11:55:07Z"),
        ("NodeLost", {"spec": {}}, "2026-11-22T12:00:30Z"),
        ("NodeLost", NotFound(404, "NotFound", "gone"), "2026-11-22T12:00:30Z"),
        ("NodeLost", Forbidden(403, "Forbidden", "no role"), "2026-11-22T12:00:30Z"),
        ("Superseded", RENEWED, "2026-11-22T12:00:30Z"),
    ],
)
async def test_the_time_on_a_lost_node_ends_with_its_last_heartbeat(
    reason: str, answer: dict[str, Any] | KubeError, wanted: str
) -> None:
    server = Server(answer)
    made = enclave_of(container_of())
    fields = {"reason": reason, "node": "worker-1", "promoted_at": PROMOTED}
    enclave = made.model_copy(update={"status": made.status.model_copy(update=fields)})
    store = Store()
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    metadata = {"name": "worker-1", "uid": "n", "resourceVersion": "1"}
    store.put(NODE, {"metadata": metadata, "status": ready})
    parts = SimpleNamespace(client=server, writer=server, store=store, models=ModelCache())
    context = cast(ProcessContext, parts)
    await record_demoted(context, KEY, enclave, NOTICED)
    assert server.written == [{"status": {"serving": False, "demotedAt": wanted}}]
    asked = [(LEASE, "worker-1", "kube-node-lease")] if reason == "NodeLost" else []
    assert server.asked == asked
