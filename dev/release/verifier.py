"""``cloister-verify`` for the machines of clients: a static program for each system."""

from pathlib import Path
from typing import Final

from dev.cluster import guest

NAME: Final = "cloister-verify"
TARGETS: Final = (
    ("linux", "amd64"),
    ("linux", "arm64"),
    ("darwin", "amd64"),
    ("darwin", "arm64"),
)
"""Go's names of the operating systems and architectures."""


def write_programs(folder: Path, version: str) -> list[Path]:
    """Build the program for each target; the same sources give the same bytes.

    Raises
    ------
    LocalClusterError
        When one cannot be built.
    """
    return [
        guest.build(
            guest.MODULE,
            folder / f"{NAME}-{version}-{system}-{architecture}",
            f"./cmd/{NAME}",
            system=system,
            architecture=architecture,
        )
        for system, architecture in TARGETS
    ]
