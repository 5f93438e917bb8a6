"""The form of admin keys: ``admin_``, 30 random characters, 6 of checksum, all base62.

The checksum lets garbage be refused without a look-up; it is no secret and proves nothing else.
"""

import secrets
import string
import zlib

__all__ = ["ADMIN_PREFIX", "generate", "masked", "well_formed"]

ADMIN_PREFIX = "admin_"
"""What admin keys begin with (spec, "Authentication")."""
ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
RANDOM_LENGTH = 30
CHECKSUM_LENGTH = 6
MASK_SHOWN = 8


def generate() -> str:
    """Make a new key; 30 characters of base62 are 178 random bits."""
    body = ADMIN_PREFIX + "".join(secrets.choice(ALPHABET) for _ in range(RANDOM_LENGTH))
    return body + checksum(body)


def checksum(body: str) -> str:
    """Answer the CRC-32 of a key without checksum, in base62 with leading zeros."""
    rest = zlib.crc32(body.encode("ascii"))
    digits = ""
    while rest:
        rest, digit = divmod(rest, len(ALPHABET))
        digits = ALPHABET[digit] + digits
    return digits.rjust(CHECKSUM_LENGTH, ALPHABET[0])


def well_formed(key: str) -> bool:
    """Answer whether a text can be an admin key at all.

    Parameters
    ----------
    key
        Whatever stood in the Authorization header.
    """
    if len(key) != len(ADMIN_PREFIX) + RANDOM_LENGTH + CHECKSUM_LENGTH or not key.isascii():
        return False
    if not key.startswith(ADMIN_PREFIX):
        return False
    return checksum(key[:-CHECKSUM_LENGTH]) == key[-CHECKSUM_LENGTH:]


def masked(key: str) -> str:
    """Answer the first characters of a key and asterisks, for those who may not read it."""
    return key[:MASK_SHOWN] + "*" * 24
