"""Compile Python's library and ours inside the image; runs there, by the image's own Python.

The bytecode is never compared with its source: the image's root is read-only.
"""

import py_compile
import sys
from pathlib import Path

ROOTS = ("/usr/lib/python3.13", "/usr/local/lib/python3.13/dist-packages")
TESTS = {"test", "tests", "testing"}


def main(target: Path) -> None:
    """Write the bytecode of every module below a folder, at the module's own path."""
    for root in map(Path, ROOTS):
        for source in sorted(root.rglob("*.py")):
            if TESTS.isdisjoint(source.parts):
                _compile(source, target)


def _compile(source: Path, target: Path) -> None:
    name = f"{source.stem}.{sys.implementation.cache_tag}.pyc"
    py_compile.compile(
        str(source),
        cfile=str(target.joinpath(*source.parent.parts[1:], "__pycache__", name)),
        doraise=True,
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
