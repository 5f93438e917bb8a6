"""``python -m dev.measured_boot``: boot a machine with a measured boot and verify it."""

import shlex
import ssl
import sys
import tempfile
import time
from pathlib import Path

import click

from dev.cluster import LocalClusterError, Progress
from dev.cluster.requirements import install_packages
from dev.measured_boot.documents import Documents
from dev.measured_boot.errors import MachineError
from dev.measured_boot.machine import Machine
from dev.measured_boot.workshop import ATTESTATION, MEASURED_BOOT, Workshop

__all__ = ["main"]


@click.command()
@click.option("--keep", is_flag=True, help="Leave the machine running until Ctrl-C.")
@click.option(
    "--record",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    help="Write the attestation document and what verifies it into this folder, for tests.",
)
def main(*, keep: bool, record: Path | None) -> None:
    """Boot a virtual machine whose TPM measures it, and verify what the TPM quotes.

    It is not confidential: whoever runs it owns the TPM.
    """
    try:
        install_packages(["measured-boot", "tpm"], Progress())
        with tempfile.TemporaryDirectory(prefix="boot-") as folder:
            code = _run(Path(folder), keep=keep, record=record)
    except (LocalClusterError, MachineError) as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
    sys.exit(code)


def _run(folder: Path, *, keep: bool, record: Path | None) -> int:
    """Return 0 when the quote is over what is expected."""
    workshop, documents = Workshop(folder), Documents.make()
    with workshop.boot(documents) as machine:
        seconds = machine.await_response(ATTESTATION)
        click.echo(f"The machine gives evidence {seconds:.0f} s after its start.")
        workshop.trust(machine)
        click.echo(f"Verify it: {shlex.join(workshop.verify_command(machine, documents.digest))}")
        code, verdict = workshop.verify(machine, documents.digest)
        for step in verdict["steps"]:
            click.echo(f"{step['result']:8} {step['step']}: {step['compared']}")
        if record is not None:
            _record(workshop, machine, record)
        if keep:
            click.echo(f"It runs at https://127.0.0.1:{machine.port} until Ctrl-C.")
            try:
                while True:
                    time.sleep(1)
            except KeyboardInterrupt:
                click.echo("Switching it off.")
    return 0 if code == MEASURED_BOOT else 1


def _record(workshop: Workshop, machine: Machine, folder: Path) -> None:
    """Write a document for a nonce of no secret, and what a verifier has to know."""
    document = machine.get(f"{ATTESTATION}?nonce={'ab' * 32}")
    pem = ssl.get_server_certificate(("127.0.0.1", machine.port))
    contents = {
        "document.json": document,
        "certificate.der": ssl.PEM_cert_to_DER_cert(pem),
        "platform.json": workshop.platform.read_bytes(),
        "authorities.pem": workshop.root.read_bytes(),
        "recorded-at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()).encode(),
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)


if __name__ == "__main__":
    main()
