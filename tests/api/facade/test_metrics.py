"""GET /api/containers/:id/metrics at a real facade."""

import re
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from cloister_api.utilization.buckets import SeriesKey, UsageInterval, add_interval
from cloister_api.utilization.store import NOTHING, UtilizationStore
from cloister_clients.clock import utc_now
from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Container, Host, Organization
from dev.plain_http import NO_TRUST
from tests.support.programs.facade import Facade, FacadeInstallation
from tests.support.stand_ins.http_server import Reply, serve
from tests.support.stand_ins.metrics_api import metrics_api, report_usage
from tests.support.waiting import until

EXPOSITION = Path("tests/data/gpus/whole.txt").read_text()
"""Four GPUs of a node: two of a Pod of the organization acme, one of another's, one of nobody."""


async def created(facade: Facade, world: FacadeInstallation) -> str:
    """Create a container and return its identifier."""
    async with facade.client(world.key) as client:
        made = await client.post("/api/containers", json=world.body("web"))
    assert made.status_code == 201, made.text
    return str(made.json()["id"])


@pytest.mark.spec("6.15", "21.13")
async def test_a_series_has_a_point_for_every_interval(
    facade: Facade, world: FacadeInstallation, other_world: FacadeInstallation
) -> None:
    identifier = await created(facade, world)
    path = f"/api/containers/{identifier}/metrics"
    sums: dict[tuple[int, SeriesKey, int], list[int]] = {}
    present = await world.kube.get(of(Organization), world.organization)
    series = (present["metadata"]["uid"], identifier)
    now = utc_now().timestamp()
    add_interval(sums, UsageInterval(series, now - 60, now, 1, 2, 2 << 20, 8 << 20))
    async with world.ledger() as engine:
        await UtilizationStore(engine).add(sums)
    async with facade.client(world.key) as client, facade.client(other_world.key) as other:
        for query, interval, count in (
            ("", "15m0s", 96),
            ("?time=24h", "15m0s", 96),
            ("?time=5m", "5s", 60),
            ("?time=90d", "24h0m0s", 90),
        ):
            found = (await client.get(f"{path}{query}")).json()
            assert list(found) == ["interval", "data_points"]
            assert (found["interval"], len(found["data_points"])) == (interval, count)
            known = [one for one in found["data_points"] if one["cpu_util"] is not None]
            assert known
            for one in known:
                assert list(one) == ["time", *NOTHING]
                assert one["gpu_util"] is one["gpu_mem_util"] is one["gpu_mem_total"] is None
                figures = (one["cpu_util"], one["cpu_mem_util"], one["cpu_mem_total"])
                assert figures == (50.0, 25.0, 8.0)
            empty = [one for one in found["data_points"] if one not in known]
            assert all(one["cpu_mem_total"] is one["cpu_mem_util"] is None for one in empty)
        assert (await other.get(path)).status_code == 404


async def serving(facade: Facade, world: FacadeInstallation) -> str:
    """Let a container serve on the node of the exposition; return the path of its metrics."""
    identifier = await created(facade, world)
    name = await world.enclave("web")
    await world.report_enclave(name, phase="Ready", node="node-1")
    await world.report("web", phase="ready", activeEnclave=name)
    return f"/api/containers/{identifier}/metrics?time=5m"


async def host_figures(facade: Facade, host: str) -> dict[str, float]:
    """Return the metrics of a Host's GPUs by name."""
    address = re.search(r"metrics are at (http://\S+)", facade.log.read_text())
    assert address
    async with httpx.AsyncClient(timeout=60, verify=NO_TRUST) as scraper:
        text = (await scraper.get(address[1])).text
    pattern = rf'^cloister_host_(\w+)\{{host="{host}"\}} (\S+)$'
    return {name: float(value) for name, value in re.findall(pattern, text, re.MULTILINE)}


