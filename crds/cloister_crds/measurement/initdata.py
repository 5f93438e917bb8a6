"""The initdata of a confidential machine, and the rules for its agent in it."""

import gzip
import hashlib
import json
import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

from cloister_crds.kinds.host import TEE

__all__ = [
    "ANNOTATION",
    "POD_DOCUMENT",
    "PUBLISHED_RULES",
    "Initdata",
    "digest_of",
    "field_value",
    "initdata_text",
    "pod_of",
    "pod_text",
    "policy_text",
    "rules_digest",
    "rules_text",
    "to_annotation",
]

PUBLISHED_RULES: Final = {
    "sha256:6fd23f075adcb8d75b7e4f3c3922dd143ffeb48a71b6416d6955936d5174f6c1": "Kata Containers 4.1"
}
"""Digests of the rules that this release publishes, and the runtime whose agent reads them."""

POD_DOCUMENT: Final = "pod.json"
"""Name of the description of a Pod among the measured documents."""
_PARTS: Final = ("requests.rego", "containers.rego")
"""Files of the one module; each repeats its head, so that tools can read it on its own."""
_WIDTH: Final = 400
"""Columns of a line that has several parts."""
_BETWEEN: Final = "\ncloister_pod := "
"""What gives the description of the Pod the name under which the rules find it."""


@cache
def rules_text() -> str:
    """Return the rules."""
    folder = files(__package__) / "rules"
    first, *others = ((folder / name).read_text(encoding="utf-8") for name in _PARTS)
    return first + "".join(each.partition("import future.keywords.in\n")[2] for each in others)


@cache
def rules_digest() -> str:
    """Return ``sha256:`` and the hash of the rules."""
    return f"sha256:{hashlib.sha256(rules_text().encode()).hexdigest()}"


def pod_text(data: dict[str, Any]) -> str:
    """Write the description of a Pod.

    Returns
    -------
    str
        JSON without spaces, with a line for each part that is long: the engine of the agent bounds
        the length of lines.
    """
    return "\n".join(_lines(data))


def _lines(value: Any) -> list[str]:
    """Write a value: in one line where that is short, else with a line for each of its parts."""
    short = _json(value)
    if len(short) <= _WIDTH or not isinstance(value, dict | list):
        return [short]
    if isinstance(value, dict):
        parts = [(f"{_json(key)}:", value[key]) for key in sorted(value)]
        first, last = "{", "}"
    else:
        parts = [("", each) for each in value]
        first, last = "[", "]"
    found = [first]
    for head, part in parts:
        start, *rest = _lines(part)
        found += [f"{head}{start}", *rest]
        found[-1] += ","
    found[-1] = found[-1].removesuffix(",")
    return [*found, last]


def _json(value: Any) -> str:
    """Write a value as short as it can be, its keys in order."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def policy_text(pod: str) -> str:
    """Return the policy of one enclave.

    Parameters
    ----------
    pod
        Description of its Pod (`pod_text`).
    """
    return f"{rules_text()}{_BETWEEN}{pod}\n"


def pod_of(policy: str) -> str:
    """Return the description of a Pod in a policy; empty if it has none."""
    return policy.partition(_BETWEEN)[2].removesuffix("\n")


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
