"""A real Prometheus on the loopback, which scrapes what a test names and answers queries."""

import contextlib
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from dev.plain_http import NO_TRUST
from tests.support.waiting import until_sync

__all__ = ["Prometheus", "QueryError", "prometheus"]

SCRAPE_INTERVAL = "250ms"
"""Time between two scrapes, so that rates have their two samples soon."""


class QueryError(Exception):
    """Prometheus refuses a query, or cannot evaluate it."""


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A running server."""

    address: str
    """Its address."""

    def query(self, query: str) -> list[dict[str, Any]]:
        """Evaluate a query now; each series as ``{"metric": …, "value": …}``.

        Raises
        ------
        QueryError
            When it cannot be evaluated.
        """
        found: list[dict[str, Any]] = self._ask("query", query=query)["result"]
        return found

    def label_values(self, label: str, series: str) -> list[str]:
        """Return the values of a label among some series."""
        found: list[str] = self._ask(f"label/{label}/values", **{"match[]": series})
        return found

    def rules(self) -> dict[str, dict[str, Any]]:
        """Return the rules by name, each with its health, last error and last evaluation."""
        groups = self._ask("rules")["groups"]
        return {rule["name"]: rule for group in groups for rule in group["rules"]}

    def _ask(self, path: str, **parameters: str) -> Any:
        answer = httpx.get(
            f"{self.address}/api/v1/{path}",
            params=parameters,
            timeout=60,
            trust_env=False,
            verify=NO_TRUST,
        ).json()
        if answer["status"] != "success":
            raise QueryError(answer["error"])
        return answer["data"]


@contextlib.contextmanager
def prometheus(
    program: Path, folder: Path, targets: Mapping[str, str], rules: Path
) -> Iterator[Prometheus]:
    """Run Prometheus until the block ends.

    Parameters
    ----------
    targets
        Job -> host and port whose ``/metrics`` it scrapes.
    rules
        A file of rules, which it evaluates at each scrape.
    """
    settings = {
        "global": {"scrape_interval": SCRAPE_INTERVAL, "evaluation_interval": SCRAPE_INTERVAL},
        "rule_files": [str(rules.absolute())],
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": [target]}]}
            for job, target in targets.items()
        ],
    }
    file, log = folder / "prometheus.yml", folder / "prometheus.log"
    file.write_text(yaml.safe_dump(settings))
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [
                program,
                f"--config.file={file}",
                f"--storage.tsdb.path={folder / 'series'}",
                "--web.listen-address=127.0.0.1:0",
            ],
            stdout=sink,
            stderr=subprocess.STDOUT,
        )
    try:
        yield Prometheus(until_sync(lambda: _address(process, log), what="Prometheus' address"))
    finally:
        process.terminate()
        process.wait(30)


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Return the address that a server has logged; empty = it is not ready."""
    text = log.read_text()
    if process.poll() is not None:
        raise RuntimeError(f"Prometheus exited with {process.returncode}:\n{text[-2000:]}")
    found = re.search(r'msg="Listening on" address=(\S+)', text)
    ready = "Server is ready to receive web requests" in text
    return f"http://{found[1]}" if found and ready else ""
