"""Ports for servers of tests stay free until their server listens."""

import socket
from pathlib import Path

import pytest

from dev.cluster.layout import PORTS as CLUSTERS
from tests.support import ports
from tests.support.ports import PORTS, free_port


def test_no_outgoing_connection_takes_a_free_port() -> None:
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert PORTS.stop <= min(CLUSTERS.start, low)
    assert free_port() in PORTS


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_port_that_is_taken_is_not_returned(
    monkeypatch: pytest.MonkeyPatch, kind: socket.SocketKind
) -> None:
    with socket.socket(type=kind) as taken:
        one = free_port()
        taken.bind(("127.0.0.1", one))
        two = free_port()
        monkeypatch.setattr(ports, "PORTS", [one, two])
        assert {free_port() for _ in range(20)} == {two}
