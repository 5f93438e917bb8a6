"""A cluster's folder, its record, and its addresses and ports."""

import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.cluster import network
from dev.cluster.layout import (
    PORTS,
    Form,
    LocalClusterError,
    Record,
    free_port,
    layout,
    lock,
    names,
    others,
    state_folder,
)
from dev.cluster.network import INDEXES, choose_index, namespace_of, table_of


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Provide a state folder with a path short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="cl", dir="/tmp") as folder:
        monkeypatch.setenv("CLOISTER_STATE", folder)
        yield Path(folder)


@pytest.mark.parametrize("name", ["a", "dev", "h-cl", "test-api", "x1", "a" * 24])
def test_valid_cluster_names(home: Path, name: str) -> None:
    assert layout(name).folder == home / name


@pytest.mark.parametrize("name", ["", "1a", "-a", "a-", "A", "a_b", "a/b", "..", "a" * 25, "a\n"])
def test_invalid_cluster_names(home: Path, name: str) -> None:
    with pytest.raises(LocalClusterError, match="at most 24 of a-z"):
        layout(name)


def test_a_deep_state_folder_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOISTER_STATE", str(home / ("deep/" * 20)))
    with pytest.raises(LocalClusterError, match="set CLOISTER_STATE to a shorter one"):
        layout("dev")


def test_the_state_folder_of_other_users_than_root_is_in_their_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("CLOISTER_STATE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert state_folder() == tmp_path / ".local/state/cloister"
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert state_folder() == Path("/var/lib/cloister-dev")


def test_a_saved_record_is_read_back(home: Path) -> None:
    record = Record(name="one", form=Form.NODE, index=7, ports={"apiserver": 20001})
    places = layout("one")
    places.make()
    record.save(places.record)
    assert Record.read(places.record) == record
    assert names() == ["one"]
    assert others("two") == [record]
    assert others("one") == []


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"name": "a", "form": "other"}'])
def test_a_cut_off_record_is_none(home: Path, text: str) -> None:
    path = home / "cluster.json"
    path.write_text(text)
    assert Record.read(path) is None
    assert Record.read(home / "missing") is None


def test_keys_are_unreadable_for_other_users(home: Path) -> None:
    places = layout("one")
    places.make()
    assert places.pki.stat().st_mode & 0o077 == 0
    assert places.config.stat().st_mode & 0o077 == 0


def test_addresses_of_a_cluster_without_a_link_are_loopback() -> None:
    record = Record(name="a", form=Form.CONTROL_PLANE, ports={"apiserver": 1, "registry": 2})
    assert record.server == "https://127.0.0.1:1"
    assert record.registry == "127.0.0.1:2"


def test_ports_are_below_those_of_outgoing_connections() -> None:
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert low >= PORTS.stop
    port = free_port(set())
    assert port in PORTS
    assert free_port(set(PORTS) - {port}) == port
    with pytest.raises(LocalClusterError, match="no free port"):
        free_port(set(PORTS))


def test_address_ranges_with_a_route_are_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    routes = '[{"dst": "default"}, {"dst": "10.201.1.0/24"}, {"dst": "10.203.3.7"}, {"dst": "::1"}]'
    monkeypatch.setattr(network, "_run", lambda *_, **__: routes)
    assert network.taken_indexes() == {1, 3}
    assert choose_index({2}) == 4
    assert choose_index(set()) == 2


def test_a_route_that_covers_all_ranges_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "_run", lambda *_, **__: '[{"dst": "10.0.0.0/8"}]')
    assert network.taken_indexes() == set(INDEXES)
    with pytest.raises(LocalClusterError, match="no free address range"):
        choose_index(set())


def test_names_of_the_machine_are_one_per_cluster() -> None:
    assert namespace_of("h-cl") == "cloister-h-cl"
    assert table_of("h-cl") == "cloister_h_cl"


def test_two_runs_on_a_cluster_exclude_each_other(home: Path) -> None:
    held: list[int] = []
    most: list[int] = []

    def run() -> None:
        for _ in range(50):
            with lock("one"):
                held.append(1)
                most.append(len(held))
                held.pop()

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 150
