"""A component of the cluster: how it is started and when it is ready."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from dev.cluster.errors import LocalClusterError
from dev.cluster.layout import port_is_free
from dev.cluster.processes import Processes, fingerprint, wait_until

PATIENCE = 60.0
"""Seconds that a port may take to become free."""


@dataclass(frozen=True, slots=True)
class Component:
    """One process of the cluster."""

    name: str
    argv: tuple[str, ...]
    ready: Callable[[], bool]
    """Readiness probe; polled until it returns True."""
    within: float = 90.0
    """Seconds that it may take to become ready."""
    environment: Mapping[str, str] = field(default_factory=dict)
    files: tuple[Path, ...] = ()
    """Files that it reads at start; when their content changes, the process is restarted."""
    ports: tuple[tuple[str, int], ...] = ()
    """Address and port pairs that must be free before it starts."""

    @property
    def mark(self) -> str:
        """Hash of everything that the process is started with."""
        return fingerprint(self.argv, self.environment, self.files)


def start(processes: Processes, component: Component) -> bool:
    """Start a component that does not run, or runs with other settings; wait until it is ready.

    Raises
    ------
    LocalClusterError
        When its port is taken, it exits, or is not ready in time.
    """
    current = processes.is_current(component.name, component.mark)
    if not current:
        processes.stop(component.name)
        for address, port in component.ports:
            # The threads of a process that was just stopped may keep the port for a moment.
            if not wait_until(partial(port_is_free, address, port), within=PATIENCE):
                raise LocalClusterError(
                    f"{component.name} needs the port {port} of {address}, but another program "
                    "listens on it: stop that program, or take the cluster down and up again "
                    "(it then chooses other ports)"
                )
        processes.start(
            component.name, component.argv, env=component.environment, mark=component.mark
        )
    processes.await_ready(component.name, component.ready, within=component.within)
    return not current


def write_config(path: Path, text: str) -> Path:
    """Write a configuration file unless it already has this content, and return its path.

    Some components exit when their file is written, even with the same content.
    """
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_name(f"{path.name}.new")
        scratch.write_text(text)
        scratch.rename(path)
    return path
