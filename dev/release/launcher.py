#!/usr/bin/env python3
"""``kubectl cloister``: cloister's command line, as a plugin of kubectl.

At its first start it installs the locked packages that lie beside it into an environment of its
own, by their hashes, from where this machine's pip takes packages. It needs Python 3.11 or newer.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
LOCK = FOLDER / "requirements.txt"
START = "from cloister_cli.main import kubectl_plugin; kubectl_plugin()"


def main() -> None:
    """Install what is missing, and become the program."""
    if sys.version_info < (3, 11):  # noqa: UP036 - it is started by whatever python3 there is
        sys.exit("kubectl cloister needs Python 3.11 or newer as python3")
    key = hashlib.sha256(LOCK.read_bytes() + sys.version.encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    place = cache / "cloister" / "plugin" / key
    if not place.exists():
        install(place)
    python = place / "bin" / "python"
    os.execv(python, [str(python), "-I", "-c", START, *sys.argv[1:]])


def install(place: Path) -> None:
    """Make the environment, all of it or nothing."""
    print(f"kubectl cloister: installing its packages once, into {place}", file=sys.stderr)
    place.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=".making-", dir=place.parent))
    try:
        venv.create(made, with_pip=True)
        asked = ("--quiet", "--disable-pip-version-check", "--only-binary", ":all:")
        done = subprocess.run(
            [
                made / "bin" / "python",
                "-m",
                "pip",
                "install",
                *asked,
                "--require-hashes",
                "-r",
                LOCK,
            ],
            cwd=FOLDER,
            check=False,
        )
        if done.returncode != 0:
            sys.exit("kubectl cloister: its packages could not be installed; pip says why above")
        if not place.exists():
            made.rename(place)
    finally:
        shutil.rmtree(made, ignore_errors=True)


if __name__ == "__main__":
    main()
