"""What is mounted into a container: scratch spaces, file systems in memory, devices.

Sources: spec 42.14 to 42.16, 42.33; tmpfs(5).
"""

import re
from typing import Any, Final

from cloister_crds.config.limits import MAX_LIST, MAX_TMPFS
from cloister_crds.config.model import Tmpfs, Volume
from cloister_crds.config.syntax.reading import Section, Spot, show
from cloister_crds.config.syntax.scalars import ScalarKind

__all__ = [
    "VOLUME_PATTERN",
    "check_mounts",
    "is_clean_path",
    "read_devices",
    "read_tmpfs",
    "read_volumes",
]

SOURCE_NAME: Final = r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,62}"
VOLUME_PATTERN: Final = rf"({SOURCE_NAME}|/[^:]+):/[^:]+(:ro)?"
"""What a volume looks like."""
SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - a path in files; nothing is opened here
"""Where shared memory is mounted."""
GUEST: Final = "/.cloister"
"""Where the guest is in every container."""
MAX_PATH: Final = 1024
"""Most characters of a path."""
KERNEL: Final = ("/proc", "/sys", "/dev")
"""What the kernel serves in every container."""
NODE: Final = (*KERNEL, "/boot", "/lib/modules")
"""Directories that only make sense on a node."""
MAX_OPTIONS: Final = 32
"""Most options of a tmpfs."""
DEVICE_RIGHTS: Final = re.compile(r"r?w?m?")
FLAGS: Final = frozenset(
    [
        "ro",
        "rw",
        "exec",
        "noexec",
        "nosuid",
        "nodev",
        "sync",
        "async",
        "atime",
        "noatime",
        "diratime",
        "nodiratime",
        "relatime",
        "norelatime",
        "strictatime",
    ]
)
"""Options of a tmpfs that have no value."""
INERT_FLAGS: Final = frozenset({"suid", "dev"})
"""Options that are accepted and do nothing."""
TMPFS_SIZE = re.compile(r"([0-9]{1,18})([kKmMgG]?|%)")
POWERS: Final = {"": 0, "k": 1, "m": 2, "g": 3}


def is_clean_path(path: str) -> bool:
    """Return whether a path is absolute and has no ``.``, ``..``, double slash or odd character."""
    if not path.startswith("/") or len(path) > MAX_PATH or not path.isprintable():
        return False
    return path == "/" or not {"", ".", ".."} & set(path[1:].split("/"))


def _lies_in(path: str, *directories: str) -> bool:
    return any(path == one or path.startswith(one + "/") for one in directories)


def _check_target(spot: Spot, path: str) -> bool:
    """Check where something is mounted."""
    service = spot.report.rules.service
    if not is_clean_path(path):
        message = "write an absolute path without `.`, `..`, `//` or a `/` at the end"
        spot.error("InvalidPath", f"{show(path)} is not a clean path: {message}")
    elif path == SHARED_MEMORY:
        spot.error("ReservedPath", f"{path} is always there: set its size with shm_size")
    elif path == "/" or _lies_in(path, *KERNEL):
        message = f"{path} belongs to the system of the container: mount it elsewhere"
        spot.error("ReservedPath", message)
    elif _lies_in(path, GUEST):
        message = f"{GUEST} holds the enclave's own program: mount it elsewhere"
        spot.error("ReservedPath", message)
    elif service is not None and _lies_in(path, f"/{service}"):
        message = f"/{service} holds the verified files of the enclave: mount it elsewhere"
        spot.error("ReservedPath", message)
    else:
        return True
    return False


def read_volumes(spot: Spot) -> tuple[Volume, ...] | None:
    """Read the scratch spaces."""
    items = spot.items(MAX_LIST, "a list such as [data:/var/data]")
    if items is None:
        return None
    volumes = [_read_volume(item) for item in items]
    return tuple(volume for volume in volumes if volume is not None)


def _read_volume(spot: Spot) -> Volume | None:
    text = spot.text("source:/path or source:/path:ro")
    if text is None:
        return None
    source, colon, rest = text.partition(":")
    path, second, option = rest.partition(":")
    if not colon or not source or not path:
        message = f"is {show(text)}: write source:/path or source:/path:ro"
        spot.error("InvalidVolume", message)
        return None
    right = _check_source(spot, source)
    if second and option != "ro":
        message = (
            f"{show(option)} is not an option of a volume: write ro, or nothing to allow writing"
        )
        spot.error("InvalidVolume", message)
        right = False
    if not _check_target(spot, path) or not right:
        return None
    return Volume(source=source, path=path, read_only=bool(second))


def _check_source(spot: Spot, source: str) -> bool:
    """Check what names the space."""
    if not source.startswith("/"):
        if re.fullmatch(SOURCE_NAME, source):
            return True
        message = "write a name of letters, digits, dots, hyphens and underscores"
        spot.error("InvalidVolume", f"{show(source)} names no space: {message}")
    elif not is_clean_path(source):
        spot.error("InvalidPath", f"{show(source)} is not a clean path: write a name instead")
    elif source == "/" or source.endswith(".sock") or _lies_in(source, *NODE):
        message = f"{show(source)} is of the node, which no container ever sees: remove it"
        spot.error("NodePathNotAllowed", message)
    else:
        message = f"{show(source)} is not a directory of the node: it names scratch space of the "
        spot.warn("ScratchSpace", message + "enclave, which is empty at the start")
        return True
    return False


