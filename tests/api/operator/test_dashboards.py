"""Each query of a dashboard returns a series, and each alert is evaluated, by a real Prometheus.

It scrapes a real operator and a real facade, with Containers on simulated nodes. What makes a
series appear is done for real: requests, refused ones among them, a report of usage, a webhook,
a connection that sends nothing. The exporter of GPUs is a stand-in, as in
`tests/api/facade/test_metrics.py`.
"""

import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from cloister_clients.clock import utc_now
from dev.cluster import Cluster
from dev.cluster.images import Image, push
from tests.support.builders.usage import event, report, sign
from tests.support.programs.facade import run_command
from tests.support.programs.operator import Installation, file_text, manifest, operator_lock
from tests.support.programs.operator_facade import facade_of
from tests.support.programs.prometheus_package import PACKAGE, find_program
from tests.support.promql import (
    MONITORING,
    alert_queries,
    dashboard_queries,
    dashboard_variables,
)
from tests.support.servers.prometheus import Prometheus, prometheus
from tests.support.stand_ins.http_server import Reply, serve
from tests.support.waiting import until_sync

pytestmark = pytest.mark.xdist_group("dashboards")

GPUS = Path("tests/data/gpus/whole.txt")
EMPTY = {
    "api: First certificate expires": "an enclave asks for its certificate with the token of its "
    "Pod, and nothing runs in the Pods of simulated nodes",
}
"""Panels whose queries find nothing here, each with the reason."""
FACADE = {
    "development": True,
    "metrics": {"port": 0},
    "certificates": {"issuer": "own", "own": {"certificate": "ca.pem", "key": "ca.key"}},
    "adminKeys": {"ratePerSecond": 1, "burst": 20},
    "limits": {"headerSeconds": 2},
    "utilization": {"everySeconds": 1},
}
"""Settings of a facade that has every metric, and whose limits are reached soon."""


def call(client: httpx.Client, config: Path) -> None:
    """Send the facade what its metrics count."""
    secret = run_command("reporter", "create", "router", "--config", str(config)).stdout.strip()
    body = report("d-1", [event("e-1", utc_now())])
    headers = {"content-type": "application/json"} | sign(secret, "d-1", body, utc_now(), "router")
    reported = client.post("/api/internal/usage-reports", content=body, headers=headers)
    assert reported.status_code == 200, reported.text
    assert client.post("/api/shim/validate-key", json={"api_key": "x"}).status_code == 401
    assert client.post("/api/webhooks/releases", json={}).status_code >= 400
    # As often as it takes: the limit regains a request a second.
    until_sync(
        lambda: client.get("/api/containers").status_code == 429, every=0.0, what="the limit"
    )
    with socket.create_connection((client.base_url.host, client.base_url.port or 0)) as silent:
        silent.settimeout(30)
        while silent.recv(1024):
            pass


@pytest.fixture(scope="module")
def scraped(
    simulated_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    program = find_program("prometheus")
    if program is None:
        pytest.skip(f"prometheus is missing: apt-get install {PACKAGE}")
    folder = tmp_path_factory.mktemp("dashboards")
    with operator_lock(simulated_cluster.name), ExitStack() as stack:
        exporter = stack.enter_context(serve(lambda _: Reply(body=GPUS.read_bytes())))
        installed = Installation(simulated_cluster, folder, {"metering": True, "relistSeconds": 1})
        stack.callback(installed.end)
        installed.prepare()
        gpu = {"resource": "nvidia.com/gpu", "metrics": f"{exporter.base}/metrics"}
        installed.create_organization(host={"gpu": gpu})
        nowhere = {"networkIsolation": "Container", "nodeSelector": [{"name": "no/node"}]}
        installed.apply(manifest("Host", f"{installed.host}-nowhere", nowhere))
        image = push(Image(files={"/x": b"x"}, entrypoint=("/x",)), simulated_cluster.registry, "x")
        installed.repository("acme/web").release("v1", file_text(image))
        operator = installed.operator()
        operator.wait_until_it_leads()
        installed.create_container("web", repo="acme/web", tag="v1")
        installed.create_container(
            "late", repo="acme/web", tag="v1", host=f"{installed.host}-nowhere"
        )
        installed.create_container("typo", repo="acme/web", tag="v9")
        client = stack.enter_context(facade_of(installed, FACADE))
        installed.wait_for("typo", "Stalled")
        installed.wait_for("web", "Ready")
        call(client, folder / "api.yml")
        (log,) = folder.glob("api-*.log")
        found = re.search(r"metrics are at http://(\S+)/metrics", log.read_text())
        assert found is not None
        targets = {"operator": f"127.0.0.1:{operator.port}", "api": found[1]}
        yield stack.enter_context(prometheus(program, folder, targets, MONITORING / "alerts.yaml"))


def filled(server: Prometheus) -> dict[str, str]:
    """Choose a value of each variable, as a reader of the dashboard does."""
    found = {}
    for name, series, label in dashboard_variables():
        values = server.label_values(label, series)
        assert values, f"no value of ${name}"
        found[f"${name}"] = values[0]
    return found


def without_series(server: Prometheus) -> set[str]:
    """Return the panels with a query that finds nothing now."""
    values = filled(server)
    empty = set()
    for panel, query in dashboard_queries():
        text = query
        for variable, value in values.items():
            text = text.replace(variable, value)
        assert "$" not in text, f"{panel}: a variable that the dashboard does not have"
        if not server.query(text):
            empty.add(panel)
    return empty


def test_each_query_of_a_dashboard_returns_a_series(scraped: Prometheus) -> None:
    def found() -> bool:
        assert without_series(scraped) == set(EMPTY)
        return True

    until_sync(found, within=120, what="a series for each query")


def test_each_alert_is_evaluated_without_an_error(scraped: Prometheus) -> None:
    names = [name for name, _ in alert_queries()]

    def evaluated() -> dict[str, Any]:
        rules = scraped.rules()
        assert all(rules[name]["health"] != "unknown" for name in names)
        return rules

    rules = until_sync(evaluated, what="an evaluation of each alert")
    assert {name: rules[name].get("lastError") for name in names} == dict.fromkeys(names)
    for _, query in alert_queries():
        scraped.query(query)
