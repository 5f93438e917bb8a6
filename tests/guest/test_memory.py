"""What the guest's file and its start cost each process of each enclave."""

import re
import subprocess

from dev.cluster.guest import guest_binary

FILE = 13 << 20
"""Bytes: the file is memory of each enclave, in a volume of its Pod."""
START = 256 << 10
"""Bytes that packages may allocate before `main`, in every part, launcher and checker alike."""
TRACED = re.compile(r"^init (\S+) @.*, (\d+) bytes, \d+ allocs$", re.MULTILINE)


def test_the_file_is_small() -> None:
    assert guest_binary().stat().st_size <= FILE


def test_a_start_allocates_little_before_it_knows_what_it_is() -> None:
    done = subprocess.run(
        [guest_binary()],
        env={"GODEBUG": "inittrace=1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "no command given" in done.stderr
    allocated = {package: int(size) for package, size in TRACED.findall(done.stderr)}
    assert "runtime" in allocated
    assert sum(allocated.values()) <= START, sorted(allocated.items(), key=lambda each: -each[1])