@pytest.mark.spec("21.13")
async def test_gpus_are_those_of_the_pod_and_of_the_hosts_own_exporters(
    facade: Facade, world: FacadeInstallation, other_world: FacadeInstallation
) -> None:
    """The other one's Pod is in the report too, but its Host names no exporter."""
    text = EXPOSITION.replace("org-acme", world.namespace).replace(
        '"org-other",pod="chat-b-2"', f'"{other_world.namespace}",pod="web-a-1"'
    )
    with serve(lambda _: Reply(body=text.encode())) as exporter:
        gpu = {"resource": "nvidia.com/gpu", "metrics": f"{exporter.base}/metrics"}
        # Whoever names no Host gets the first default one of all, tests of another worker too.
        spec = {"gpu": gpu, "default": False}
        await world.kube.merge_patch(of(Host), world.host, {"spec": spec})
        path, other_path = await serving(facade, world), await serving(facade, other_world)
        async with facade.client(world.key) as client, facade.client(other_world.key) as other:

            async def known() -> list[tuple[float, ...]]:
                points = (await client.get(path)).json()["data_points"]
                return [
                    (one["gpu_util"], one["gpu_mem_util"], one["gpu_mem_total"])
                    for one in points
                    if one["gpu_util"] is not None
                ]

            found = await until(known, every=0.2, what="utilization of GPUs")
            assert set(found) == {(60.0, 50.0, 160.0)}
            points = (await other.get(other_path)).json()["data_points"]
            assert all(one["gpu_util"] is one["gpu_mem_total"] is None for one in points)
        assert await host_figures(facade, world.host) == {
            "gpus": 4,
            "gpu_utilization_ratio": 0.55,
            "gpu_memory_used_bytes": (81920 + 81408) << 20,
            "gpu_memory_bytes": (4 * 81920) << 20,
        }


@pytest.mark.spec("6.15")
async def test_usage_of_what_serves_comes_from_the_metrics_api(
    facade: Facade, world: FacadeInstallation
) -> None:
    """Until there is one all is null; the log says once what is missing."""
    path = await serving(facade, world)

    async def known() -> list[dict[str, float]]:
        async with facade.client(world.key) as client:
            found = (await client.get(path)).json()
        return [one for one in found["data_points"] if one["cpu_util"] is not None]

    async def told() -> int:
        return facade.log.read_text().count(
            "the cluster has no Metrics API: install metrics-server"
        )

    await until(told, every=0.1, what="the log says what is missing")
    before = await told()
    assert await known() == []
    async with metrics_api(world.kube):
        used = {"web": {"cpu": "1", "memory": "2Gi"}, "sidecar": {"cpu": "9", "memory": "9Gi"}}
        # Times are whole seconds: of the present one the facade may have collected before already.
        end = utc_now() + timedelta(seconds=1)
        await report_usage(world.kube, world.namespace, "web-a-1", end, **used)
        for point in await until(known, every=0.1, what="utilization of the enclave"):
            figures = [point[name] for name in ("cpu_util", "cpu_mem_util", "cpu_mem_total")]
            assert figures == [50.0, 25.0, 8.0]
        assert await told() == before, "once, however often it was asked"


@pytest.mark.attack("foreign-utilization")
async def test_no_annotation_makes_a_container_another_one(
    facade: Facade, world: FacadeInstallation, other_world: FacadeInstallation
) -> None:
    """Whoever may edit a Container writes its annotations: it would read another one's series."""
    victim = await created(facade, other_world)
    own = await created(facade, world)
    patch = {"metadata": {"annotations": {"cloister.dev/id": victim}}}
    await world.kube.merge_patch(of(Container), "web", patch, world.namespace)
    async with facade.client(world.key) as client:

        async def shown() -> bool:
            etag = (await client.get(f"/api/containers/{own}")).headers["etag"]
            live = await world.kube.get(of(Container), "web", world.namespace)
            return str(live["metadata"]["resourceVersion"]) in etag

        await until(shown, what="the facade has seen the annotation")
        for path in ("", "/metrics"):
            assert (await client.get(f"/api/containers/{victim}{path}")).status_code == 404
        assert (await client.get(f"/api/containers/{own}")).json()["id"] == own


@pytest.mark.spec("21.13")
@pytest.mark.parametrize("query", ["?time=2h", "?time=", "?time=24H"])
async def test_an_unknown_window_is_refused_by_name(
    facade: Facade, world: FacadeInstallation, query: str
) -> None:
    path = f"/api/containers/00000000-0000-4000-8000-000000000000/metrics{query}"
    async with facade.client(world.key) as client:
        answer = await client.get(path)
    assert answer.status_code == 400
    (detail,) = answer.json()["details"]
    assert detail["field"] == "time"
    assert "5m, 15m" in detail["message"]
