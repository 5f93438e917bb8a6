"""Starts the programs that images are made with."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from dev.images.errors import ImageError

SHOWN = 2000
"""Characters of what a failed program said that the error shows."""


def run(
    command: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> bytes:
    """Run a program, and return its standard output.

    Parameters
    ----------
    environment
        Its whole environment; None = that of this process.

    Raises
    ------
    ImageError
        When it fails, with the end of what it said.
    """
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).decode("utf-8", "replace").strip()
        raise ImageError(f"{_named(command)} failed: {said[-SHOWN:]}")
    return done.stdout


def _named(command: Sequence[str | Path]) -> str:
    """Return the program that a user looks for."""
    words = [Path(word).name for word in command]
    return words[2] if words[0] == "unshare" else words[0]
