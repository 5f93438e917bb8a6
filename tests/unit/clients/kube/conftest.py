"""A server on a socket that answers requests as a script says, faults of the connection included.

What it sends is what a real API server sends (recorded from one); a real one cannot be told to
break a connection in the middle of a line.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from cloister_clients.kube import KubeClient, KubeConfig
from cloister_clients.kube.transport import TransportLimits
from cloister_crds.backoff import Backoff

__all__ = ["Asked", "Connection", "Script", "client", "script"]


@dataclass(frozen=True)
class Asked:
    """A request as it came."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass
class Connection:
    """What a step of the script answers with."""

    writer: asyncio.StreamWriter
    asked: Asked

    async def reply(self, status: int, body: Any, **headers: str) -> None:
        """Respond with JSON."""
        content = json.dumps(body).encode()
        named = {k.replace("_", "-"): v for k, v in headers.items()}
        lines = [f"{name}: {value}" for name, value in named.items()]
        lines += [f"content-length: {len(content)}", "content-type: application/json"]
        head = f"HTTP/1.1 {status} X\r\n" + "\r\n".join(lines) + "\r\n\r\n"
        self.writer.write(head.encode() + content)
        await self.writer.drain()

    async def refuse(self, code: int, reason: str, **headers: str) -> None:
        """Respond with a Status."""
        body = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "message": f"{reason} of the test",
            "reason": reason,
            "code": code,
        }
        await self.reply(code, body, **headers)

    async def begin_stream(self) -> None:
        """Respond with a body in chunks that goes on."""
        head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked"
        self.writer.write((head + "\r\n\r\n").encode())
        await self.writer.drain()

    async def chunk(self, data: bytes) -> None:
        """Send a part of the body; parts need not end where lines do."""
        self.writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        await self.writer.drain()

    async def event(self, kind: str, item: dict[str, Any]) -> None:
        """Send an event of a watch."""
        await self.chunk(json.dumps({"type": kind, "object": item}).encode() + b"\n")

    async def end_stream(self) -> None:
        """End the body."""
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()

    def drop(self) -> None:
        """Break the connection."""
        self.writer.transport.abort()


Step = Callable[[Connection], Awaitable[None]]


@dataclass
class Script:
    """What the server does, request by request; the last step answers all further ones."""

    steps: list[Step] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    port: int = 0
    failures: list[Exception] = field(default_factory=list)

    def then(self, step: Step) -> Step:
        """Add a step."""
        self.steps.append(step)
        return step

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Return the requests of one connection."""
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                while not writer.is_closing():
                    asked = await read_request(reader)
                    step = self.steps[min(len(self.asked), len(self.steps) - 1)]
                    self.asked.append(asked)
                    await step(Connection(writer, asked))
        finally:
            writer.close()


async def read_request(reader: asyncio.StreamReader) -> Asked:
    """Read one request."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    method, target, _ = head[0].split(" ")
    headers = {
        name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])
    }
    length = int(headers.get("content-length", "0"))
    content = await reader.readexactly(length) if length else b""
    parts = urlsplit(target)
    body = json.loads(content) if content else None
    return Asked(method, parts.path, dict(parse_qsl(parts.query)), headers, body)


@pytest.fixture
async def script() -> AsyncIterator[Script]:
    made = Script()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()


@pytest.fixture
async def client(script: Script) -> AsyncIterator[KubeClient]:
    config = KubeConfig(server=f"http://127.0.0.1:{script.port}")
    limits = TransportLimits(timeout=5, attempts=3, backoff=Backoff(0.001, 0.01))
    async with KubeClient(config, field_manager="tests", user_agent="tests", limits=limits) as made:
        yield made
