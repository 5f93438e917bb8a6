"""The two secret keys of the ledger, and what is done with them.

One makes the index under which a key is found (HMAC-SHA256), one seals values that their creator
may read again (AES-256-GCM, a data key for each value, bound to where the value belongs). Both lie
in one file that only the process's user may read.
"""

import base64
import binascii
import hashlib
import hmac
import json
import os
import secrets
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = ["Material", "MaterialError"]

KEY_BYTES = 32
NONCE_BYTES = 12
VERSION = "v1"


class MaterialError(Exception):
    """The keys cannot be read or do not fit; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Material:
    """The two keys."""

    index_key: bytes = field(repr=False)
    """Key of the HMAC; changing it makes every issued key unknown."""
    sealing_key: bytes = field(repr=False)
    """Key that wraps the data keys; losing it makes sealed values unreadable."""

    @classmethod
    def create(cls, path: Path) -> Self:
        """Make a new file with two random keys.

        Raises
        ------
        MaterialError
            When there is a file already or it cannot be written.
        """
        made = cls(secrets.token_bytes(KEY_BYTES), secrets.token_bytes(KEY_BYTES))
        text = json.dumps(
            {
                "index": base64.b64encode(made.index_key).decode(),
                "sealing": base64.b64encode(made.sealing_key).decode(),
            }
        )
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "w") as file:
                file.write(text + "\n")
                file.flush()
                os.fsync(file.fileno())
        except FileExistsError as error:
            raise MaterialError(
                f"{path} exists; delete it yourself if every admin key may become invalid"
            ) from error
        except OSError as error:
            raise MaterialError(f"{path}: {error.strerror}") from error
        return made

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the file.

        Raises
        ------
        MaterialError
            When it is missing, open to others, or not what `create` writes.
        """
        try:
            mode = path.stat().st_mode
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError as error:
            raise MaterialError(
                f"{path} does not exist; `cloister admin-key init` makes it"
            ) from error
        except (OSError, UnicodeDecodeError) as error:
            raise MaterialError(f"{path}: {error}") from error
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise MaterialError(f"{path} may be read by others; run `chmod 600 {path}`")
        try:
            document = json.loads(text)
            keys = [
                base64.b64decode(document[name], validate=True) for name in ("index", "sealing")
            ]
        except (ValueError, KeyError, TypeError, binascii.Error) as error:
            raise MaterialError(
                f"{path} holds no keys as `cloister admin-key init` makes"
            ) from error
        if any(len(key) != KEY_BYTES for key in keys):
            raise MaterialError(f"{path} holds keys of the wrong length")
        return cls(*keys)

    def index(self, key: str) -> bytes:
        """Answer the index under which a key is kept."""
        return hmac.new(self.index_key, key.encode(), hashlib.sha256).digest()

    def seal(self, value: str, *, context: str) -> str:
        """Seal a value so that it can be read in the same context alone.

        Parameters
        ----------
        value
            The value.
        context
            Where it belongs, such as table, organization and row.
        """
        data_key = AESGCM.generate_key(KEY_BYTES * 8)
        wrapped = encrypt(self.sealing_key, data_key, context)
        parts = (VERSION, encode(wrapped), encode(encrypt(data_key, value.encode(), context)))
        return ".".join(parts)

    def unseal(self, sealed: str, *, context: str) -> str:
        """Answer a sealed value.

        Raises
        ------
        MaterialError
            When it was sealed with another key or for another context, or was changed.
        """
        version, _, rest = sealed.partition(".")
        wrapped, _, payload = rest.partition(".")
        if version != VERSION:
            raise MaterialError(
                f"sealed value of version {version!r}; this release reads {VERSION}"
            )
        try:
            data_key = decrypt(self.sealing_key, decode(wrapped), context)
            return decrypt(data_key, decode(payload), context).decode()
        except (InvalidTag, binascii.Error, ValueError) as error:
            raise MaterialError("a sealed value does not open with this key material") from error


def encrypt(key: bytes, value: bytes, context: str) -> bytes:
    """Answer nonce and ciphertext (AES-256-GCM) of a value bound to a context."""
    nonce = os.urandom(NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, value, context.encode())


def decrypt(key: bytes, data: bytes, context: str) -> bytes:
    """Answer the value of nonce and ciphertext.

    Raises
    ------
    InvalidTag
        When key or context is another one, or the data was changed.
    """
    return AESGCM(key).decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], context.encode())


def encode(data: bytes) -> str:
    """Answer bytes as base64 for URLs."""
    return base64.urlsafe_b64encode(data).decode()


def decode(text: str) -> bytes:
    """Answer the bytes of base64 for URLs."""
    return base64.b64decode(text, altchars=b"-_", validate=True)
