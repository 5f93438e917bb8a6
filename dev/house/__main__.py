"""``python -m dev.house check|generate|verify``; ``make lint`` and ``make verify`` call it."""

import argparse
import sys
from pathlib import Path

from dev.house import citations, generated, imports, layout, links, naming, pages, sources

ROOT = Path(__file__).resolve().parents[2]
"""Root of the repository."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    arguments
        Command line arguments; None = those of the process.

    Returns
    -------
    int
        0; 1 = there are findings.
    """
    parser = argparse.ArgumentParser(prog="python -m dev.house", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check", help="check the repository against the project's rules")
    commands.add_parser("generate", help="regenerate all generated files")
    commands.add_parser("verify", help="fail when a generated file is out of date")
    command = parser.parse_args(arguments).command
    if command == "generate":
        for path in generated.write(ROOT):
            print(f"wrote {path.relative_to(ROOT)}")
        return 0
    if command == "verify":
        found = generated.differences(ROOT)
    else:
        found = [
            *layout.check(ROOT),
            *sources.check(ROOT),
            *naming.check(ROOT),
            *imports.check(ROOT),
            *citations.check(ROOT),
            *links.check(ROOT),
            *pages.check(ROOT),
        ]
    for finding in found:
        print(finding)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
