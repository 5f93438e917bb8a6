"""A network namespace without a way out, in which this process and what it starts then run."""

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["alone"]

NEW_NETWORK = 0x40000000
"""CLONE_NEWNET of unshare(2)."""


@contextmanager
def alone() -> Iterator[None]:
    """Leave this machine's network until the block ends; there is the loopback and nothing else.

    The calling thread moves, and with it every process and thread that it starts. Needs root.

    Raises
    ------
    OSError
        When the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _checked(libc.unshare(NEW_NETWORK))
        try:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            yield
        finally:
            _checked(libc.setns(before, NEW_NETWORK))
    finally:
        os.close(before)


def _checked(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
