"""A loopback of its own for a program that listens on every address and cannot be told not to."""

import contextlib
import os
import socket
import socketserver
import threading
from collections.abc import Iterable, Iterator

from typing_extensions import override

from tests.support.installed.alone import alone

__all__ = ["apart"]

HOST = "127.0.0.1"
SIZE = 65_536
"""Bytes that are read at once."""


@contextlib.contextmanager
def apart(ports: Iterable[int]) -> Iterator[tuple[str, ...]]:
    """Provide a network namespace with a loopback and nothing else, until the block ends.

    What connects to one of the ports there reaches the same port of this machine's loopback, so
    that a program needs no other configuration. Needs root.

    Yields
    ------
    tuple[str, ...]
        What is put before a command to run it there.
    """
    with contextlib.ExitStack() as stack:
        with alone():
            # A socket stays in the namespace in which it was made, its threads do not.
            ways = [stack.enter_context(_Way((HOST, port), _Connection)) for port in ports]
            space = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        stack.callback(os.close, space)
        for way in ways:
            thread = threading.Thread(target=way.serve_forever)
            thread.start()
            stack.callback(thread.join)
            stack.callback(way.shutdown)
        yield ("nsenter", f"--net=/proc/{os.getpid()}/fd/{space}", "--")


class _Way(socketserver.ThreadingTCPServer):
    """A server in the namespace. Its connections end with the program's."""

    daemon_threads = True
    block_on_close = False


class _Connection(socketserver.BaseRequestHandler):
    """One connection, carried out of the namespace."""

    @override
    def handle(self) -> None:
        here: socket.socket = self.request
        with (
            contextlib.suppress(ConnectionError),
            socket.create_connection(here.getsockname()) as beyond,
        ):
            back = threading.Thread(target=_carry, args=(beyond, here), daemon=True)
            back.start()
            _carry(here, beyond)
            back.join()


def _carry(source: socket.socket, sink: socket.socket) -> None:
    """Copy what arrives until its end, and tell the other side."""
    with contextlib.suppress(OSError):
        while data := source.recv(SIZE):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
