"""``cloister completion``: what a real bash completes with it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = Path(sys.executable).with_name("cloister")
COMPLETE = """
source <(cloister completion bash) || exit 1
COMP_WORDS=(cloister doct); COMP_CWORD=1
_cloister_completion cloister
echo "${COMPREPLY[@]}"
"""


def test_bash_completes_a_command() -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is missing: apt-get install bash")
    done = subprocess.run(
        [bash, "-c", COMPLETE],
        env={**os.environ, "PATH": f"{COMMAND.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("doctor\n", 0), done.stderr


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_there_is_a_script_for_other_shells(shell: str) -> None:
    done = subprocess.run(
        [COMMAND, "completion", shell], capture_output=True, text=True, timeout=120, check=False
    )
    assert "_CLOISTER_COMPLETE" in done.stdout
