"""Names that follow from names in the file: objects in Kubernetes, files of secrets.

The rules refuse files in which two of them meet; the operator's builders use the same functions.
"""

import re

__all__ = ["KEBAB_NAME", "VARIABLE_NAME", "object_name", "secret_is_file"]

VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""Names of environment variables (POSIX, plus lower case)."""

KEBAB_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
"""Names of secrets in kebab-case."""


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
