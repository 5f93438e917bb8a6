"""What a container may do: capabilities, user, namespaces, security options.

Sources: spec 42.6, 42.11, 42.12, 42.18, 42.19, 42.34; capabilities(7).
"""

import re
from typing import Final

from cloister_crds.config.limits import MAX_LIST
from cloister_crds.config.model import User
from cloister_crds.config.syntax.reading import Spot, show
from cloister_crds.config.syntax.scalars import ScalarKind

__all__ = [
    "CAPABILITIES",
    "IPC_WORDS",
    "NO_NEW_PRIVILEGES",
    "USER_PATTERN",
    "read_capabilities",
    "read_ipc",
    "read_pid",
    "read_security_options",
    "read_user",
]

STRICT_CAPABILITIES: Final = ("IPC_LOCK", "NET_BIND_SERVICE", "SYS_NICE")
"""Capabilities that strict rules allow."""
FURTHER_CAPABILITIES: Final = (
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "KILL",
    "SETFCAP",
    "SETGID",
    "SETUID",
    "SYS_RESOURCE",
)
"""Capabilities that are allowed besides, before strict rules hold."""
CAPABILITIES: Final = tuple(sorted(STRICT_CAPABILITIES + FURTHER_CAPABILITIES))
"""All capabilities that can be added."""
DANGEROUS: Final = frozenset(
    [
        "ALL",
        "BPF",
        "CHECKPOINT_RESTORE",
        "DAC_READ_SEARCH",
        "MAC_ADMIN",
        "MAC_OVERRIDE",
        "NET_ADMIN",
        "PERFMON",
        "SYS_ADMIN",
        "SYS_BOOT",
        "SYS_MODULE",
        "SYS_PTRACE",
        "SYS_RAWIO",
        "SYS_TIME",
        "SYSLOG",
    ]
)
"""Capabilities with which a container would own the enclave."""

IPC_WORDS: Final = ("private", "none", "host")
NO_NEW_PRIVILEGES: Final = "no-new-privileges:true"
USER_PATTERN: Final = r"(0|[1-9][0-9]{0,9})(:(0|[1-9][0-9]{0,9}))?"
"""What a user looks like."""
MAX_ID: Final = 2**31 - 1
"""Greatest user and group id that Kubernetes accepts."""


def read_capabilities(spot: Spot) -> tuple[str, ...] | None:
    """Read the capabilities that are added."""
    items = spot.items(MAX_LIST, "a list of capabilities such as [IPC_LOCK]")
    if items is None:
        return None
    names: list[str] = []
    for item in items:
        name = _read_capability(item)
        if name is not None and name in names:
            item.warn("DuplicateEntry", f"{name} is listed twice: list it once")
        elif name is not None:
            names.append(name)
    return tuple(names)


def _read_capability(spot: Spot) -> str | None:
    name = spot.text("the name of a capability")
    if name is None:
        return None
    bare = name.upper().removeprefix("CAP_")
    if bare in DANGEROUS:
        message = f"{bare} would give the container power over the whole enclave"
        spot.error("CapabilityNotAllowed", f"{message}, and is never given: remove it")
    elif bare not in CAPABILITIES:
        allowed = ", ".join(CAPABILITIES)
        message = f"{show(name)} is not among the capabilities that can be added: {allowed}"
        spot.error("CapabilityNotAllowed", message)
    elif name != bare:
        spot.error("InvalidName", f"is {show(name)}: write {bare}, in capitals and without CAP_")
    else:
        if bare not in STRICT_CAPABILITIES:
            spot.strict(f"adds {bare}, beyond {', '.join(STRICT_CAPABILITIES)}")
        return bare
    return None


def read_user(spot: Spot) -> User | None:
    """Read ``uid`` or ``uid:gid``."""
    wanted = 'uid or uid:gid in numbers, such as "1000:1000"'
    text = spot.raw if spot.kind is ScalarKind.INTEGER else spot.text(wanted)
    if text is None:
        return None
    if not re.fullmatch(USER_PATTERN, text):
        message = f"{show(text)} is not a {wanted}; names are known only to the image"
        spot.error("InvalidUser", message)
        return None
    uid, _, gid = text.partition(":")
    if int(uid) > MAX_ID or int(gid or 0) > MAX_ID:
        spot.error("OutOfRange", f"is {text}: ids go up to {MAX_ID}")
        return None
    return User(uid=int(uid), gid=int(gid) if gid else None)


def read_ipc(spot: Spot) -> str | None:
    """Read whose IPC namespace the container is in."""
    word = spot.word(IPC_WORDS)
    if word == "host":
        spot.strict("shares IPC and /dev/shm with all containers that say so")
    return word


def read_pid(spot: Spot) -> str | None:
    """Read ``host``, which is accepted and does not share processes."""
    word = spot.word(("host",))
    if word is not None:
        message = "is accepted, but the container sees its own processes only: remove it"
        spot.warn("NoEffect", message)
        spot.strict("requests the processes of the enclave")
    return word


def read_security_options(spot: Spot) -> tuple[str, ...] | None:
    """Read the one option that is known and always on."""
    items = spot.items(MAX_LIST, f"[{NO_NEW_PRIVILEGES!r}] or nothing")
    if items is None:
        return None
    texts = [(item, item.text()) for item in items]
    for item, text in texts:
        if text is not None and text != NO_NEW_PRIVILEGES:
            message = f"{show(text)} is not allowed: only {NO_NEW_PRIVILEGES} is, and always on"
            item.error("SecurityOptionNotAllowed", message)
    if items:
        spot.strict("no-new-privileges is always on without this key")
    return tuple(text for _, text in texts if text == NO_NEW_PRIVILEGES)
