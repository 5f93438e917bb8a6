"""Utilization of GPUs: reports of DCGM exporters, on sockets, and what a container used of them.

The reports are ours, written from the documented format.
"""

import threading
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloister_api.utilization import gpus
from cloister_api.utilization.buckets import GpuSample, SeriesKey, add_interval
from cloister_api.utilization.buckets import gpu_interval_between as interval_between
from cloister_api.utilization.gpus import GpuExporters
from cloister_api.utilization.samples import (
    ExpositionError,
    GpuReading,
    GpuReport,
    GpuTotals,
    read_gpus,
)
from cloister_api.utilization.store import NOTHING, point
from tests.support.stand_ins.http_server import HttpServer, Reply, Request, serve

DATA = Path("tests/data/gpus")
WHOLE = (DATA / "whole.txt").read_text()
"""Four GPUs; two containers of one Pod share the first."""
PARTITIONED = (DATA / "partitioned.txt").read_text()
"""Two instances of one GPU."""
WEB, CHAT = ("org-acme", "web-a-1"), ("org-other", "chat-b-2")
MIB = 1024
"""KiB of a MiB."""


@pytest.mark.spec("21.13")
def test_a_gpu_of_two_containers_of_a_pod_counts_once() -> None:
    report = read_gpus(WHOLE)
    web = report.totals_of(WEB)
    assert web is not None
    assert (web.gpus, web.busy_of) == (2, 2)
    assert web.busy == pytest.approx(1.2)
    assert (web.memory, web.memory_given) == (81920 * MIB, 2 * 81920 * MIB)
    assert report.totals.gpus == 4
    assert report.totals.busy == pytest.approx(2.2)
    assert report.totals_of(("org-acme", "web-a-2")) is None


def test_instances_of_a_gpu_are_told_apart() -> None:
    report = read_gpus(PARTITIONED)
    web, chat = report.totals_of(WEB), report.totals_of(CHAT)
    assert web == GpuTotals(1, 0.25, 1, 2048 * MIB, 9728 * MIB)
    assert chat == GpuTotals(1, 0.75, 1, 9728 * MIB, 9728 * MIB)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("", {}),
        ('DCGM_FI_DEV_GPU_UTIL{gpu="0"} 5', {}),
        ('DCGM_FI_DEV_GPU_UTIL{UUID="a"} NaN', {}),
        ('DCGM_FI_DEV_GPU_UTIL{UUID="a"} -1', {}),
        ('DCGM_FI_DEV_GPU_UTIL{UUID="a"} 250', {"a/": GpuReading(1, 0, 0)}),
        ('DCGM_FI_DEV_FB_USED{UUID="a"} 5', {"a/": GpuReading(None, 0, 0)}),
        (
            'DCGM_FI_DEV_FB_USED{UUID="a"} 5\nDCGM_FI_DEV_FB_TOTAL{UUID="a"} 10',
            {"a/": GpuReading(None, 5 * MIB, 10 * MIB)},
        ),
    ],
    ids=["nothing", "no uuid", "not a number", "negative", "too much", "half", "total"],
)
def test_only_values_that_make_sense_count(lines: str, expected: dict[str, GpuReading]) -> None:
    assert read_gpus(lines).gpus == expected


