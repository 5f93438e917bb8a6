"""The form of keys: a prefix, 30 random characters, 6 of checksum, all base62.

The checksum lets garbage be refused without a lookup; it is not a secret and proves nothing else.
"""

import secrets
import string
import zlib

__all__ = ["ADMIN_PREFIX", "MASK_SHOWN", "REGULAR_PREFIX", "generate", "masked", "well_formed"]

ADMIN_PREFIX = "admin_"
"""Prefix of admin keys (spec 2.2)."""
REGULAR_PREFIX = "tk_"
"""Prefix of regular keys (spec 25.1)."""
ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
RANDOM_LENGTH = 30
CHECKSUM_LENGTH = 6
MASK_SHOWN = 8
"""How many characters of a key those see who may not read it (spec 25.2)."""


def generate(prefix: str = ADMIN_PREFIX) -> str:
    """Generate a key; 30 characters of base62 are 178 random bits."""
    body = prefix + "".join(secrets.choice(ALPHABET) for _ in range(RANDOM_LENGTH))
    return body + checksum(body)


def checksum(body: str) -> str:
    """Return the CRC-32 of a key without checksum, in base62 with leading zeros."""
    rest = zlib.crc32(body.encode("ascii"))
    digits = ""
    while rest:
        rest, digit = divmod(rest, len(ALPHABET))
        digits = ALPHABET[digit] + digits
    return digits.rjust(CHECKSUM_LENGTH, ALPHABET[0])


def well_formed(key: str, prefix: str = ADMIN_PREFIX) -> bool:
    """Return whether a text has the form of a key.

    Parameters
    ----------
    key
        Any text from a request.
    prefix
        Prefix of its kind of keys.
    """
    if len(key) != len(prefix) + RANDOM_LENGTH + CHECKSUM_LENGTH or not key.isascii():
        return False
    if not key.startswith(prefix):
        return False
    return checksum(key[:-CHECKSUM_LENGTH]) == key[-CHECKSUM_LENGTH:]


def masked(key: str) -> str:
    """Return the first characters of a key and asterisks, for those who may not read it.

    Parameters
    ----------
    key
        The key, or its first characters.
    """
    return key[:MASK_SHOWN] + "*" * 24
