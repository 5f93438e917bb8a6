"""Logs of a debug container over REST, from a real node: the last lines, and followed."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from dev.cluster import Cluster
from tests.support.programs.operator import Installation, operator_lock
from tests.support.programs.operator_facade import facade_of
from tests.support.programs.web_service import PageServices, page_file

pytestmark = pytest.mark.node

REPO = "acme/told"
# A tick each second, then as many bytes as no line has, some of which are not UTF-8.
SCRIPT = """
mkdir -p /tmp/w && echo page > /tmp/w/index.html
echo first line && printf 'caf\\351\\n'
head -c 40000 /dev/zero | tr '\\0' x && echo
(while true; do echo tick; sleep 1; done) &
exec httpd -f -p 8080 -h /tmp/w
"""


@dataclass
class DebugContainer:
    """A facade and a debug container that writes."""

    client: httpx.Client
    """A client of the facade with an admin key."""
    path: str
    """Path of its logs."""
    seen: dict[str, str]
    """Header by which the facade waits for the operator's writes."""

    def logs(self, **query: str) -> httpx.Response:
        """Read its logs."""
        return self.client.get(self.path, params=query, headers=self.seen)


@pytest.fixture(scope="module")
def debug(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DebugContainer]:
    pages = PageServices(cluster)
    with operator_lock(cluster.name):
        installed = Installation(cluster, tmp_path_factory.mktemp("installation"), pages.settings)
        try:
            installed.prepare()
            installed.create_organization()
            file = page_file(pages.web, "page", command=["sh", "-c", SCRIPT])
            installed.repository(REPO).release("v1.0.0", file)
            installed.operator().wait_until_it_leads()
            with facade_of(installed) as client:
                body = {"name": "told", "repo": REPO, "tag": "v1.0.0", "debug": True}
                made = client.post("/api/containers", json={**body, "host_name": installed.host})
                assert made.status_code == 201, made.text
                name = "told.debug"
                container = installed.wait_for(name, "Ready", reason="Serving")
                seen = {"X-Consistency-Token": container.metadata.resource_version}
                yield DebugContainer(client, f"{made.headers['location']}/logs", seen)
        finally:
            installed.end()


def events(response: httpx.Response) -> Iterator[tuple[str, Any]]:
    """Yield the events of a stream."""
    name = ""
    for line in response.iter_lines():
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            yield name, json.loads(value) if name == "line" else value


@pytest.mark.spec("21.22")
def test_the_last_lines_are_read(debug: DebugContainer) -> None:
    answer = debug.logs(tail="1000")
    assert answer.status_code == 200, answer.text
    found = answer.json()
    texts = [each["text"] for each in found["lines"]]
    assert texts[:2] == ["first line", "caf\ufffd"]
    assert "tick" in texts
    assert found["truncated"] is False
    assert all(each["at"].endswith("Z") for each in found["lines"])
    assert len(debug.logs(tail="1").json()["lines"]) == 1
    last = found["lines"][-1]["at"]
    later = debug.logs(tail="1000", since=last).json()["lines"]
    assert len(later) < len(found["lines"])
    assert later[0]["at"] >= last[:19]


@pytest.mark.spec("21.22")
def test_lines_are_followed_as_they_are_written(debug: DebugContainer) -> None:
    query = {"follow": "true", "tail": "1000"}
    with debug.client.stream("GET", debug.path, params=query, headers=debug.seen) as response:
        assert response.headers["content-type"] == "text/event-stream"
        assert response.headers["cache-control"] == "no-store"
        ticks, parts = 0, 0
        for name, data in events(response):
            assert name in {"line", "alive"}
            if name == "line":
                assert len(data["text"]) <= 16 * 1024, "a long line is divided"
                parts += "xxxx" in data["text"]
                ticks += data["text"] == "tick"
            if ticks > 5:
                break
        assert parts > 1


@pytest.mark.spec("21.22")
def test_an_organization_follows_a_few_logs_at_a_time(debug: DebugContainer) -> None:
    query = {"follow": "true", "tail": "0"}
    streams = [
        debug.client.stream("GET", debug.path, params=query, headers=debug.seen) for _ in range(4)
    ]
    opened = [each.__enter__() for each in streams]
    try:
        assert [each.status_code for each in opened] == [200] * 4
        refused = debug.logs(**query)
        assert (refused.status_code, refused.json()["code"]) == (429, "RATE_LIMITED")
    finally:
        for each in streams:
            each.__exit__(None, None, None)
