"""The form of keys, and the ledger's two secret keys: index key and sealing key."""

import base64
import binascii
import hashlib
import hmac
import json
import os
import secrets
import string
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from cloister_clients.settings import is_open_to_others

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
    """Return whether a text has the form of a key."""
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


KEY_BYTES = 32
NONCE_BYTES = 12
VERSION = "v1"


class MaterialError(Exception):
    """The keys cannot be read or do not fit; the message says what to do."""


class KeySealer(Protocol):
    """What tables of keys need of the key material."""

    def index(self, key: str) -> bytes:
        """Return the index under which a key is stored."""

    def seal(self, value: str, *, context: str) -> str:
        """Seal a value so that it can only be unsealed in the same context."""

    def unseal(self, sealed: str, *, context: str) -> str:
        """Return a sealed value."""


@dataclass(frozen=True, slots=True)
class KeyMaterial:
    """The two keys, and the sealing key before while it is changed."""

    index_key: bytes = field(repr=False)
    """Key of the HMAC; changing it makes every issued key unknown."""
    sealing_key: bytes = field(repr=False)
    """Key that wraps the data keys; losing it makes sealed values unreadable."""
    previous_key: bytes | None = field(default=None, repr=False)
    """Sealing key before the present one; None if no rotation is in progress."""

    @classmethod
    def create(cls, path: Path) -> Self:
        """Create a new file with two random keys.

        Raises
        ------
        MaterialError
            When there is a file already or it cannot be written.
        """
        made = cls(secrets.token_bytes(KEY_BYTES), secrets.token_bytes(KEY_BYTES))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_new(path, made.text())
        except FileExistsError as error:
            raise MaterialError(
                f"{path} exists; delete it yourself if every key may become invalid"
            ) from error
        except OSError as error:
            raise MaterialError(f"{path}: {error.strerror}") from error
        return made

    def text(self) -> str:
        """Return what the file holds."""
        parts = {"index": self.index_key, "sealing": self.sealing_key}
        if self.previous_key is not None:
            parts["previous"] = self.previous_key
        return json.dumps({name: base64.b64encode(key).decode() for name, key in parts.items()})

    def replace(self, path: Path) -> None:
        """Replace a file atomically with this key material.

        Raises
        ------
        MaterialError
            When the file cannot be written.
        """
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        try:
            write_new(temporary, self.text())
            temporary.replace(path)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise MaterialError(
                f"{path}: {error.strerror}; if the file is mounted read-only, work on a copy "
                "and replace the file with it"
            ) from error

    def with_new_sealing_key(self) -> "KeyMaterial":
        """Return material that seals with a new key and still opens what this one sealed."""
        return KeyMaterial(self.index_key, secrets.token_bytes(KEY_BYTES), self.sealing_key)

    def without_previous(self) -> "KeyMaterial":
        """Return material that opens only what the present key sealed."""
        return KeyMaterial(self.index_key, self.sealing_key)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the file.

        Raises
        ------
        MaterialError
            When it is missing, open to others, or not what `create` writes.
        """
        try:
            found = path.stat()
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError as error:
            raise MaterialError(
                f"{path} does not exist; `cloister admin-key init` creates it"
            ) from error
        except (OSError, UnicodeDecodeError) as error:
            raise MaterialError(f"{path}: {error}") from error
        if is_open_to_others(found, os.geteuid()):
            raise MaterialError(f"{path} may be read by others; run `chmod 600 {path}`")
        try:
            document = json.loads(text)
            names = ["index", "sealing", *(["previous"] if "previous" in document else [])]
            keys = [base64.b64decode(document[name], validate=True) for name in names]
        except (ValueError, KeyError, TypeError, binascii.Error) as error:
            raise MaterialError(
                f"{path} holds no keys as `cloister admin-key init` creates"
            ) from error
        if any(len(key) != KEY_BYTES for key in keys):
            raise MaterialError(f"{path} holds keys of the wrong length")
        return cls(*keys)

    def index(self, key: str) -> bytes:
        """Return the index under which a key is stored."""
        return hmac.new(self.index_key, key.encode(), hashlib.sha256).digest()

    def seal(self, value: str, *, context: str) -> str:
        """Seal a value so that it can be read only in the same context.

        Parameters
        ----------
        context
            Where it belongs, such as table, organization and row.
        """
        data_key = AESGCM.generate_key(KEY_BYTES * 8)
        wrapped = encrypt(self.sealing_key, data_key, context)
        parts = (VERSION, encode(wrapped), encode(encrypt(data_key, value.encode(), context)))
        return ".".join(parts)

    def unseal(self, sealed: str, *, context: str) -> str:
        """Return a sealed value.

        Raises
        ------
        MaterialError
            When it was sealed with another key or for another context, or was changed.
        """
        wrapped, payload = parts_of(sealed)
        for key in self.opening_keys():
            try:
                data_key = decrypt(key, wrapped, context)
                return decrypt(data_key, payload, context).decode()
            except (InvalidTag, ValueError):
                continue
        raise MaterialError("a sealed value does not open with this key material")

    def opening_keys(self) -> tuple[bytes, ...]:
        """Return the keys that may have sealed a value, the present one first."""
        return (self.sealing_key, *([self.previous_key] if self.previous_key else []))

    def resealed(self, sealed: str, *, context: str) -> str | None:
        """Wrap the data key of a sealed value with the present sealing key.

        Returns
        -------
        str or None
            The re-sealed value; None if the present key sealed it already.

        Raises
        ------
        MaterialError
            When neither the present nor the previous key opens it.
        """
        wrapped, payload = parts_of(sealed)
        for key in self.opening_keys():
            try:
                data_key = decrypt(key, wrapped, context)
            except (InvalidTag, ValueError):
                continue
            if key is self.sealing_key:
                return None
            again = encrypt(self.sealing_key, data_key, context)
            return f"{VERSION}.{encode(again)}.{encode(payload)}"
        raise MaterialError("a sealed value does not open with this key material")


class ReloadingKeyMaterial:
    """The key material of a running process, reloaded when its file changes."""

    def __init__(self, path: Path, present: KeyMaterial) -> None:
        self._path = path
        self._present = present
        self._seen = self._stamp()

    def _stamp(self) -> Any:
        found = self._path.stat()
        return (found.st_mtime_ns, found.st_ino, found.st_size)

    def reload(self) -> None:
        """Read the file if it changed.

        Raises
        ------
        MaterialError
            When it cannot be used, or has another index key; the material stays as it was.
        """
        try:
            stamp = self._stamp()
        except OSError as error:
            raise MaterialError(f"{self._path}: {error.strerror}") from error
        if stamp == self._seen:
            return
        read = KeyMaterial.read(self._path)
        if read.index_key != self._present.index_key:
            raise MaterialError(
                f"{self._path} holds another index key, with which no issued key can be found; "
                "restore the file"
            )
        self._present, self._seen = read, stamp

    def index(self, key: str) -> bytes:
        """Return the index under which a key is stored."""
        return self._present.index(key)

    def seal(self, value: str, *, context: str) -> str:
        """Seal a value so that it can only be unsealed in the same context."""
        return self._present.seal(value, context=context)

    def unseal(self, sealed: str, *, context: str) -> str:
        """Return a sealed value.

        Raises
        ------
        MaterialError
            When it does not open.
        """
        try:
            return self._present.unseal(sealed, context=context)
        except MaterialError:
            # The key may have been rotated since the last check of the file.
            self.reload()
            return self._present.unseal(sealed, context=context)


def write_new(path: Path, text: str) -> None:
    """Write a new file that only this user may read, and sync it to disk.

    Raises
    ------
    OSError
        When it exists or cannot be written.
    """
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())


def parts_of(sealed: str) -> tuple[bytes, bytes]:
    """Return the wrapped data key and the payload of a sealed value.

    Raises
    ------
    MaterialError
        When it has another form.
    """
    version, _, rest = sealed.partition(".")
    wrapped, _, payload = rest.partition(".")
    if version != VERSION:
        raise MaterialError(f"sealed value of version {version!r}; this release reads {VERSION}")
    try:
        return decode(wrapped), decode(payload)
    except (binascii.Error, ValueError) as error:
        raise MaterialError("a sealed value does not open with this key material") from error


def encrypt(key: bytes, value: bytes, context: str) -> bytes:
    """Return nonce and ciphertext (AES-256-GCM) of a value bound to a context."""
    nonce = os.urandom(NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, value, context.encode())


def decrypt(key: bytes, data: bytes, context: str) -> bytes:
    """Return the value of nonce and ciphertext.

    Raises
    ------
    InvalidTag
        When key or context is another one, or the data was changed.
    """
    return AESGCM(key).decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], context.encode())


def encode(data: bytes) -> str:
    """Return bytes as base64 for URLs."""
    return base64.urlsafe_b64encode(data).decode()


def decode(text: str) -> bytes:
    """Return the bytes of base64 for URLs."""
    return base64.b64decode(text, altchars=b"-_", validate=True)
