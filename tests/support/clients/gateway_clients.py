"""Clients that send requests through the gateway continuously, and record failures."""

import contextlib
import http.client
import socket
import ssl
import threading
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime

from typing_extensions import override

from cloister_clients.clock import utc_now
from dev.demo.https_client import Page, fetch_page

__all__ = ["GatewayClient", "KeepAliveClient"]


@dataclass
class GatewayClient:
    """A client that opens a connection for each request, in a thread of its own."""

    host: str
    """Host name of its requests."""
    address: tuple[str, int]
    """Address and port of the gateway."""
    pages: Counter[str] = field(default_factory=Counter)
    """Page -> number of its responses."""
    certificates: set[tuple[tuple[str, ...], bytes]] = field(default_factory=set)
    """Host names and key of each certificate that was presented."""
    failures: list[str] = field(default_factory=list)
    """Time and error of each failed request."""
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Finish the current request, and stop the thread."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(30)

    def fetch(self) -> str:
        """Send one request and return the page.

        Raises
        ------
        OSError
            When there is no response.
        http.client.HTTPException
            When the connection is closed before the response.
        """
        page: Page = fetch_page(*self.address, self.host, "/")
        self.certificates.add((page.certificate_names, page.key))
        return page.body.strip() if page.status == 200 else f"status {page.status}: {page.body}"

    def _run(self) -> None:
        while not self._over.wait(0.02):
            began = utc_now()
            try:
                page = self.fetch()
            except (OSError, http.client.HTTPException) as error:
                self._fail(began, repr(error))
                continue
            self.pages[page] += 1
            if page.startswith("status"):
                self._fail(began, page)

    def _fail(self, began: datetime, what: str) -> None:
        self.failures.append(f"{began:%H:%M:%S.%f} {what}")


@dataclass
class KeepAliveClient(GatewayClient):
    """A client with a persistent connection, as browsers and libraries have.

    A connection that the server closed between two requests is reopened, once (RFC 9112, section
    9.3.1: a client may retry idempotent requests).
    """

    opened: int = 0
    """Number of connections that it opened."""
    _connection: http.client.HTTPConnection | None = None

    @override
    def end(self) -> None:
        """Finish the current request, and stop the thread."""
        super().end()
        if self._connection is not None:
            self._connection.close()

    @override
    def fetch(self) -> str:
        """Send one request and return the page."""
        if self._connection is not None:
            try:
                return self._send(self._connection)
            except (ConnectionError, http.client.RemoteDisconnected, ssl.SSLEOFError):
                self._connection.close()
                self._connection = None
        self._connection = self._open()
        return self._send(self._connection)

    def _open(self) -> http.client.HTTPConnection:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        connection = http.client.HTTPConnection(self.host)
        with contextlib.ExitStack() as failing:
            plain = socket.create_connection(self.address, timeout=10)
            failing.callback(plain.close)
            connection.sock = context.wrap_socket(plain, server_hostname=self.host)
            failing.pop_all()
        # Only `fetch` reopens connections, so that each is counted.
        connection.auto_open = 0
        self.opened += 1
        return connection

    def _send(self, connection: http.client.HTTPConnection) -> str:
        connection.request("GET", "/", headers={"Host": self.host})
        response = connection.getresponse()
        body = response.read().decode()
        if response.will_close:
            connection.close()
            self._connection = None
        return body.strip() if response.status == 200 else f"status {response.status}: {body}"
