"""Ports for servers of tests."""

import contextlib
import socket

__all__ = ["free_port"]


def free_port() -> int:
    """Return a port that is free for UDP and TCP, for programs that cannot choose one."""
    while True:
        with socket.socket(type=socket.SOCK_DGRAM) as udp, socket.socket() as tcp:
            udp.bind(("127.0.0.1", 0))
            port = int(udp.getsockname()[1])
            with contextlib.suppress(OSError):
                tcp.bind(("127.0.0.1", port))
                return port
