"""Divides the time that an enclave served into slices. Pure. Times are Unix times."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = [
    "SECONDS",
    "ServedEnclave",
    "Slice",
    "due_until",
    "slice_id",
    "slices_of",
    "unfit",
]

SECONDS = 300
"""Length of a slice."""
WIDTH = SECONDS * 1_000_000
INTEGER = 2**31
"""First number that a column of integers does not hold."""


@dataclass(frozen=True, slots=True)
class ServedEnclave:
    """An enclave that serves or served."""

    enclave: str
    """uid of the Enclave."""
    organization: str
    """Identifier of its Organization; empty = it is no longer known."""
    container: str
    """Identifier of its container."""
    name: str
    """Name of its container."""
    cpus: int
    """Processors."""
    memory_mb: int
    """Memory in MB."""
    gpus: int
    """GPUs."""
    begin: int
    """When it was promoted, in microseconds."""
    end: int | None
    """When it was demoted, in microseconds; None = it serves."""


@dataclass(frozen=True, slots=True)
class Slice:
    """A piece of time in which an enclave served, within the bounds of one slice."""

    begin: int
    """Second that the slice begins with, a multiple of `SECONDS`."""
    microseconds: int
    """How long it served in it; more than 0."""


def unfit(served: ServedEnclave) -> str:
    """Return which value of an enclave the ledger has no room for; empty = all fit."""
    texts = {"enclave": 64, "organization": 64, "container": 64, "name": 253}
    for field, longest in texts.items():
        value = getattr(served, field)
        if len(value) > longest or not value.isprintable():
            return f"{field} {value[:longest]!r} is longer than {longest} or not printable"
    for field in ("cpus", "memory_mb", "gpus"):
        if not 0 <= getattr(served, field) < INTEGER:
            return f"{field} is {getattr(served, field)}"
    return ""


def due_until(served: ServedEnclave, now: int) -> int:
    """Return until when an enclave is to be metered.

    Parameters
    ----------
    served
        The enclave.
    now
        The present, in microseconds.

    Returns
    -------
    int
        In microseconds: its end if it has one, else the end of the last complete slice.
    """
    if served.end is not None:
        return max(served.end, served.begin)
    return max(now // WIDTH * WIDTH, served.begin)


def slices_of(begin: int, end: int) -> Iterator[Slice]:
    """Cut a span of time into slices; their sum is the span.

    Parameters
    ----------
    begin
        Begin in microseconds.
    end
        End in microseconds.
    """
    while begin < end:
        bound = begin // WIDTH * WIDTH
        until = min(end, bound + WIDTH)
        yield Slice(bound // 1_000_000, until - begin)
        begin = until


def slice_id(enclave: str, begin: int) -> bytes:
    """Return the identifier of an enclave's slice, which makes writing it idempotent.

    Parameters
    ----------
    enclave
        uid of the Enclave.
    begin
        Second that the slice begins with.
    """
    return hashlib.blake2b(f"{enclave}/{begin}".encode(), digest_size=16).digest()
