"""docs/audit.md: every command of the page prints what the page says.

``CLOISTER_WRITE_GOLDENS=1`` writes what they print into the page.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.programs.verifier import verifier

pytestmark = pytest.mark.skipif(shutil.which("go") is None, reason="Go is not installed")

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "audit.md"
BLOCK = re.compile(r"(?ms)^```console\n(.*?)^```$")
PROGRAMS = ("jq", "openssl", "xxd")


def commands(block: str) -> list[str]:
    """Return the commands of a block; lines of one that go on begin with ``>``."""
    found: list[str] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append(line[2:])
        elif line.startswith("> ") and found:
            found[-1] += f"\n{line[2:]}"
    return found


def printed(block: str, folder: Path) -> str:
    """Run a block's commands, and return the block as it has to be."""
    said = ""
    for command in commands(block):
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            cwd=folder,
            env={"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "LC_ALL": "C", "TZ": "UTC"},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, ""), f"{command}\n{done.stderr}"
        first, *rest = command.split("\n")
        said += "\n".join([f"$ {first}", *(f"> {line}" for line in rest)]) + "\n" + done.stdout
        said += "" if done.stdout.endswith("\n") or not done.stdout else "\n"
    return said


def test_every_command_prints_what_the_page_says(tmp_path: Path) -> None:
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    assert not missing, f"install {', '.join(missing)}"
    for path in (ROOT / "tests" / "data" / "attestation").iterdir():
        shutil.copy(path, tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "cloister-verify").symlink_to(verifier())
    text = PAGE.read_text()
    blocks = BLOCK.findall(text)
    assert len(blocks) >= 10
    wanted = BLOCK.sub(lambda found: f"```console\n{printed(found[1], tmp_path)}```", text)
    if os.environ.get("CLOISTER_WRITE_GOLDENS"):
        PAGE.write_text(wanted)
        return
    assert text == wanted
