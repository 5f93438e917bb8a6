"""Processor time of the programs' starts: ``python -m dev.bench start [--python PATH …]``.

A real API server without objects. In each round every program starts once, after the other:
Python alone, imports, the command line, a bare program of each framework, and ``cloister api`` and
``cloister operator`` until they are ready. Processor time hardly depends on what else the machine
does, and the bare programs beside ours tell how fast it is. Two virtual environments, such as of
this state and an earlier one, are measured in turn.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import click
import httpx
import yaml

from dev import cluster as local
from dev.bench.scale.measurements import usage
from dev.cluster.layout import free_port
from dev.plain_http import NO_TRUST
from tests.support.programs.facade import run_command
from tests.support.programs.operator import CONTAINERS_DOMAIN, Installation
from tests.support.programs.published_settings import publish
from tests.support.waiting import until_sync

TARGET: Final = 1.0
"""Maximum of seconds that the import of a program may take."""
Work = Callable[[], float]
"""Something to measure; returns seconds of processor time."""
WITHIN: Final = 120.0
"""Seconds after which a program that is not ready has failed."""
API: Final = "import, `cloister api --help`"
OPERATOR: Final = "import, `cloister operator --help`"
BARE_FASTAPI: Final = """
import sys
import fastapi, uvicorn
app = fastapi.FastAPI()

@app.get("/readyz")
async def readyz() -> dict[str, bool]:
    return {"ready": True}

uvicorn.run(app, port=int(sys.argv[1]), log_level="warning")
"""
BARE_KOPF: Final = """
import sys
import kopf

@kopf.on.login()
def login(**_):
    return kopf.login_with_kubeconfig()

@kopf.on.event("v1", "configmaps")
def configmap(**_):
    pass

kopf.run(clusterwide=True, liveness_endpoint=f"http://127.0.0.1:{sys.argv[1]}/readyz")
"""


def main(options: Sequence[str] = ()) -> int:
    """Run the benchmark with command line options; return 1 when a target is missed.

    Parameters
    ----------
    options
        Such as ``--rounds 3``.
    """
    result: int = command.main(list(options), prog_name="start", standalone_mode=False)
    return result


@click.command()
@click.option("--rounds", default=5, show_default=True, help="Number of rounds.")
@click.option(
    "--python",
    "pythons",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    multiple=True,
    default=[Path(sys.executable)],
    help="Python of a virtual environment that Cloister is installed in. Default: this one.",
)
@click.option("--name", default="bench-start", show_default=True, help="Name of the cluster.")
def command(*, rounds: int, pythons: Sequence[Path], name: str) -> int:
    """Measure imports and starts."""
    local.down(name)
    cluster = local.up(name, node=False)
    try:
        with tempfile.TemporaryDirectory() as folder:
            each = [
                {**imports(python), **starts(python, cluster, Path(folder, str(place)))}
                for place, python in enumerate(pythons)
            ]
            found = {title: [measure(works[title] for works in each)] for title in each[0]}
            for _ in range(rounds):
                for title, measured in found.items():
                    measured.append(measure(works[title] for works in each))
    finally:
        local.down(name)
    # The first round writes the bytecode.
    return report({title: list(zip(*rest, strict=True)) for title, (_, *rest) in found.items()})


def measure(works: Iterable[Work]) -> list[float]:
    """Return the processor time of each."""
    return [work() for work in works]


def imports(python: Path) -> dict[str, Work]:
    """Return what runs to its end."""
    cloister = str(python.with_name("cloister"))
    commands = {
        "`python -c pass`": (str(python), "-c", "pass"),
        "`import fastapi`": (str(python), "-c", "import fastapi"),
        "`import kopf`": (str(python), "-c", "import kopf"),
        "`cloister --version`": (cloister, "--version"),
        "`cloister --help`": (cloister, "--help"),
        API: (cloister, "api", "--help"),
        OPERATOR: (cloister, "operator", "--help"),
    }
    return {name: partial(ended, each) for name, each in commands.items()}


def starts(python: Path, cluster: local.Cluster, folder: Path) -> dict[str, Work]:
    """Return what runs until it is ready."""
    cloister = str(python.with_name("cloister"))
    fastapi_port, kopf_port, api_port, operator_port = (free_port(set()) for _ in range(4))
    folder.mkdir()
    installation = Installation(cluster, folder, {"health": {"port": operator_port}})
    installation.prepare()
    operator = installation.write_settings(cluster.kubeconfig)
    api = facade_settings(installation, api_port)
    commands = {
        "bare FastAPI": (fastapi_port, str(python), "-c", BARE_FASTAPI, str(fastapi_port)),
        "bare kopf": (kopf_port, str(python), "-c", BARE_KOPF, str(kopf_port)),
        "`cloister api`": (api_port, cloister, "api", "--config", str(api)),
        "`cloister operator`": (operator_port, cloister, "operator", "--config", str(operator)),
    }
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    return {
        f"{name}, until ready": partial(served, each[1:], each[0], environment)
        for name, each in commands.items()
    }


def facade_settings(installation: Installation, port: int) -> Path:
    """Write the settings of the facade, publish the operator's, and create the ledger."""
    settings = {
        "kubeconfig": str(installation.cluster.kubeconfig),
        "operatorNamespace": installation.system,
        "listen": {"port": port},
        "stop": {"drainSeconds": 0},
        "ledger": {"path": "ledger.db", "keyMaterial": "keys.json"},
        "sources": {"kind": "git", "base": str(installation.repositories.path)},
    }
    path = installation.folder / "api.yml"
    path.write_text(yaml.safe_dump(settings))
    publish(installation.cluster, CONTAINERS_DOMAIN, namespace=installation.system)
    run_command("admin-key", "init", "--config", str(path))
    return path


def ended(arguments: Sequence[str]) -> float:
    """Return the processor time of a process that ends by itself."""
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(arguments)} failed")
    return used.ru_utime + used.ru_stime


def served(arguments: Sequence[str], port: int, environment: dict[str, str]) -> float:
    """Return the processor time of a process until it is ready."""
    process = subprocess.Popen(
        arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
    )

    def ready() -> bool:
        if process.poll() is not None:
            raise RuntimeError(f"{arguments[0]} {arguments[1]} ended before it was ready")
        with suppress(httpx.TransportError):
            return httpx.get(f"http://127.0.0.1:{port}/readyz", verify=NO_TRUST).is_success
        return False

    try:
        until_sync(ready, within=WITHIN, every=0.05, what=f"{arguments[1]} to be ready")
        return usage(process.pid).processor
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def report(found: dict[str, list[tuple[float, ...]]]) -> int:
    """Print a table, and return whether an import takes more than its target.

    Parameters
    ----------
    found
        What was measured -> seconds of every round, for each environment.
    """
    environments = len(found[API])
    print(f"| processor time |{' median | least, most |' * environments}")
    print(f"|---|{'---|---|' * environments}")
    for title, each in found.items():
        cells = (
            f" {statistics.median(rounds):.2f} s | {min(rounds):.2f}, {max(rounds):.2f} s |"
            for rounds in each
        )
        print(f"| {title} |{''.join(cells)}")
    return int(any(statistics.median(found[title][0]) >= TARGET for title in (API, OPERATOR)))
