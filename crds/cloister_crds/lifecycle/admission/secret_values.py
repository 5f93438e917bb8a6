"""Which values a secret may have: what Linux takes as an environment variable."""

from cloister_crds.config.naming import secret_is_file

__all__ = ["MOST_VARIABLE_BYTES", "value_error"]

MOST_VARIABLE_BYTES = 128 * 1024
"""Most bytes of one variable as it is passed to a program: ``NAME=value`` and a closing NUL.

Source: execve(2), MAX_ARG_STRLEN (32 pages of 4 KiB).
"""


def value_error(name: str, value: bytes) -> str | None:
    """Return why a secret cannot have a value.

    Parameters
    ----------
    name
        Name of the secret as configuration files write it; one that cannot name a variable is
        delivered as a file and takes every value.
    value
        The value.

    Returns
    -------
    str | None
        What follows the field's name in a sentence, without anything of the value; None when it
        can have it.
    """
    if secret_is_file(name):
        return None
    remedy = "or give the secret a name with a hyphen, such as tls-key, to have it as a file"
    if b"\x00" in value:
        return (
            f"contains the character NUL and becomes the environment variable {name}, which "
            f"cannot: leave it out, {remedy}"
        )
    most = MOST_VARIABLE_BYTES - len(f"{name}=".encode()) - 1
    if len(value) > most:
        return (
            f"has {len(value)} bytes; at most {most} fit into the environment variable {name} "
            f"that it becomes: shorten it, {remedy}"
        )
    return None
