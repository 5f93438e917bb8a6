"""GET /api/containers/:id/metrics at a real facade."""

import pytest

from cloister_api.utilization.buckets import SeriesKey, UsageInterval, add_interval
from cloister_api.utilization.store import UtilizationStore
from cloister_clients.clock import utc_now
from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Container, Organization
from tests.support.programs.facade import Facade, FacadeInstallation
from tests.support.waiting import until


async def created(facade: Facade, world: FacadeInstallation) -> str:
    """Create a container and return its identifier."""
    async with facade.client(world.key) as client:
        made = await client.post("/api/containers", json=world.body("web"))
    assert made.status_code == 201, made.text
    return str(made.json()["id"])


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
                assert list(one) == ["time", "cpu_util", "cpu_mem_util", "cpu_mem_total"]
                figures = (one["cpu_util"], one["cpu_mem_util"], one["cpu_mem_total"])
                assert figures == (50.0, 25.0, 8.0)
            empty = [one for one in found["data_points"] if one not in known]
            assert all(one["cpu_mem_total"] is one["cpu_mem_util"] is None for one in empty)
        assert (await other.get(path)).status_code == 404


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
