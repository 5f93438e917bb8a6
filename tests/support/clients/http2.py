"""One request over HTTP/2, event by event, to observe details that client libraries hide."""

import socket
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, ResponseReceived, StreamEnded, StreamReset

__all__ = ["Http2Request"]


class Http2Request:
    """A request on a connection of its own, which is closed when the block ends.

    Parameters
    ----------
    connection
        A connection on which HTTP/2 was agreed.
    """

    def __init__(
        self, connection: socket.socket, headers: Iterable[tuple[str, str]], *, ends: bool = True
    ) -> None:
        self._socket = connection
        self._h2 = H2Connection(H2Configuration(header_encoding="utf-8"))
        self._h2.initiate_connection()
        self._stream = self._h2.get_next_available_stream_id()
        self._h2.send_headers(self._stream, list(headers), end_stream=ends)
        self._flush()
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.ended = False
        self.reset = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def send(self, data: bytes, *, ends: bool = False) -> None:
        """Send a piece of the body, as fast as the server's window opens."""
        view = memoryview(data)
        while view or ends:
            room = min(
                self._h2.local_flow_control_window(self._stream),
                self._h2.max_outbound_frame_size,
                len(view),
            )
            if view and not room:
                self._read()
                continue
            last = ends and room == len(view)
            self._h2.send_data(self._stream, view[:room].tobytes(), end_stream=last)
            self._flush()
            view = view[room:]
            if last:
                return

    def read_until(self, mark: bytes | None = None) -> bytes:
        """Read until the body contains a mark, or (None) until its end; return the body so far."""
        while not self.ended and (mark is None or mark not in self.body):
            self._read()
        assert mark is None or mark in self.body, self.body
        return self.body

    def _read(self) -> None:
        data = self._socket.recv(1 << 16)
        assert data, "the connection was closed"
        for event in self._h2.receive_data(data):
            if isinstance(event, ResponseReceived):
                self.headers = {_text(name): _text(value) for name, value in event.headers}
                self.status = int(self.headers[":status"])
            elif isinstance(event, DataReceived):
                self.body += event.data
                self._h2.acknowledge_received_data(event.flow_controlled_length, self._stream)
            elif isinstance(event, StreamEnded | StreamReset):
                self.ended = True
                self.reset = isinstance(event, StreamReset)
        self._flush()

    def _flush(self) -> None:
        self._socket.sendall(self._h2.data_to_send())


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode()
