"""What a request to an enclave costs: ``python -m dev.bench data_path [--rounds N] [--span S]``.

On a real node, images present: an enclave beside a bare Pod with the same image behind the same
release of Caddy, which ends TLS and does nothing else, and beside the image alone, over plain HTTP.
Server and clients are one program that does next to nothing per request, and the clients run on the
same machine, so that the figures compare the ways and not machines. In each round each kind of
request goes to each of them in turn.
"""

import json
import statistics
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import click

from dev.bench._enclaves import EnclaveBench, open_bench
from dev.cluster.binaries import binary
from dev.cluster.images import Image, push
from tests.support.programs.operator import file_text
from tests.support.waiting import until_sync

REPO: Final = "bench/data-path"
OURS: Final = "an enclave"
CADDY: Final = "a bare Pod behind Caddy"
BARE: Final = "a bare Pod, plain HTTP"
LEAST: Final = 0.95
"""Least rate of an enclave, as a part of that of the bare Pod behind Caddy."""
WORST: Final = 1.1
"""Most of the slowest hundredth of an enclave's responses, as a multiple of that Pod's."""
FIRST: Final = 1.0
"""Most milliseconds that the first event may come later."""
_HOST: Final = "bare.bench.test"
_PORT: Final = 8443

Found = dict[str, dict[str, list[dict[str, float]]]]
"""Kind of request -> where it went -> the result of each round."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of request."""

    title: str
    """Its row of the table."""
    options: tuple[str, ...]
    """Options of the client."""


KINDS: Final = (
    Kind("60 bytes, kept connections", ("-kind=small", "-clients=32")),
    Kind("60 bytes, HTTP/2", ("-kind=small", "-clients=32", "-http2")),
    Kind("60 bytes, new connections", ("-kind=connect", "-clients=8")),
    Kind("64 MB to the client", ("-kind=download", "-clients=2")),
    Kind("64 MB to the container", ("-kind=upload", "-clients=2")),
    # A stream ends with its connection.
    Kind("first event, new connections", ("-kind=events",)),
)
EVENTS: Final = KINDS[-1]


def main(options: Sequence[str] = ()) -> int:
    """Run the benchmark with command line options; return 1 when a target is missed.

    Parameters
    ----------
    options
        Such as ``--rounds 3``.
    """
    result: int = command.main(list(options), prog_name="data_path", standalone_mode=False)
    return result


@click.command()
@click.option("--rounds", default=5, show_default=True, help="Number of rounds.")
@click.option("--span", default=5, show_default=True, help="Seconds of each measurement.")
@click.option("--name", default="bench-data", show_default=True, help="Name of the cluster.")
def command(*, rounds: int, span: int, name: str) -> int:
    """Measure requests."""
    found: Found = {kind.title: {} for kind in KINDS}
    with open_bench(name, "30s") as bench, _served(bench) as places:
        for number, kind, place in product(range(rounds + 1), KINDS, places):
            result = _ask(places[place], kind, span if number else 1)
            if number:  # The first round warms up.
                found[kind.title].setdefault(place, []).append(result)
    return report(found)


@contextmanager
def _served(bench: EnclaveBench) -> Iterator[dict[str, tuple[str, ...]]]:
    """Start an enclave and a bare Pod; provide the client's options for each way."""
    registry, installed = bench.cluster.registry, bench.installation
    program = {"/data-path": binary("data-path")}
    image = push(Image(files=program, command=("/data-path", "serve")), registry, "bench/data-path")
    front = Image(files={"/caddy": binary("caddy")}, env=("HOME=/tmp",))
    caddy = push(front, registry, "bench/caddy")
    text = file_text(image, paths=("/*",))
    installed.repository(REPO).release("v1", text)
    installed.create_container("ours", repo=REPO, tag="v1")
    bench.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(_bare(bench, image, caddy)))
    installed.wait_for("ours", "Ready", within=240)
    (enclave,) = installed.enclaves("ours")
    container = installed.container("ours")
    assert container is not None
    address = until_sync(lambda: _address(bench, "bare"), within=120, what="the bare Pod")
    yield {
        OURS: (f"-address={enclave.status.address}:{_PORT}", f"-host={container.status.domain}"),
        CADDY: (f"-address={address}:{_PORT}", f"-host={_HOST}"),
        BARE: (f"-address={address}:8080",),
    }


def _bare(bench: EnclaveBench, image: str, caddy: str) -> dict[str, Any]:
    """Return the manifest of a Pod with the image, and Caddy in front of it."""
    passes = ("--from", f"https://{_HOST}:{_PORT}", "--to", "127.0.0.1:8080")
    options = ("--internal-certs", "--disable-redirects")
    front = ["/caddy", "reverse-proxy", *passes, *options]
    ready = {"tcpSocket": {"port": _PORT}, "periodSeconds": 1}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "bare", "namespace": bench.namespace},
        "spec": {
            "automountServiceAccountToken": False,
            "containers": [
                {"name": "web", "image": image},
                {"name": "caddy", "image": caddy, "command": front, "readinessProbe": ready},
            ],
            "enableServiceLinks": False,
            "hostUsers": False,
            "terminationGracePeriodSeconds": 1,
        },
    }


def _address(bench: EnclaveBench, name: str) -> str:
    """Return the address of a Pod; empty until it is ready."""
    form = ("get", "pod", name, "-n", bench.namespace, "-o", "json")
    status = json.loads(bench.cluster.kubectl(*form))["status"]
    ready = {each["type"]: each["status"] for each in status.get("conditions", ())}.get("Ready")
    return str(status["podIP"]) if ready == "True" else ""


def _ask(place: tuple[str, ...], kind: Kind, span: int) -> dict[str, float]:
    """Send requests of one kind for some seconds."""
    # Plain HTTP/2 needs an upgrade that nothing else here uses.
    options = [each for each in kind.options if each != "-http2" or len(place) > 1]
    found: dict[str, float] = json.loads(
        subprocess.check_output([binary("data-path"), *place, *options, f"-span={span}s"])
    )
    return found


def report(found: Found) -> int:
    """Print a table, and return whether a target is missed."""
    print("| requests | where | per second | relative | median | p99 | relative |")
    print("|---|---|---|---|---|---|---|")
    missed = False
    for title, places in found.items():
        middle = {
            place: {key: statistics.median(each[key] for each in rounds) for key in rounds[0]}
            for place, rounds in places.items()
        }
        beside = middle[CADDY]
        for place, each in middle.items():
            rate, slow = each["perSecond"] / beside["perSecond"], each["p99"] / beside["p99"]
            print(
                f"| {title} | {place} | {each['perSecond']:.1f} | {rate:.2f} "
                f"| {each['median']:.2f} ms | {each['p99']:.2f} ms | {slow:.2f} |"
            )
        ours = middle[OURS]
        if title == EVENTS.title:
            missed |= ours["median"] - beside["median"] > FIRST
        else:
            missed |= ours["perSecond"] < LEAST * beside["perSecond"]
            missed |= "bytes" in title and ours["p99"] > WORST * beside["p99"]
    return int(missed)
