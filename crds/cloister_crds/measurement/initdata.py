"""Initdata: the document whose digest the hardware of a confidential machine reports.

Sources: the initdata specification of Trustee (``kbs/docs/initdata.md``); the annotation and the
block device of Kata (``src/runtime``, ``src/agent/src/initdata.rs``). The digest is that of the
exact bytes of the text, a last line break included.
"""

import gzip
import hashlib
import json
import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass

from cloister_crds.kinds.host import TEE

__all__ = ["ANNOTATION", "Initdata", "digest_of", "field_value", "initdata_text", "to_annotation"]

ANNOTATION = "io.katacontainers.config.hypervisor.cc_init_data"
"""Annotation of the Pod that Kata reads initdata from."""
VERSION = "0.1.0"
"""The one version of the specification."""
ALGORITHMS = {TEE.SNP: "sha256", TEE.TDX: "sha384"}
"""Algorithm whose digest fills the hardware's field exactly."""
FIELD_BYTES = {TEE.SNP: 32, TEE.TDX: 48}
"""Bytes of the field that takes the digest: HOST_DATA of SNP, MRCONFIGID of TDX."""

_LITERAL = re.compile(r"[^\x00-\x08\x0b-\x1f\x7f]*")
"""What a literal string of TOML may hold: no control character but tab and line feed."""


@dataclass(frozen=True, slots=True)
class Initdata:
    """An initdata document."""

    tee: TEE
    """Whose field the digest goes to."""
    text: bytes
    """The exact bytes."""

    @property
    def algorithm(self) -> str:
        """Name of the hash as the document itself says it."""
        return ALGORITHMS[self.tee]

    @property
    def digest(self) -> str:
        """Algorithm, a colon, and the digest in hex: what the hardware's field must hold."""
        return f"{self.algorithm}:{digest_of(self.text, self.algorithm).hex()}"

    @property
    def annotation(self) -> str:
        """Value of `ANNOTATION`."""
        return to_annotation(self.text)


def initdata_text(tee: TEE, files: Mapping[str, str]) -> bytes:
    """Write an initdata document.

    Parameters
    ----------
    tee
        SNP or TDX; it decides about the algorithm.
    files
        Content by name.

    Returns
    -------
    bytes
        TOML, the files in the order of their names, ended by one line break.

    Raises
    ------
    KeyError
        When `tee` is None: nothing measures initdata there.
    """
    head = f'version = "{VERSION}"\nalgorithm = "{ALGORITHMS[tee]}"\n\n[data]\n'
    body = "".join(f"{_basic(name)} = {_string(files[name])}\n" for name in sorted(files))
    return (head + body).encode()


def to_annotation(text: bytes) -> str:
    """Pack a document as the annotation carries it: gzip, then base64.

    Parameters
    ----------
    text
        The exact bytes. The time in the gzip header is zero, so that equal documents give equal
        annotations.
    """
    return b64encode(gzip.compress(text, mtime=0)).decode()


def digest_of(text: bytes, algorithm: str) -> bytes:
    """Hash a document.

    Parameters
    ----------
    text
        The exact bytes.
    algorithm
        ``sha256``, ``sha384`` or ``sha512``; the specification has no other.

    Raises
    ------
    ValueError
        When it is another one.
    """
    if algorithm not in {"sha256", "sha384", "sha512"}:
        raise ValueError(f"initdata has no algorithm {algorithm!r}: sha256, sha384 or sha512")
    return hashlib.new(algorithm, text).digest()


def field_value(digest: bytes, tee: TEE) -> bytes:
    """Return what the hardware's field holds for a digest: cut at its end, or filled with zeros.

    Parameters
    ----------
    digest
        The digest, by whatever algorithm.
    tee
        SNP (HOST_DATA, 32 bytes) or TDX (MRCONFIGID, 48 bytes).

    Raises
    ------
    KeyError
        When `tee` is None, which has no field.
    """
    size = FIELD_BYTES[tee]
    return digest[:size].ljust(size, b"\0")


def _string(content: str) -> str:
    """Write a string of TOML: as it is, between lines, where TOML allows that."""
    as_it_is = _LITERAL.fullmatch(content) and "''" not in content and not content.endswith("'")
    return f"'''\n{content}'''" if as_it_is else _basic(content)


def _basic(content: str) -> str:
    """Write a string of TOML with escapes; those of JSON, and the one that JSON leaves out."""
    return json.dumps(content, ensure_ascii=False).replace("\x7f", "\\u007f")
