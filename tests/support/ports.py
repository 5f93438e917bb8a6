"""Ports for servers of tests."""

import contextlib
import socket
from random import SystemRandom

__all__ = ["PORTS", "free_port"]

PORTS = range(10_000, 20_000)
"""Below the ports that the kernel gives outgoing connections, of which tests open many: one of
those may be taken again before the program that was told it listens there. Above these are the
ports of local clusters (`dev.cluster.layout.PORTS`)."""


def free_port() -> int:
    """Return a port that is free for UDP and TCP, for programs that cannot choose one."""
    chance = SystemRandom()
    while True:
        port = chance.choice(PORTS)
        with (
            socket.socket(type=socket.SOCK_DGRAM) as udp,
            socket.socket() as tcp,
            contextlib.suppress(OSError),
        ):
            udp.bind(("127.0.0.1", port))
            tcp.bind(("127.0.0.1", port))
            return port
