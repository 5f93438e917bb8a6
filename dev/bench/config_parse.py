"""Time that the parser takes for hostile files: ``python -m dev.bench.config_parse``.

Each line: milliseconds (best of three), how many times the time of an ordinary file of 2 KB,
bytes, problems. Every hostile file of 1 MiB must be validated in well under a second.
"""

import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from cloister_crds.config import parse

MIB: Final = 1024 * 1024
LIMIT: Final = 1000.0
"""Upper bound for each file, in milliseconds."""
ORDINARY: Final = Path(__file__).parents[2] / "tests/data/config/valid/every-field.yml"
HEAD: Final = "cvm-version: 0.14.0\ncpus: 2\nmemory: 8192\nshim: {upstream-port: 80, paths: [/]}\n"


def _fill(unit: str) -> str:
    """Repeat a text up to 1 MiB."""
    return (unit * (MIB // len(unit) + 1))[:MIB]


def _container(line: str) -> str:
    return f"{HEAD}containers:\n- {{name: a, {line}}}\n"


def cases() -> Iterator[tuple[str, bytes]]:
    """Return names and contents of hostile files."""
    units = ["[", "{", "{a: ", "- ", "? ", ": ", ":", "- a\n", "#\n", " ", "\n", "'", '"', "a\n"]
    units += ["- &a a\n", "k: *a\n", "- !!str a\n", "a: 1\n", "a: b: ", "---\n", "%YAML 1.1\n"]
    yield "bytes", bytes(range(256)) * 4096
    yield from ((f"repeated {unit!r}", _fill(unit).encode()) for unit in units)
    texts: dict[str, Callable[[], str]] = {
        "a long list": lambda: "[" + _fill("a,")[:-2] + "]",
        "a long text": lambda: '"' + _fill("\\u0041")[:-8] + '"',
        "many aliases": lambda: "- &a a\n" + _fill("- *a\n")[:-9],
        "many unknown keys": lambda: "".join(f"kommand{n}: 1\n" for n in range(8000)),
        "many bad variables": lambda: _container("env: [" + "on, " * 255 + "on]") + "- a\n" * 60,
        "a long image": lambda: _container("image: '" + "a-." * 340_000 + "'"),
        "a long name": lambda: _container("image: '" + "a" * 1_000_000 + "'"),
        "a long number": lambda: "cpus: " + "9" * 1_000_000,
        "a long base 60 number": lambda: "cpus: 1" + ":59" * 340_000,
        "a long duration": lambda: _container(
            "healthcheck: {test: [CMD, a], interval: '" + "1h" * 500_000 + "'}"
        ),
        "many options": lambda: _container("tmpfs: {/t: '" + "size=1," * 140_000 + "'}"),
        "many GPUs": lambda: "gpus: 8\n" + _container("gpus: '" + "1," * 500_000 + "1'"),
        "a long volume": lambda: _container("volumes: ['" + "/a" * 500_000 + "']"),
        "a long origin": lambda: HEAD.replace("paths", f"origins: ['a://{'a.' * 500_000}'], paths"),
        "a long path": lambda: HEAD.replace("[/]", "['/" + "%41" * 340_000 + " ']"),
    }
    yield from ((name, text().encode()) for name, text in texts.items())


def measure(raw: bytes) -> tuple[float, int]:
    """Validate a file three times: best time in milliseconds, and number of problems."""
    best = float("inf")
    count = 0
    for _ in range(3):
        begin = time.perf_counter()
        count = len(parse(raw).problems)
        best = min(best, (time.perf_counter() - begin) * 1000)
    return best, count


def main() -> int:
    """Print all times; return 1 when a file takes too long."""
    ordinary = ORDINARY.read_bytes()
    base, _ = measure(ordinary)
    print(f"{base:9.1f} ms  x{1:<6} {len(ordinary):8} bytes  an ordinary file")
    worst = 0.0
    for name, raw in cases():
        best, count = measure(raw[:MIB])
        worst = max(worst, best)
        ratio = f"x{best / base:<6.1f}"
        print(f"{best:9.1f} ms  {ratio} {len(raw[:MIB]):8} bytes  {count:4} problems  {name}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"worst {worst:.1f} ms, bound {LIMIT:.0f} ms; peak memory {peak} MiB")
    return 0 if worst < LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
