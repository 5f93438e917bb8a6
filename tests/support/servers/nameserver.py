"""A real authoritative name server (Knot DNS) on port 53 of a loopback address of its own.

It is the only server of one zone. Records are changed as by the owner of the zone, with
dynamic updates, which it accepts from this machine.
"""

import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import dns.exception
import dns.message
import dns.name
import dns.query
import dns.rcode
import dns.update

from dev.cluster.processes import Progress
from dev.cluster.requirements import install_packages
from tests.support.waiting import until_sync

__all__ = ["NameServer", "serve_zone"]

SECONDS = 5.0
"""Timeout of a query."""

_CONFIGURATION = """\
server:
    rundir: "{folder}"
    listen: {address}@53
database:
    storage: "{folder}"
log:
  - target: stderr
    any: warning
acl:
  - id: own
    address: 127.0.0.0/8
    action: update
zone:
  - domain: {zone}
    file: "{folder}/zone"
    journal-content: changes
    acl: own
"""
_ZONE = """\
$ORIGIN {zone}.
$TTL 3600
@ SOA ns hostmaster 1 3600 600 86400 60
@ NS ns
ns A {address}
"""


@dataclass
class NameServer:
    """The server of one zone."""

    folder: Path
    """Its files."""
    zone: str
    """Its zone, without the last dot."""
    address: str
    """Its address, with port 53."""
    process: subprocess.Popen[bytes] | None = None
    """The server while it runs."""

    def start(self) -> None:
        """Start it, and wait until it responds."""
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [_program(), "-c", str(self.folder / "configuration")],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        until_sync(self._answers, what="a name server")

    def stop(self) -> None:
        """Stop it; idempotent."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(20)
            self.process = None

    def put(self, name: str, kind: str, value: str) -> None:
        """Replace all records of a kind at a name by one.

        Parameters
        ----------
        kind
            Such as TXT.
        """
        update = dns.update.UpdateMessage(self.zone)
        update.replace(dns.name.from_text(name), 3600, kind, value)
        self._send(update)

    def drop(self, name: str, kind: str) -> None:
        """Delete all records of a kind at a name."""
        update = dns.update.UpdateMessage(self.zone)
        update.delete(dns.name.from_text(name), kind)
        self._send(update)

    def _send(self, update: dns.update.UpdateMessage) -> None:
        response = dns.query.tcp(update, self.address, timeout=SECONDS)
        assert response.rcode() == dns.rcode.NOERROR, response

    def _answers(self) -> bool:
        try:
            response = dns.query.udp(
                dns.message.make_query(self.zone, "SOA"), self.address, timeout=SECONDS
            )
        except (dns.exception.DNSException, OSError):
            return False
        return bool(response.answer)


def _program() -> str:
    """Return the path of Knot DNS; install it when it is missing and that is allowed."""
    if shutil.which("knotd") is None:
        install_packages(["dns"], Progress(stream=sys.stderr))
    found = shutil.which("knotd", path="/usr/sbin:/usr/bin:/sbin:/bin")
    assert found is not None, "knotd is not installed"
    return found


@contextmanager
def serve_zone(folder: Path, zone: str) -> Iterator[NameServer]:
    """Serve an empty zone; needs root, for port 53."""
    # A random loopback address keeps servers of concurrent tests apart.
    address = (
        f"127.{100 + secrets.randbelow(100)}.{secrets.randbelow(256)}.{1 + secrets.randbelow(254)}"
    )
    folder.mkdir(parents=True, exist_ok=True)
    values = {"folder": folder, "zone": zone, "address": address}
    (folder / "configuration").write_text(_CONFIGURATION.format(**values))
    (folder / "zone").write_text(_ZONE.format(**values))
    server = NameServer(folder, zone, address)
    server.start()
    try:
        yield server
    except BaseException:
        sys.stderr.write((folder / "log").read_text()[-2000:])
        raise
    finally:
        server.stop()