def read_devices(spot: Spot) -> tuple[str, ...] | None:
    """Read the devices; whether the Host has them is seen when one is chosen."""
    items = spot.items(MAX_LIST, "a list of devices such as [/dev/fuse]")
    if items is None:
        return None
    devices = [_read_device(item) for item in items]
    if items:
        spot.strict("requests devices of the Host")
    return tuple(device for device in devices if device is not None)


def _read_device(spot: Spot) -> str | None:
    text = spot.text("a device such as /dev/fuse")
    if text is None:
        return None
    source, *more = text.split(":")
    target = more[0] if more else source
    rights = more[1] if len(more) > 1 else "rwm"
    paths_right = all(is_clean_path(p) and p.startswith("/dev/") for p in (source, target))
    if paths_right and rights and DEVICE_RIGHTS.fullmatch(rights) and len(more) <= len("ab"):
        return text
    message = "write a path below /dev that the Host offers, such as /dev/fuse"
    spot.error("InvalidDevice", f"{show(text)} is not a device: {message}")
    return None


def read_tmpfs(spot: Spot) -> tuple[Tmpfs, ...] | None:
    """Read the file systems in memory."""
    pairs = spot.entries(MAX_TMPFS, "a map such as {/tmp: size=100m}")
    if pairs is None:
        return None
    mounts = []
    for key, value in pairs:
        path = key.raw
        right = _check_target(key, path)
        options = _read_options(value)
        if right and options is not None:
            mounts.append(Tmpfs.model_validate({"path": path, **options}))
    return tuple(mounts)


def _read_options(spot: Spot) -> dict[str, Any] | None:
    """Read the options of one mount, none when it has no value."""
    nothing = spot.kind is ScalarKind.NULL
    text = "" if nothing else spot.text('options such as "size=100m,mode=1777"')
    if text is None:
        return None
    if text.count(",") >= MAX_OPTIONS:
        spot.error("TooManyEntries", f"has more than {MAX_OPTIONS} options: remove some")
        return None
    read: dict[str, Any] = {"options": tuple(text.split(",")) if text else ()}
    right = True
    for option in read["options"]:
        word, equals, value = option.partition("=")
        if equals:
            right &= _read_valued(spot, word, value, read)
        elif word in FLAGS:
            read |= {"executable": word == "exec"} if word in {"exec", "noexec"} else {}
            read |= {"read_only": word == "ro"} if word in {"ro", "rw"} else {}
        elif word in INERT_FLAGS:
            message = f"{word} does nothing: every mount is nosuid and nodev here, remove it"
            spot.warn("NoEffect", message)
        else:
            message = "write size=, mode=, uid=, gid=, nr_inodes=, exec, noexec, ro or rw"
            spot.error("InvalidTmpfs", f"{show(option)} is not an option of a tmpfs: {message}")
            right = False
    return read if right else None


def _read_valued(spot: Spot, word: str, value: str, read: dict[str, Any]) -> bool:
    """Read an option that has a value."""
    number = int(value) if re.fullmatch(r"[0-9]{1,10}", value) else None
    if word == "size":
        size = _read_tmpfs_size(spot, value)
        if size is not None:
            read["size"] = size
            return True
        message = f"size={value[:20]} is not a size: write bytes, or a number with k, m, g or %"
    elif word == "mode":
        if re.fullmatch(r"[0-7]{3,5}", value) and int(value, 8) <= 0o7777:  # noqa: PLR2004 - all bits of a mode
            read["mode"] = int(value, 8)
            return True
        message = f"mode={value[:20]} is not a mode: write octal digits such as 1777"
    elif word in {"uid", "gid"}:
        if number is not None and number < 2**31:
            read[word] = number
            return True
        message = f"{word}={value[:20]} is not an id: write a number from 0 to {2**31 - 1}"
    elif word == "nr_inodes":
        if TMPFS_SIZE.fullmatch(value) and not value.endswith("%"):
            return True
        message = f"nr_inodes={value[:20]} is not a number: write one, with k, m or g if need be"
    else:
        message = f"{show(word)} is not an option of a tmpfs: write size=, mode=, uid=, gid="
    spot.error("InvalidTmpfs", message)
    return False


def _read_tmpfs_size(spot: Spot, value: str) -> int | None:
    """Read a size as the kernel does; a share is one of the enclave's memory."""
    found = TMPFS_SIZE.fullmatch(value)
    if found is None:
        return None
    number, unit = int(found[1]), found[2].lower()
    if unit == "%":
        return (spot.report.memory or 0) * number // 100
    return int(min(number * 1024 ** POWERS[unit], 2**63 - 1))


def check_mounts(container: Section) -> None:
    """Refuse two mounts at one path of a container."""
    seen: set[str] = set()
    mounts = [*container.get("volumes", ()), *container.get("tmpfs", ())]
    for mount in mounts:
        if mount.path in seen:
            key = "tmpfs" if isinstance(mount, Tmpfs) else "volumes"
            message = f"{mount.path} is a mount already: mount one thing at a path"
            container.at(key).error("DuplicateMount", message)
        seen.add(mount.path)
