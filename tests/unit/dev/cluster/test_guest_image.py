"""The image of the guest: the program alone, with a digest that depends only on it."""

import os
from pathlib import Path

from dev.cluster.images import guest_image


def test_the_same_program_gives_the_same_layer(tmp_path: Path) -> None:
    layers = set()
    for number in range(2):
        program = tmp_path / f"guest-{number}"
        program.write_bytes(b"program")
        program.chmod(0o755)
        os.utime(program, (number, number))
        layers.add(guest_image(program).layer())
    assert len(layers) == 1
