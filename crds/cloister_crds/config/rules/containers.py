"""Containers: the table of their keys, and what must fit among them.

Source: spec 42.
"""

import re
from typing import Any, Final

from cloister_crds.config.limits import MAX_CONTAINERS, MAX_LIST, MAX_TMPFS, object_name
from cloister_crds.config.model import Restart
from cloister_crds.config.rules import (
    environment,
    images,
    mounts,
    networks,
    processes,
    resources,
    security,
)
from cloister_crds.config.syntax.reading import Field, Section, Spot, Table, read_section, show
from cloister_crds.config.syntax.scalars import SIGNAL_PATTERN, SIZE_PATTERN

__all__ = ["CONTAINER", "check_container", "check_names", "container_values", "read_containers"]

NAME_PATTERN: Final = r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,62}"


def _read_name(spot: Spot) -> str | None:
    text = spot.text("a name")
    if text is not None and not re.fullmatch(NAME_PATTERN, text):
        message = "write 1 to 63 letters, digits, dots, hyphens and underscores"
        spot.error("InvalidName", f"{show(text)} is not a container name: {message}")
        return None
    return text


def _strings(most: int, **more: Any) -> dict[str, Any]:
    """Return the schema of a list of texts."""
    return {"type": "array", "items": {"type": "string", **more}, "maxItems": most}


