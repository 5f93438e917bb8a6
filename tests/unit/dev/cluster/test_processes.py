"""Processes outlive the command that started them, and no other process is ever signalled."""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.cluster.layout import LocalClusterError, port_is_free
from dev.cluster.processes import Component, Processes, start, wait_until, write_config

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    found = Processes(tmp_path / "processes", tmp_path / "logs")
    yield found
    for name in found.names():
        found.stop(name, grace=0.1)


def test_a_process_is_started_once_and_stopped(processes: Processes) -> None:
    processes.start("sleeper", ["sleep", "1000"])
    pid = processes.pid("sleeper")
    assert pid is not None
    processes.start("sleeper", ["sleep", "1000"])
    assert processes.pid("sleeper") == pid
    assert os.getsid(pid) != os.getsid(0)
    processes.stop("sleeper")
    assert not processes.is_running("sleeper")
    assert processes.names() == []


def test_a_process_that_ignores_sigterm_is_killed(processes: Processes) -> None:
    processes.start("stubborn", ["sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 1; done"])
    assert wait_until(lambda: "deaf" in processes.log_tail("stubborn"), within=20)
    processes.stop("stubborn", grace=0.2)
    assert not processes.is_running("stubborn")


@pytest.mark.parametrize("change", [{"started": 1}, {"boot": "another"}])
def test_another_process_with_the_same_id_is_not_signalled(
    processes: Processes, tmp_path: Path, change: dict[str, object]
) -> None:
    processes.start("sleeper", ["sleep", "1000"])
    pid = processes.pid("sleeper")
    assert pid is not None
    file = tmp_path / "processes" / "sleeper.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    assert processes.pid("sleeper") is None
    processes.stop("sleeper")
    os.kill(pid, signal.SIGKILL)


def test_a_cut_off_record_is_none(processes: Processes, tmp_path: Path) -> None:
    (tmp_path / "processes" / "broken.json").write_text('{"pid": 1')
    assert not processes.is_running("broken")
    processes.stop("broken")
    assert processes.names() == []


def test_an_early_exit_is_reported_with_the_log(processes: Processes) -> None:
    processes.start("failing", ["sh", "-c", "echo no such thing; exit 3"])
    with pytest.raises(
        LocalClusterError, match=r"(?s)failing exited while starting .*no such thing"
    ):
        processes.await_ready("failing", lambda: False, within=20)


def test_a_process_that_is_not_ready_is_reported_with_the_log(processes: Processes) -> None:
    processes.start("silent", ["sleep", "1000"])
    with pytest.raises(LocalClusterError, match="silent is not ready after 0 s"):
        processes.await_ready("silent", lambda: False, within=0)


def test_other_settings_restart_the_process(processes: Processes, tmp_path: Path) -> None:
    file = write_config(tmp_path / "file", "one")

    def component(seconds: str = "1000") -> Component:
        return Component("it", ("sleep", seconds), ready=lambda: True, files=(file,))

    assert start(processes, component())
    first = processes.pid("it")
    assert not start(processes, component())
    assert processes.pid("it") == first
    write_config(file, "two")
    assert start(processes, component())
    second = processes.pid("it")
    assert second != first
    assert start(processes, component("2000"))
    assert processes.pid("it") not in {first, second}


def test_the_same_content_is_not_written_again(tmp_path: Path) -> None:
    path = write_config(tmp_path / "a" / "file", "text")
    before = path.stat().st_mtime_ns
    write_config(path, "text")
    assert path.stat().st_mtime_ns == before
    write_config(path, "other")
    assert path.read_text() == "other"


def test_a_taken_port_is_reported(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dev.cluster.processes.PATIENCE", 0.1)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert not port_is_free("127.0.0.1", port)
        component = Component(
            "it", ("sleep", "1000"), ready=lambda: True, ports=(("127.0.0.1", port),)
        )
        with pytest.raises(LocalClusterError, match=f"it needs the port {port} of 127.0.0.1"):
            start(processes, component)
    assert not processes.is_running("it")


def test_a_started_process_is_not_a_child(processes: Processes) -> None:
    processes.start("sleeper", ["sleep", "1000"])
    pid = processes.pid("sleeper")
    children = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(os.getpid())],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.split()
    assert str(pid) not in children
