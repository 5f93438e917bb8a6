"""A real ACME authority (Pebble), authoritative name server (Knot DNS) and resolver (Unbound).

Pebble queries the resolver for challenges, the resolver the name server, which accepts dynamic
updates with TSIG. A CNAME from one zone into another is followed by the resolver, as on the
internet.
"""

import base64
import contextlib
import json
import os
import secrets
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import dns.exception
import dns.message
import dns.query
import dns.rcode
import dns.tsig
import dns.update
import httpx

from dev.cluster.binaries import binary
from dev.cluster.processes import Progress
from dev.cluster.requirements import install_packages
from tests.support.builders.certificates import certificate
from tests.support.ports import free_port
from tests.support.waiting import until_sync

__all__ = ["AcmeNameServer", "Pebble", "name_server", "pebble", "resolver"]

KEY_NAME = "updates"


@dataclass
class AcmeNameServer:
    """Knot DNS with zones that accept updates."""

    folder: Path
    """Its files."""
    port: int
    """Port on the loopback."""
    zones: Sequence[str]
    """Its zones."""
    secret: str = field(repr=False)
    """Secret of the key, base64."""
    process: subprocess.Popen[bytes] | None = None
    """The server while it runs."""

    @property
    def address(self) -> str:
        """Address and port."""
        return f"127.0.0.1:{self.port}"

    @property
    def key_file(self) -> Path:
        """File with the secret."""
        return self.folder / "key"

    def start(self) -> None:
        """Start it, and wait until it responds."""
        log = (self.folder / "knot.log").open("ab")
        with log:
            self.process = subprocess.Popen(
                [program("knotd"), "-c", str(self.folder / "knot.conf")],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        until_sync(lambda: self.texts(self.zones[0]) is not None, what="a name server")

    def stop(self) -> None:
        """Stop it; idempotent."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(60)
            self.process = None

    def texts(self, name: str) -> list[str] | None:
        """Return the TXT records of a name; None = no response."""
        return texts(self.port, name)

    def add(self, zone: str, name: str, kind: str, value: str) -> None:
        """Add a record, as the owner of the zone does."""
        update = dns.update.UpdateMessage(zone, keyring={dns.name.from_text(KEY_NAME): self._key()})
        update.add(dns.name.from_text(name), 1, kind, value)
        response = dns.query.tcp(update, "127.0.0.1", port=self.port, timeout=5)
        assert response.rcode() == dns.rcode.NOERROR, response

    def _key(self) -> dns.tsig.Key:
        name = dns.name.from_text(KEY_NAME)
        return dns.tsig.Key(name, base64.b64decode(self.secret), dns.tsig.HMAC_SHA256)


def program(name: str) -> str:
    """Return the path of a Debian program; install it when it is missing and that is allowed."""
    install_packages(["dns"], Progress())
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    assert found is not None
    return found


@contextlib.contextmanager
def resolver(folder: Path, names: AcmeNameServer) -> Iterator[str]:
    """Run a resolver for a name server's zones, without cache; yield its address."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    lines = [
        "server:",
        "  interface: 127.0.0.1",
        f"  port: {port}",
        f'  directory: "{folder}"',
        '  chroot: ""',
        '  username: ""',
        '  pidfile: ""',
        "  use-syslog: no",
        "  do-not-query-localhost: no",
        '  module-config: "iterator"',
        '  local-zone: "test." nodefault',
        "remote-control:",
        "  control-enable: no",
    ]
    for zone in names.zones:
        lines += ["stub-zone:", f"  name: {zone}", f"  stub-addr: 127.0.0.1@{names.port}"]
        lines += ["  stub-no-cache: yes"]
    (folder / "unbound.conf").write_text("\n".join(lines) + "\n")
    with (folder / "unbound.log").open("wb") as log:
        process = subprocess.Popen(
            [program("unbound"), "-d", "-c", str(folder / "unbound.conf")],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        until_sync(lambda: texts(port, names.zones[0]) is not None, what="a resolver")
        yield f"127.0.0.1:{port}"
    except BaseException:
        sys.stderr.write((folder / "unbound.log").read_text()[-2000:])
        raise
    finally:
        process.terminate()
        process.wait(60)


def texts(port: int, name: str) -> list[str] | None:
    """Return the TXT records of a name from a server; None = no response."""
    try:
        query = dns.message.make_query(name, "TXT")
        response = dns.query.tcp(query, "127.0.0.1", port=port, timeout=5)
    except (OSError, EOFError, dns.exception.Timeout):
        return None
    return [
        b"".join(data.strings).decode()
        for rrset in response.answer
        for data in rrset
        if hasattr(data, "strings")
    ]


@contextlib.contextmanager
def name_server(folder: Path, *zones: str) -> Iterator[AcmeNameServer]:
    """Run a name server with empty zones."""
    folder.mkdir(parents=True, exist_ok=True)
    secret = base64.b64encode(secrets.token_bytes(32)).decode()
    server = AcmeNameServer(folder, free_port(), zones, secret)
    server.key_file.write_text(secret + "\n")
    parts = [
        f"server:\n  rundir: {folder}\n  listen: 127.0.0.1@{server.port}\n",
        f"database:\n  storage: {folder}\n",
        f"key:\n- id: {KEY_NAME}\n  algorithm: hmac-sha256\n  secret: {secret}\n",
        f"acl:\n- id: updates\n  action: update\n  key: {KEY_NAME}\nzone:\n",
    ]
    for zone in zones:
        file = folder / f"{zone}.zone"
        file.write_text(
            f"{zone}. 1 SOA ns.{zone}. hostmaster.{zone}. 1 3600 600 86400 1\n"
            f"{zone}. 1 NS ns.{zone}.\nns.{zone}. 1 A 127.0.0.1\n"
        )
        parts.append(
            f"- domain: {zone}\n  storage: {folder}\n  file: {file.name}\n  acl: updates\n"
        )
    (folder / "knot.conf").write_text("".join(parts))
    server.start()
    try:
        yield server
    except BaseException:
        sys.stderr.write((folder / "knot.log").read_text()[-2000:])
        raise
    finally:
        server.stop()


@dataclass
class Pebble:
    """An ACME authority."""

    folder: Path
    """Its files."""
    port: int
    """Port on the loopback."""
    management: int
    """Port of its management interface."""
    resolver: str
    """Address of the resolver that it queries."""
    process: subprocess.Popen[bytes] | None = None
    """The server while it runs."""

    @property
    def directory(self) -> str:
        """Address of its directory."""
        return f"https://127.0.0.1:{self.port}/dir"

    @property
    def ca_bundle(self) -> Path:
        """Certificate of its HTTPS."""
        return self.folder / "certificate.pem"

    @property
    def log(self) -> Path:
        """Its log."""
        return self.folder / "pebble.log"

    def start(self) -> None:
        """Start it, and wait until it responds."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    str(binary("pebble")),
                    *("-config", str(self.folder / "pebble.json")),
                    *("-strict", "-dnsserver", self.resolver),
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PEBBLE_VA_NOSLEEP": "1"},
            )
        until_sync(lambda: self._answers("/dir", self.port), what="Pebble")

    def stop(self) -> None:
        """Stop it; idempotent."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(60)
            self.process = None

    def authorities(self) -> list[str]:
        """Return root and intermediate, PEM."""
        return [
            self._get(f"/{kind}/0", self.management).text for kind in ("roots", "intermediates")
        ]

    def _answers(self, path: str, port: int) -> bool:
        with contextlib.suppress(httpx.TransportError):
            return self._get(path, port).status_code == 200
        return False

    def _get(self, path: str, port: int) -> httpx.Response:
        context = ssl.create_default_context(cafile=str(self.ca_bundle))
        with httpx.Client(verify=context, trust_env=False, timeout=30) as client:
            return client.get(f"https://127.0.0.1:{port}{path}")


@contextlib.contextmanager
def pebble(folder: Path, asks: str) -> Iterator[Pebble]:
    """Run an authority that uses a resolver."""
    shown = certificate(folder)
    server = Pebble(folder, free_port(), free_port(), asks)
    settings = {
        "listenAddress": f"127.0.0.1:{server.port}",
        "managementListenAddress": f"127.0.0.1:{server.management}",
        "certificate": str(shown.file),
        "privateKey": str(shown.key_file),
        "httpPort": 5002,
        "tlsPort": 5001,
        "ocspResponderURL": "",
        "externalAccountBindingRequired": False,
    }
    (folder / "pebble.json").write_text(json.dumps({"pebble": settings}))
    server.start()
    try:
        yield server
    except BaseException:
        sys.stderr.write(server.log.read_text()[-4000:])
        raise
    finally:
        server.stop()