@given(st.text('DCGM_FI_DEV_GPU_UTIL{}",=\\ \n#15a', max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        report = read_gpus('DCGM_FI_DEV_GPU_UTIL{UUID="a"' + text)
    except ExpositionError:
        return
    assert isinstance(report, GpuReport)


def test_points_are_shares_of_the_gpus_that_a_container_has() -> None:
    one, two = GpuTotals(2, 1.0, 2, 40 << 20, 160 << 20), GpuTotals(2, 2.0, 2, 80 << 20, 160 << 20)
    found = interval_between(
        GpuSample(90, one), GpuSample(105, two), container=("acme", "c"), longest=60
    )
    assert found is not None
    sums: dict[tuple[int, SeriesKey, int], list[int]] = {}
    add_interval(sums, found)
    shown = point(*sums[60, ("acme", "c"), 60])
    gpus = {"gpu_util": 75, "gpu_mem_util": 37.5, "gpu_mem_total": 160}
    assert shown == NOTHING | gpus, "nothing is said of processors"


@pytest.mark.parametrize("at", [10, 5, 80], ids=["no time between", "earlier", "a gap"])
def test_nothing_is_guessed(at: float) -> None:
    totals = GpuTotals(1, 1, 1, 1, 1)
    now = GpuSample(at, totals)
    for before in (None, GpuSample(10, totals)):
        assert interval_between(before, now, container=("a", "c"), longest=60) is None


@pytest.mark.spec("21.13")
def test_gpus_that_do_not_tell_are_null() -> None:
    silent = GpuTotals(1, 0, 0, 0, 0)
    found = interval_between(
        GpuSample(90, silent), GpuSample(105, silent), container=("a", "c"), longest=60
    )
    assert found is not None
    sums: dict[tuple[int, SeriesKey, int], list[int]] = {}
    add_interval(sums, found)
    assert point(*sums[60, ("a", "c"), 60]) == NOTHING


class Nodes:
    """Exporters at one port of several addresses, which have one name."""

    def __init__(self, *replies: Reply) -> None:
        self.stack = ExitStack()
        self.addresses = tuple(f"127.0.0.{number}" for number in range(1, len(replies) + 1))
        self.servers: list[HttpServer] = []
        for address, reply in zip(self.addresses, replies, strict=True):
            port = self.servers[0].port if self.servers else 0
            served = serve(partial(replied, reply), address=address, port=port)
            self.servers.append(self.stack.enter_context(served))

    @property
    def url(self) -> str:
        """URL of all of them."""
        return f"http://dcgm.gpus.svc:{self.servers[0].port}/metrics"

    async def resolve(self, host: str) -> tuple[str, ...]:
        """Return their addresses."""
        assert host == "dcgm.gpus.svc"
        return self.addresses

    async def read(self, times: int = 1) -> GpuReport | None:
        """Query them; None = none responded."""
        exporters = GpuExporters(self.resolve)
        try:
            for _ in range(times):
                found = await exporters.read([self.url, self.url])
        finally:
            await exporters.aclose()
        return found.get(self.url)


def replied(reply: Reply, _: Request) -> Reply:
    """Return a reply whatever was requested."""
    return reply


def report(text: str) -> Reply:
    """Build an exporter's response."""
    return Reply(body=text.encode(), headers={"Content-Type": "text/plain; version=0.0.4"})


async def test_every_address_of_the_name_is_an_exporter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gpus, "SECONDS", 60.0)
    nodes = Nodes(report(WHOLE), report(PARTITIONED))
    with nodes.stack:
        found = await nodes.read()
    assert found is not None
    assert found.totals.gpus == 6
    web = found.totals_of(WEB)
    assert web is not None
    assert web.gpus == 3
    for server in nodes.servers:
        (request,) = server.requests
        assert (request.path, request.headers["host"]) == ("/metrics", nodes.url.split("/")[2])


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (Reply(500), "status 500"),
        (Reply(302, headers={"Location": "http://127.0.0.1:1/metrics"}), "status 302"),
        (report("DCGM_FI_DEV_FB_USED{ 5"), "text format"),
        (report("#" * (gpus.BYTES + 1)), "beyond"),
        (Reply(body=b"x", headers={"Content-Encoding": "gzip"}), "coding"),
    ],
    ids=["error", "redirect", "not a report", "too large", "compressed"],
)
async def test_an_exporter_that_fails_costs_itself_and_is_logged_once(
    reply: Reply,
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(gpus, "SECONDS", 60.0)
    nodes = Nodes(reply, report(PARTITIONED))
    with nodes.stack:
        found = await nodes.read(times=2)
    assert found is not None
    assert found.totals.gpus == 2
    (record,) = caplog.records
    assert "http://127.0.0.1:" in record.getMessage()
    assert problem in record.getMessage()


async def test_an_exporter_that_does_not_end_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(gpus, "SECONDS", 0.2)
    ended = threading.Event()

    def silent(_: Request) -> Reply:
        ended.wait(30)
        return Reply()

    nodes = Nodes()
    nodes.addresses = ("127.0.0.1",)
    with nodes.stack:
        nodes.servers.append(nodes.stack.enter_context(serve(silent)))
        nodes.stack.callback(ended.set)
        assert await nodes.read() is None
    assert "no response within" in caplog.text


async def test_a_name_without_addresses_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    nodes = Nodes(report(WHOLE))
    with nodes.stack:
        nodes.addresses = ()
        assert await nodes.read() is None
    assert "has no address" in caplog.text
    assert "spec.gpu.metrics" in caplog.text


async def test_only_so_many_addresses_are_read(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(gpus, "EXPORTERS", 1)
    monkeypatch.setattr(gpus, "SECONDS", 60.0)
    nodes = Nodes(report(WHOLE), report(PARTITIONED))
    with nodes.stack:
        found = await nodes.read()
    assert found is not None
    assert found.totals.gpus == 4
    assert "2 addresses; the first 1" in caplog.text
