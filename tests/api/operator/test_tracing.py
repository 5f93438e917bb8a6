"""One trace from a REST request to the Pod: a real facade, a real operator, a stand-in collector.

Nothing runs in the Pod: the cluster has no node.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import httpx
import pytest

from dev.cluster import Cluster
from dev.cluster.images import Image, push
from tests.support.programs.operator import Installation, file_text, operator_lock
from tests.support.programs.operator_facade import facade_of
from tests.support.stand_ins.otlp_collector import Collector, ReceivedSpan, collector
from tests.support.waiting import until_sync

pytestmark = pytest.mark.xdist_group("tracing")

FOREIGN = "4bf92f3577b34da6a3ce929d0e0e4736"
"""A trace of a caller."""
PARENT = f"00-{FOREIGN}-00f067aa0ba902b7-01"
CANARY = "made-up-value-of-a-secret"
"""What must not be in any span."""


@dataclass(frozen=True, slots=True)
class Traced:
    """Both programs, with tracing."""

    installation: Installation
    """The operator's side."""
    client: httpx.Client
    """The facade's."""
    collector: Collector
    """Where both send their spans."""

    def create(self, name: str, **headers: str) -> str:
        """Create a container by REST."""
        body = {"name": name, "repo": "acme/web", "tag": "v1", "host_name": self.installation.host}
        made = self.client.post("/api/containers", json=body, headers=headers)
        assert made.status_code == 201, made.text
        return str(made.json()["id"])

    def spans(self, name: str, target: str = "") -> list[ReceivedSpan]:
        """Return the spans of a name whose object or path has a text in it."""
        return [
            span
            for span in self.collector.named(name)
            if any(target in str(value) for value in span.attributes.values())
        ]

    def await_span(self, name: str, target: str = "") -> ReceivedSpan:
        """Wait for the first span of a name, about an object."""
        found = until_sync(lambda: self.spans(name, target), what=f"a span {name} {target}")
        return found[0]

    def by_id(self, span_id: str) -> ReceivedSpan:
        """Wait for a span."""
        found = until_sync(
            lambda: [each for each in self.collector.spans if each.span_id == span_id],
            what=f"the span {span_id}",
        )
        return found[0]

    def ancestors(self, span: ReceivedSpan) -> list[str]:
        """Return the names of the spans from the beginning of a trace to a span of it."""
        names = [span.name]
        while span.parent_id:
            parent = self.by_id(span.parent_id)
            assert parent.trace_id == span.trace_id
            names.insert(0, parent.name)
            span = parent
        return names


@pytest.fixture(scope="module")
def traced(api_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traced]:
    with operator_lock(api_cluster.name), ExitStack() as stack:
        folder = tmp_path_factory.mktemp("tracing")
        found = stack.enter_context(collector())
        (folder / "headers").write_text("X-Scope-OrgID: cloister\n")
        tracing = {"endpoint": found.endpoint, "headersFile": str(folder / "headers")}
        settings = {"tracing": tracing, "log": {"format": "json"}}
        installed = Installation(api_cluster, folder, settings)
        stack.callback(installed.end)
        installed.prepare()
        installed.create_organization()
        image = push(Image(files={"/x": b"x"}, entrypoint=("/x",)), api_cluster.registry, "x")
        installed.repository("acme/web").release("v1", file_text(image))
        installed.operator().wait_until_it_leads()
        client = stack.enter_context(
            facade_of(installed, {"tracing": tracing, "logFormat": "json"})
        )
        yield Traced(installed, client, found)


