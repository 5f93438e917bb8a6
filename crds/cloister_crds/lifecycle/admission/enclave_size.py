"""Whether what is recorded of an enclave fits into the objects that hold it.

An Enclave's ConfigMap holds the file and the documents that our sidecars read, which are made from
the file and from what the images say about themselves. The size is estimated upwards before
anything is created; the API server has the last word (`EnclaveRefused`).
"""

from collections.abc import Iterator, Mapping

from cloister_crds.config.model import ServiceConfig
from cloister_crds.problems import Problem

__all__ = ["MAX_ENCLAVE_BYTES", "size_problems"]

MAX_ENCLAVE_BYTES = 1_048_576
"""Most bytes of a ConfigMap (Kubernetes, "ConfigMaps")."""
_FILE_FACTOR = 3
"""The file as it is, and its words in documents with their quotes and indents."""
_MACHINE_FACTOR = 4
"""Bytes of a machine's rules for each byte of variables and of what images say."""
_PATH_FACTOR = 10
"""Bytes of an expression for each byte of a path, in either spelling."""
_KEYED_FACTOR = 24
"""Bytes of an expression for each byte of a path that needs a key: also in either case."""
_PER_CONTAINER = 1_200
"""Bytes of documents for each container beside its words."""
_BASE = 16_384
"""Bytes of documents for each enclave."""
_MACHINE_PER_CONTAINER = 2_500
"""Bytes of rules for each container of a machine beside its words."""
_MACHINE_BASE = 65_536
"""Bytes of rules for each machine."""


def size_problems(
    config: ServiceConfig, file_bytes: int, image_sizes: Mapping[str, int], *, machine: bool
) -> Iterator[Problem]:
    """Yield a problem when an enclave cannot be recorded, with its largest part as the field.

    Parameters
    ----------
    config
        The file.
    file_bytes
        Its size.
    image_sizes
        Bytes of what images say about their process, by their reference in the file; those that
        are not known yet are left out.
    machine
        Whether it is a machine of its own, whose rules know its containers.
    """
    images = sum(image_sizes.get(each.image, 0) for each in config.containers)
    again = _MACHINE_FACTOR if machine else 0
    parts = {
        "the file": ("", _FILE_FACTOR * file_bytes + again * _environment(config)),
        "what its images say (entrypoint, command, environment)": (
            "containers",
            (1 + again) * images,
        ),
        "shim.paths": ("shim.paths", _PATH_FACTOR * _length(config.shim.paths)),
        "shim.authenticated-endpoints": (
            "shim.authenticated-endpoints",
            _KEYED_FACTOR * _length(config.shim.keyed_endpoints),
        ),
    }
    total = sum(size for _, size in parts.values())
    total += _BASE + _PER_CONTAINER * len(config.containers)
    if machine:
        total += _MACHINE_BASE + _MACHINE_PER_CONTAINER * len(config.containers)
    if total <= MAX_ENCLAVE_BYTES:
        return
    name, (field, size) = max(parts.items(), key=lambda part: part[1][1])
    yield Problem(
        field,
        "EnclaveTooLarge",
        f"The enclave would be recorded in {total} bytes, and at most {MAX_ENCLAVE_BYTES} can be; "
        f"{name} would take {size} of them. Make that smaller and tag a new release.",
    )


def _length(paths: tuple[str, ...]) -> int:
    """Return the bytes of paths."""
    return sum(len(each.encode()) for each in paths)


def _environment(config: ServiceConfig) -> int:
    """Return the bytes of the variables of a file."""
    entries = (entry for container in config.containers for entry in container.env)
    return sum(len(f"{entry.name}={entry.value or ''}".encode()) for entry in entries)
