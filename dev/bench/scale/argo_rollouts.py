"""Argo Rollouts' side: as many blue-green Rollouts, with one Service each."""

import asyncio
import contextlib
import json
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import httpx

from cloister_clients.kube.kinds import NAMESPACE, POD, SERVICE, KindRef
from dev.bench.scale.cloister import SideResult, follow
from dev.bench.scale.environment import BenchEnvironment
from dev.bench.scale.measurements import Readiness
from dev.cluster import LocalClusterError, binaries
from dev.cluster.binaries import environment, load
from dev.plain_http import NO_TRUST
from tests.support.waiting import until

PROGRAM: Final = "rollouts-controller"
ROLLOUT: Final = KindRef("argoproj.io", "v1alpha1", "rollouts", "Rollout")
_NAMESPACE: Final = "argo-rollouts"
_RATE: Final = ("--qps=1000", "--burst=2000")
"""Client rate and burst; the defaults of 40 and 80 would dominate the measurement."""


async def run_rollouts(environment: BenchEnvironment, count: int, *, within: float) -> SideResult:
    """Create Rollouts and Services, wait until all are healthy, and remove them again.

    Parameters
    ----------
    environment
        Environment of the run; no operator of Cloister may run.
    within
        Timeout in seconds.

    Raises
    ------
    AssertionError
        When they are not healthy in time; with the last lines of the controller's log.
    LocalClusterError
        When the controller cannot be built or does not start.
    """
    namespaces = [f"rollouts-{number}" for number in range(len(environment.namespaces))]
    log = environment.installation.folder / "rollouts.log"
    for name in (_NAMESPACE, *namespaces):
        await environment.client.create(NAMESPACE, {"metadata": {"name": name}})
    readiness = Readiness(_is_healthy)
    async with _controller(environment, log) as pid:
        try:
            side = await follow(
                environment,
                ROLLOUT,
                readiness,
                _bodies(count, namespaces, readiness),
                name="Argo Rollouts",
                pid=pid,
                within=within,
            )
        except AssertionError as error:
            output = await asyncio.to_thread(log.read_text)
            raise AssertionError(f"{error}\n{output[-4000:]}") from error
        await _remove(environment, namespaces, count)
    return side


def _bodies(
    count: int, namespaces: list[str], readiness: Readiness
) -> Iterator[tuple[KindRef, dict[str, Any]]]:
    """Yield the objects, each Service before its Rollout, as in the documentation."""
    for number in range(count):
        name, namespace = f"web-{number}", namespaces[number % len(namespaces)]
        readiness.created[name] = time.monotonic()
        metadata = {"name": name, "namespace": namespace}
        ports = [{"port": 443, "targetPort": 8443}]
        yield SERVICE, {"metadata": metadata, "spec": {"selector": {"app": name}, "ports": ports}}
        container = {"name": "web", "image": "registry.invalid/web:1"}
        template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}
        yield (
            ROLLOUT,
            {
                "metadata": metadata,
                "spec": {
                    "replicas": 1,
                    "selector": {"matchLabels": {"app": name}},
                    "template": template,
                    "strategy": {"blueGreen": {"activeService": name}},
                },
            },
        )


def _is_healthy(body: dict[str, Any]) -> bool:
    """Return whether a Rollout is healthy for its current spec."""
    status = body.get("status", {})
    current = status.get("observedGeneration") == str(body["metadata"]["generation"])
    return bool(current and status.get("phase") == "Healthy")


@contextlib.asynccontextmanager
async def _controller(environment: BenchEnvironment, log: Path) -> AsyncIterator[int]:
    """Run the controller until the block ends; yield its process id."""
    health, metrics = _free_ports()
    process = await asyncio.to_thread(_start, environment, log, health, metrics)
    try:
        await until(lambda: _serves(process, health, log), within=60, what="the controller")
        yield process.pid
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait, 30)


def _start(
    environment: BenchEnvironment, log: Path, health: int, metrics: int
) -> "subprocess.Popen[bytes]":
    """Install its CRDs and start it."""
    folder = _manifests()
    names = sorted(path for path in folder.glob("*-crd.yaml"))
    for path in names:
        environment.cluster.kubectl("apply", "--server-side", "-f", str(path))
    for path in names:
        wait = ("wait", "--for=condition=Established", "--timeout=60s")
        environment.cluster.kubectl(*wait, "-f", str(path))
    command = (
        str(binaries.binary(PROGRAM)),
        f"--kubeconfig={environment.cluster.kubeconfig}",
        f"--healthzPort={health}",
        f"--metricsPort={metrics}",
        "--leader-elect=false",
        "--loglevel=warn",
        *_RATE,
    )
    with log.open("wb") as sink:
        return subprocess.Popen(command, stdout=sink, stderr=subprocess.STDOUT)


def _manifests() -> Path:
    """Return the folder of the controller's CRDs in Go's module cache."""
    module = load().module_of(PROGRAM)
    reported = subprocess.run(
        ["go", "mod", "download", "-json", f"{module.requires}@v{module.version}"],
        check=True,
        capture_output=True,
        cwd=module.folder,
        env=environment(),
    )
    folder = Path(json.loads(reported.stdout)["Dir"]) / "manifests" / "crds"
    if not folder.is_dir():
        raise LocalClusterError(f"{folder} is missing; clean Go's module cache and run this again")
    return folder


async def _serves(process: "subprocess.Popen[bytes]", port: int, log: Path) -> bool:
    """Return whether the controller's health endpoint responds with success."""
    if process.poll() is not None:
        output = await asyncio.to_thread(log.read_text)
        raise LocalClusterError(f"the controller exited while starting:\n{output[-2000:]}")
    try:
        async with httpx.AsyncClient(trust_env=False, verify=NO_TRUST) as client:
            return (await client.get(f"http://127.0.0.1:{port}/healthz")).is_success
    except httpx.HTTPError:
        return False


async def _remove(environment: BenchEnvironment, namespaces: list[str], count: int) -> None:
    """Delete all its objects, so that they do not burden the other side."""
    for name in (*namespaces, _NAMESPACE):
        await environment.client.delete(NAMESPACE, name)

    async def gone() -> bool:
        pods = await environment.client.list(POD)
        left = {
            each["metadata"]["name"] for each in (await environment.client.list(NAMESPACE)).items
        }
        return not pods.items and not left & {*namespaces, _NAMESPACE}

    await until(gone, within=120 + count, every=2.0, what="the end of the Rollouts")


def _free_ports() -> tuple[int, int]:
    """Choose two free ports of the loopback."""
    with socket.socket() as one, socket.socket() as two:
        one.bind(("127.0.0.1", 0))
        two.bind(("127.0.0.1", 0))
        return one.getsockname()[1], two.getsockname()[1]
