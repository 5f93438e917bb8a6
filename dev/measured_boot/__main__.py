"""``python -m dev.measured_boot``: boot a machine with a measured boot and verify it."""

import shlex
import sys
import tempfile
import time
from pathlib import Path

import click

from dev.cluster import LocalClusterError, Progress
from dev.cluster.requirements import install_packages
from dev.measured_boot.documents import Documents
from dev.measured_boot.errors import MachineError
from dev.measured_boot.workshop import ATTESTATION, MEASURED_BOOT, Workshop

__all__ = ["main"]


@click.command()
@click.option("--keep", is_flag=True, help="Leave the machine running until Ctrl-C.")
def main(*, keep: bool) -> None:
    """Boot a virtual machine whose TPM measures it, and verify what the TPM quotes.

    It is not confidential: whoever runs it owns the TPM.
    """
    try:
        install_packages(["measured-boot"], Progress())
        with tempfile.TemporaryDirectory(prefix="boot-") as folder:
            code = _run(Path(folder), keep=keep)
    except (LocalClusterError, MachineError) as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
    sys.exit(code)


def _run(folder: Path, *, keep: bool) -> int:
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
        if keep:
            click.echo(f"It runs at https://127.0.0.1:{machine.port} until Ctrl-C.")
            try:
                while True:
                    time.sleep(1)
            except KeyboardInterrupt:
                click.echo("Switching it off.")
    return 0 if code == MEASURED_BOOT else 1


if __name__ == "__main__":
    main()