WORDS: Final = _strings(MAX_LIST)
SIZE: Final = {
    "anyOf": [
        {"type": "string", "pattern": f"^{SIZE_PATTERN}$"},
        {"type": "integer", "minimum": 1},
    ]
}
ENV: Final = {
    "type": "array",
    "maxItems": MAX_LIST,
    "items": {
        "anyOf": [
            {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
            {
                "type": "object",
                "minProperties": 1,
                "maxProperties": 1,
                "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
                "additionalProperties": {"type": ["string", "boolean", "number"]},
            },
        ]
    },
}
TMPFS: Final = {
    "type": "object",
    "maxProperties": MAX_TMPFS,
    "propertyNames": {"pattern": "^/"},
    "additionalProperties": {"type": ["string", "null"]},
}
LATER: Final = "is of a later generation of the format and not supported here: remove it"

CONTAINER: Final = Table(
    noun="a container",
    fields=(
        Field(
            "name",
            _read_name,
            {"type": "string", "pattern": f"^{NAME_PATTERN}$"},
            "Unique name; containers of a network reach each other by it.",
            required=True,
            missing="write a unique name",
        ),
        Field(
            "image",
            images.read_image,
            {"type": "string", "pattern": f"^{images.IMAGE_PATTERN}$"},
            "Image with its digest; docker.io when no registry is named.",
            required=True,
            missing="write an image with its digest",
        ),
        Field("command", processes.read_words, WORDS, "Replaces the image's CMD."),
        Field(
            "entrypoint",
            processes.read_words,
            WORDS,
            "Replaces the image's ENTRYPOINT and clears its CMD.",
        ),
        Field(
            "working_dir",
            processes.read_working_dir,
            {"type": "string", "pattern": "^/"},
            "Directory in which the process begins; the image's by default.",
        ),
        Field(
            "user",
            security.read_user,
            {
                "anyOf": [
                    {"type": "string", "pattern": f"^{security.USER_PATTERN}$"},
                    {"type": "integer", "minimum": 0},
                ]
            },
            "uid or uid:gid; the image's user by default.",
        ),
        Field(
            "env",
            environment.read_env,
            ENV,
            "Variables: NAME: value, or only NAME for a deploy-time value.",
        ),
        Field(
            "secrets",
            environment.read_secrets,
            _strings(MAX_LIST),
            "Secrets; kebab-case ones are files, the others variables.",
        ),
        Field(
            "runtime",
            lambda spot: spot.word(("nvidia",)),
            {"const": "nvidia"},
            "nvidia for a container with GPUs.",
        ),
        Field(
            "gpus",
            resources.read_container_gpus,
            {
                "anyOf": [
                    {"type": "string", "pattern": f"^({resources.GPU_PATTERN})$"},
                    {"type": "integer", "minimum": 1},
                ]
            },
            "all, a count, or ids such as 0,1.",
        ),
        Field(
            "ipc",
            security.read_ipc,
            {"enum": list(security.IPC_WORDS)},
            "private (default), none, or host to share IPC and /dev/shm.",
        ),
        Field(
            "pid",
            security.read_pid,
            {"const": "host"},
            "Accepted; each container sees its own processes only.",
        ),
        Field(
            "networks",
            networks.read_attached,
            _strings(MAX_LIST, pattern=f"^{networks.NETWORK_NAME}$"),
            "Networks it is on, at most one of them not closed; version 0.10.0 or newer.",
        ),
        Field(
            "volumes",
            mounts.read_volumes,
            _strings(MAX_LIST, pattern=f"^{mounts.VOLUME_PATTERN}$"),
            "Scratch spaces of the enclave: source:/path[:ro].",
        ),
        Field(
            "devices",
            mounts.read_devices,
            _strings(MAX_LIST, pattern="^/dev/"),
            "Devices that the Host offers.",
        ),
        Field("tmpfs", mounts.read_tmpfs, TMPFS, "File systems in memory: path to options."),
        Field(
            "read_only",
            Spot.boolean,
            {"type": "boolean"},
            "Whether the root file system is read-only; true by default.",
        ),
        Field(
            "cap_add",
            security.read_capabilities,
            _strings(MAX_LIST, enum=list(security.CAPABILITIES)),
            "Capabilities without CAP_; all others are dropped.",
        ),
        Field(
            "security_opt",
            security.read_security_options,
            _strings(MAX_LIST, const=security.NO_NEW_PRIVILEGES),
            "no-new-privileges:true, which always holds.",
        ),
        Field(
            "shm_size",
            resources.read_bytes,
            SIZE,
            "Size of /dev/shm; half of the container's memory by default.",
        ),
        Field("memory", resources.read_limit, SIZE, "Limit such as 512m or 2g."),
        Field(
            "cpus",
            Spot.number,
            {"type": "number", "exclusiveMinimum": 0},
            "Limit in processors such as 0.5.",
        ),
        Field(
            "pids_limit",
            processes.read_pids_limit,
            {"type": "integer", "minimum": -1, "not": {"const": 0}},
            "Most processes; 65536 by default, -1 for no limit.",
        ),
        Field(
            "healthcheck",
            processes.read_healthcheck,
            {"$ref": "#/$defs/healthcheck"},
            "How its health is checked.",
        ),
        Field(
            "restart",
            processes.read_restart,
            {
                "type": "string",
                "pattern": f"^({processes.RESTART_PATTERN})$",
                "examples": [str(word) for word in Restart],
            },
            "no (default), always, on-failure, on-failure:N or unless-stopped.",
        ),
        Field(
            "stop_signal",
            processes.read_stop_signal,
            {
                "anyOf": [
                    {"type": "string", "pattern": f"^({SIGNAL_PATTERN})$"},
                    {"type": "integer", "minimum": 1, "maximum": 64},
                ]
            },
            "Signal that asks the process to terminate; the image's by default.",
        ),
        Field(
            "stop_timeout",
            processes.read_stop_timeout,
            {"type": "integer", "minimum": 0},
            "Seconds from the signal to the kill; 10 by default.",
        ),
    ),
    refused={
        "privileged": (
            "NotAllowed",
            "privileged is not allowed, it gives the enclave away: name capabilities in cap_add",
        ),
        "cap_drop": (
            "NotAllowed",
            "cap_drop is not needed: all capabilities but those of cap_add are dropped, remove it",
        ),
        **{
            key: ("NotSupported", f"{key} {LATER}")
            for key in ("ports", "models", "cvm_admin", "attestation", "keys")
        },
    },
    hints={
        "args": "write command",
        "build": "build the image in the release workflow and name it under image",
        "container_name": "write name",
        "depends_on": "containers start together: let the process wait for what it needs",
        "environment": "write env, as a list",
        "env_file": "write env, as a list",
        "mem_limit": "write memory",
        "network_mode": "name networks under networks; a container without any has none",
        "registry": "give the organization the registry's credentials instead, and remove it",
        "restart_policy": "write restart",
        "workdir": "write working_dir",
    },
)
"""The keys of a container."""


def read_containers(spot: Spot) -> tuple[Section, ...] | None:
    """Read the list of containers."""
    items = spot.items(MAX_CONTAINERS, "a list of containers")
    if items is None:
        return None
    if not items:
        spot.error("EmptyList", "is empty: write at least one container")
    sections = [read_section(item, CONTAINER) for item in items]
    return tuple(section for section in sections if section is not None)


def check_names(containers: tuple[Section, ...]) -> None:
    """Refuse two containers of one name, or of names that give one name in Kubernetes."""
    seen: dict[str, str] = {}
    for container in containers:
        name = container.get("name")
        if name is None:
            continue
        derived = object_name(name)
        if seen.get(derived) == name:
            message = f"another container is named {name}: give each its own name"
            container.at("name").error("DuplicateName", message)
        elif derived in seen:
            message = f"{name} and {seen[derived]} are both {derived} in Kubernetes: rename one"
            container.at("name").error("DuplicateName", message)
        seen.setdefault(derived, name)


def check_container(container: Section, top: Section) -> None:
    """Check what must fit within a container, and between it and the file."""
    networks.check_version(container)
    networks.check_attached(container, top)
    resources.check_container_gpus(container, top)
    resources.check_shares(container, top)
    mounts.check_mounts(container)
    environment.check_environment(container)


def container_values(container: Section) -> dict[str, Any]:
    """Return what a `ContainerSpec` is made of."""
    values = dict(container.values)
    if "restart" in values:
        values["restart"], values["restart_limit"] = values["restart"]
    return values
