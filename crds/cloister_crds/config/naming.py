"""Names that follow from names in the file: objects in Kubernetes, files of secrets.

The rules refuse files in which two of them meet; the operator's builders use the same functions.
"""

import re
from collections.abc import Container

__all__ = [
    "KEBAB_NAME",
    "METRICS_SECRETS",
    "VARIABLE_NAME",
    "looks_like_metrics_secret",
    "metrics_secret",
    "object_name",
    "secret_is_file",
]

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
    """Return the secret that protects the metrics, of those that a file names; None = none does."""
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
