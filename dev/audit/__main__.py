"""``python -m dev.audit --uv PATH``, the command of ``make audit``."""

import sys
from pathlib import Path

import click

from dev.audit import audit_go, audit_python
from dev.audit.goprograms import DATABASE, PROGRAMS


@click.command()
@click.option("--uv", required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--go-database",
    default=DATABASE,
    show_default=True,
    envvar="GOVULNDB",
    help="Go vulnerability database; a copy can be a file:// address.",
)
def main(uv: Path, go_database: str) -> None:
    """Look for known vulnerabilities in what is locked.

    Exits with 2 where there are some, with 1 where a database could not be asked, else with 0.
    """
    outcomes = [audit_python(uv), *(audit_go(program, go_database) for program in PROGRAMS)]
    for outcome in outcomes:
        print(outcome.text())
    sys.exit(max(outcome.verdict for outcome in outcomes))


if __name__ == "__main__":
    main()