def test_a_request_is_one_trace_to_its_pod(traced: Traced) -> None:
    traced.create("web")
    pod = traced.await_span("POST pods", f"/{traced.installation.namespace}/pods")
    assert traced.ancestors(pod) == [
        "POST /api/containers",
        "reconcile Container",
        "reconcile Enclave",
        "POST pods",
    ]
    request = traced.await_span("POST /api/containers")
    assert pod.trace_id == request.trace_id
    assert (pod.service, request.service) == ("cloister-operator", "cloister-api")
    assert request.attributes["http.response.status_code"] == 201
    assert request.attributes["cloister.organization"] == traced.installation.slug
    created = traced.await_span("POST containers")
    assert (created.trace_id, created.parent_id) == (request.trace_id, request.span_id)

    def looked_up() -> bool:
        lookups = traced.collector.named("lookup")
        return {each.service for each in lookups} == {"cloister-api", "cloister-operator"}

    until_sync(looked_up, what="lookups of both programs")
    assert {each.trace_id for each in traced.collector.named("lookup")} == {request.trace_id}
    (log,) = (traced.installation.folder).glob("**/api*.log")
    assert all(json.loads(line) for line in log.read_text().splitlines())
    assert traced.collector.requests[0].headers["x-scope-orgid"] == "cloister"


def test_a_change_is_a_trace_of_its_own_and_a_later_one_of_somebody_else_is_not(
    traced: Traced,
) -> None:
    identifier = traced.create("stopped")
    created = traced.await_span("POST /api/containers")
    traced.installation.wait_for("stopped", "Reconciling")
    stopped = traced.client.post(f"/api/containers/{identifier}/stop")
    assert stopped.status_code == 200, stopped.text
    request = traced.await_span("POST /api/containers/{container_id}/stop")
    assert request.trace_id != created.trace_id

    def joined() -> bool:
        passes = traced.spans("reconcile Container", "/stopped")
        return any(each.trace_id == request.trace_id for each in passes)

    until_sync(joined, what="a reconcile in the trace of the stop")
    before = {each.span_id for each in traced.collector.spans}
    traced.installation.create_container("stopped", repo="acme/web", tag="v9", state="Running")

    def apart() -> bool:
        """Look past spans of the stop, which may arrive late."""
        passes = traced.spans("reconcile Container", "/stopped")
        later = {each.trace_id for each in passes if each.span_id not in before}
        return bool(later - {created.trace_id, request.trace_id})

    traced.installation.wait_for("stopped", "Stalled")
    until_sync(apart, what="a reconcile of kubectl's change in another trace")


def test_the_trace_of_a_caller_is_mentioned_and_not_followed(traced: Traced) -> None:
    traced.create("linked", traceparent=PARENT)
    request = until_sync(
        lambda: [each for each in traced.collector.spans if each.links], what="a linked span"
    )[0]
    assert request.name == "POST /api/containers"
    assert request.links == (FOREIGN,)
    assert request.trace_id != FOREIGN
    assert request.parent_id == ""


def test_lines_of_the_log_name_their_trace(traced: Traced) -> None:
    traced.create("logged")
    request = traced.await_span("POST /api/containers")
    (log,) = traced.installation.folder.glob("api-*.log")
    lines = [json.loads(each) for each in log.read_text().splitlines() if each.startswith("{")]
    assert request.trace_id in {line.get("trace_id") for line in lines if "request_id" in line}
    own = traced.installation.processes[-1].text.splitlines()
    found = {json.loads(each).get("trace_id") for each in own if '"object"' in each}
    assert request.trace_id in found


def test_nothing_secret_is_in_a_span(traced: Traced) -> None:
    answer = traced.client.post("/api/secrets", json={"name": "TOKEN", "value": CANARY})
    assert answer.status_code == 201, answer.text
    refused = traced.client.post(
        "/api/secrets?value=" + CANARY, json={"name": CANARY + " ", "value": CANARY}
    )
    assert refused.status_code == 400
    traced.client.get("/" + CANARY)
    traced.await_span("GET (unknown path)")
    until_sync(lambda: len(traced.spans("POST /api/secrets")) > 1, what="both requests")
    key = traced.client.headers["authorization"].removeprefix("Bearer ")
    for each in traced.collector.spans:
        assert CANARY not in repr(each)
        assert key not in repr(each)
