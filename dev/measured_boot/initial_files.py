"""The machine's initial file system, the same bytes from the same files."""

from collections.abc import Iterator
from pathlib import Path

from dev.cluster.guest import guest_binary
from dev.measured_boot.kernel import MODULES, Kernel

__all__ = ["initial_files"]

_BUSYBOX = Path("/bin/busybox")
_PAGE = b"from inside a machine with a measured boot\n"
_DIRECTORY = 0o40755
_FILE = 0o100644
_PROGRAM = 0o100755
_DEVICE = 0o20600
_CONSOLE = (5, 1)


def initial_files(kernel: Kernel) -> bytes:
    """Return the file system as the kernel unpacks it (newc, buffer-format.rst): no compression.

    Parameters
    ----------
    kernel
        The kernel whose modules are in it.
    """
    archive = b""
    for number, (name, mode, content) in enumerate(_entries(kernel), start=1):
        device = _CONSOLE if mode == _DEVICE else (0, 0)
        archive += _entry(number, name, mode, content, device)
    return archive + _entry(0, "TRAILER!!!", 0, b"", (0, 0))


def _entries(kernel: Kernel) -> Iterator[tuple[str, int, bytes]]:
    """Yield name, mode and content."""
    directories = ("dev", "proc", "sys", "run", "tmp", "etc", "modules", ".cloister", "container")
    below = ("bin", "etc", "www", "dev", "proc", "cloister", ".cloister")
    for name in (*directories, *(f"container/{each}" for each in below)):
        yield name, _DIRECTORY, b""
    yield "dev/console", _DEVICE, b""
    names = [Path(each).name for each in MODULES]
    yield "modules/order", _FILE, "".join(f"{each}\n" for each in names).encode()
    for path in MODULES:
        yield f"modules/{Path(path).name}", _FILE, (kernel.modules / path).read_bytes()
    yield "init", _PROGRAM, guest_binary("measured-machine", "./cmd/measured-machine").read_bytes()
    yield "guest", _PROGRAM, guest_binary().read_bytes()
    yield "container/bin/busybox", _PROGRAM, _BUSYBOX.read_bytes()
    yield "container/etc/passwd", _FILE, b"root:x:0:0:root:/:/bin/false\n"
    yield "container/etc/group", _FILE, b"root:x:0:\n"
    yield "container/www/index.html", _FILE, _PAGE


def _entry(number: int, name: str, mode: int, content: bytes, device: tuple[int, int]) -> bytes:
    path = name.encode() + b"\0"
    fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(path), 0)
    head = b"070701" + "".join(f"{each:08X}" for each in fields).encode() + path
    return head + b"\0" * (-len(head) % 4) + content + b"\0" * (-len(content) % 4)
