"""Limits of a configuration file, and the names that follow from names in it."""

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = [
    "CPU_TIERS",
    "GPU_COUNTS",
    "KEBAB_NAME",
    "MAX_ALLOW",
    "MAX_CONTAINERS",
    "MAX_LIST",
    "MAX_MODELS",
    "MAX_NAME_BYTES",
    "MAX_NETWORKS",
    "MAX_PROBLEMS",
    "MAX_TEST",
    "MAX_TMPFS",
    "MEMORY_TIERS",
    "METRICS_SECRETS",
    "VARIABLE_NAME",
    "VERSION",
    "Rules",
    "looks_like_metrics_secret",
    "metrics_secret",
    "object_name",
    "secret_is_file",
]

VERSION = re.compile(r"(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})")
"""Three numbers, as in ``cvm-version``."""

CPU_TIERS: Final = (2, 4, 8, 16, 32)
"""Processors that an enclave may have (spec 41.2)."""
MEMORY_TIERS: Final = (8192, 16384, 32768, 65536, 131072, 262144, 524288)
"""Memory in MB that an enclave may have (spec 41.3)."""
GPU_COUNTS: Final = (1, 8)
"""GPUs that an enclave may have (spec 41.4)."""

MAX_CONTAINERS: Final = 64
"""Most containers of a file."""
MAX_MODELS: Final = 24
"""Most models of a file."""
MAX_NETWORKS: Final = 32
"""Most networks of a file."""
MAX_LIST: Final = 256
"""Most entries of each list of a container and of the shim."""
MAX_TMPFS: Final = 64
"""Most tmpfs mounts of a container."""
MAX_ALLOW: Final = 256
"""Most hosts of an allowlist."""
MAX_TEST: Final = 64
"""Most words of a health check."""
MAX_NAME_BYTES: Final = 256
"""Most bytes in the name of a variable or secret."""
MAX_PROBLEMS: Final = 1000
"""Most problems that are reported of one file; a last one says that there are more."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The settings that a file is validated by."""

    cpu_tiers: Sequence[int] = CPU_TIERS
    """Values that `cpus` may have."""
    memory_tiers: Sequence[int] = MEMORY_TIERS
    """Values in MB that `memory` may have."""
    gpu_counts: Sequence[int] = GPU_COUNTS
    """Values that `gpus` may have when it is there."""
    max_bytes: int = 1024 * 1024
    """Most bytes of a file that is read."""
    deployable_bytes: int = 256 * 1024
    """The setting ``sources.maxFileBytes``; above it a warning, since sources refuse the file."""
    strict_from: str | None = None
    """First ``X.Y.Z`` from which strict rules are errors; None keeps them warnings always."""
    service: str | None = "cloister"
    """The service's name: ``/<service>`` is mounted in every container; None allows mounts there,
    for a file that was admitted under a name that is recorded elsewhere."""
    release: bool = False
    """Whether the file is one of a release: placeholders are errors then."""
    variables: Mapping[str, str] | None = None
    """The deploy-time variables; None when they are not known, so that none is checked."""

    def __post_init__(self) -> None:
        """Refuse settings that no file could be validated by.

        Raises
        ------
        ValueError
            When `strict_from` is not a version.
        """
        if self.strict_from is not None and not VERSION.fullmatch(self.strict_from):
            raise ValueError(f"strict_from is {self.strict_from!r}: write X.Y.Z")


_ANY = range(2**31)
STORED: Final = Rules(cpu_tiers=_ANY, memory_tiers=_ANY, gpu_counts=_ANY, service=None)
"""Rules for a file that was admitted by the settings of its time: every amount is valid."""

VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""Names of environment variables (POSIX, plus lower case)."""

KEBAB_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
"""Names of secrets in kebab-case."""


METRICS_SECRETS = ("METRICS_TOKEN", "METRICS_API_KEY")
"""Secrets that protect an enclave's metrics; of two in one file the first one here counts."""

_LIKE_METRICS_SECRET = re.compile(
    r"([A-Z]+_)?METRICS?_?((API|AUTH|ACCESS|BEARER)_?)?(TOKEN|KEY|SECRET|PASSWORD|AUTH)"
)


def metrics_secret(names: Container[str]) -> str | None:
    """Return the secret of a file that protects the metrics; None if none does."""
    return next((each for each in METRICS_SECRETS if each in names), None)


def looks_like_metrics_secret(name: str) -> bool:
    """Return whether a name seems to be meant to protect the metrics, and does not."""
    like = _LIKE_METRICS_SECRET.fullmatch(name.upper().replace("-", "_"))
    return name not in METRICS_SECRETS and like is not None


def object_name(name: str) -> str:
    """Return the container's name in a Pod: a DNS label (RFC 1123).

    Parameters
    ----------
    name
        Name of a container in the file, 1 to 63 characters of ``[a-zA-Z0-9_.-]`` that begin
        with a letter or digit.

    Returns
    -------
    str
        The name in lower case, with ``-`` for ``_`` and ``.``, and without ``-`` at the end.
        Two names may give the same one; the rules refuse such a file.
    """
    return re.sub(r"[_.]", "-", name.lower()).rstrip("-")


def secret_is_file(name: str) -> bool:
    """Return whether a secret is delivered as a file instead of a variable.

    Returns
    -------
    bool
        True for names that cannot be variables (kebab-case with a hyphen or a leading digit):
        they are delivered under ``/<service>/secrets/<name>``.
    """
    return VARIABLE_NAME.fullmatch(name) is None
