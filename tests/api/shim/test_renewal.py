"""Renewal of a certificate under the real Caddy: open connections are unaffected.

The files are laid out as by `guest certificate`; tests/cluster tests both together.
"""

import contextlib
import http.client
import ssl
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from cloister_api.certificates.authority import CertificateAuthority
from cloister_api.certificates.request import read_request
from cloister_clients.clock import utc_now
from cloister_operator.enclave.sidecars import certificate_folder
from tests.support.builders.signing_requests import new_key, signing_request
from tests.support.servers.shim import HOSTNAME, RunningShim, running_shim
from tests.support.waiting import until_sync


@dataclass
class Store:
    """The certificate storage of an enclave's sidecar."""

    folder: Path
    """Its directory."""

    def __post_init__(self) -> None:
        """Create the authority, the key and the folders that the shim reads."""
        self.folder.mkdir()
        self.authority = CertificateAuthority.create(
            self.folder / "ca.pem", self.folder / "ca.key", name="test", now=utc_now()
        )
        self.key = new_key()
        (self.folder / "tls.key").write_bytes(
            self.key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        place = Path(certificate_folder(self.storage)) / HOSTNAME
        place.mkdir(parents=True)
        (place / f"{HOSTNAME}.crt").symlink_to(self.folder / "tls.crt")
        (place / f"{HOSTNAME}.key").symlink_to(self.folder / "tls.key")
        (place / f"{HOSTNAME}.json").write_text(f'{{"sans": ["{HOSTNAME}"], "issuer_data": null}}')

    @property
    def storage(self) -> str:
        """Root of the storage."""
        return str(self.folder / "shim")

    def renew(self, *, ago: float, lifetime: float) -> int:
        """Store a certificate that was signed a while ago; return its serial number."""
        request = read_request(signing_request(HOSTNAME, key=self.key))
        signed = self.authority.sign(
            request, timedelta(seconds=lifetime), utc_now() - timedelta(seconds=ago)
        )
        new = self.folder / "tls.crt.new"
        new.write_text(signed.chain)
        new.replace(self.folder / "tls.crt")
        return x509.load_pem_x509_certificate(signed.chain.encode()).serial_number


@pytest.fixture
def store() -> Iterator[Store]:
    with tempfile.TemporaryDirectory(prefix="store") as folder:
        yield Store(Path(folder) / "certificate")


def serial_of(secure: ssl.SSLSocket) -> int:
    der = secure.getpeercert(binary_form=True)
    assert der is not None
    return x509.load_der_x509_certificate(der).serial_number


def shown(shim: RunningShim) -> int:
    with contextlib.closing(shim.connect()) as secure:
        return serial_of(secure)


def send(secure: ssl.SSLSocket, target: str, *headers: str) -> None:
    lines = (f"GET {target} HTTP/1.1", f"Host: {HOSTNAME}", *headers, "", "")
    secure.sendall("\r\n".join(lines).encode())


def read_until(secure: ssl.SSLSocket, words: bytes) -> bytes:
    seen = b""
    while words not in seen:
        piece = secure.recv(4096)
        assert piece, seen
        seen += piece
    return seen


def test_a_certificate_renewal_keeps_open_connections(store: Store) -> None:
    # Half of 200 s lies before the signing: 15 s from now less than 0.3 of 300 s are left.
    first = store.renew(ago=95, lifetime=200)
    with (
        tempfile.TemporaryDirectory(prefix="shim") as folder,
        running_shim(Path(folder), storage=store.storage) as shim,
        contextlib.closing(shim.connect()) as stream,
        contextlib.closing(shim.connect()) as socket,
        contextlib.closing(shim.connect()) as kept,
    ):
        assert serial_of(stream) == serial_of(socket) == serial_of(kept) == first
        send(stream, "/stream")
        read_until(stream, b"data: first")
        upgrade = ("Sec-WebSocket-Key: eA==", "Sec-WebSocket-Version: 13")
        send(socket, "/ws", "Connection: Upgrade", "Upgrade: websocket", *upgrade)
        read_until(socket, b"\r\n\r\n")
        connection = http.client.HTTPConnection(HOSTNAME)
        connection.sock = kept
        connection.request("GET", "/before")
        assert connection.getresponse().read()

        second = store.renew(ago=0, lifetime=3600)
        until_sync(lambda: shown(shim) == second, within=90, what="the new certificate")

        connection.request("GET", "/after")
        assert b"/after" in connection.getresponse().read()
        socket.sendall(b"ping")
        assert socket.recv(4) == b"ping"
        shim.upstream.go_on.set()
        read_until(stream, b"data: second")


def test_without_a_certificate_no_fallback_is_served(store: Store) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="shim") as folder,
        pytest.raises(AssertionError, match="a shim not seen"),
        running_shim(Path(folder), storage=store.storage, within=5),
    ):
        pytest.fail("a handshake worked")


def test_a_restarted_shim_serves_the_same_certificate(store: Store) -> None:
    serial = store.renew(ago=0, lifetime=3600)
    for _ in range(2):
        with (
            tempfile.TemporaryDirectory(prefix="shim") as folder,
            running_shim(Path(folder), storage=store.storage) as shim,
        ):
            assert shown(shim) == serial
