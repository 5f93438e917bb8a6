"""Whether an SSH key is usable and who uses it, and whether API keys can be checked."""

import binascii
from base64 import b64decode
from collections.abc import Iterable, Iterator
from datetime import datetime

from cloister_crds.config.model import ServiceConfig
from cloister_crds.kinds.container import Container
from cloister_crds.kinds.enclave import EnclaveKey
from cloister_crds.kinds.host import Host
from cloister_crds.kinds.meta import ConditionStatus
from cloister_crds.kinds.sshkey import SSHKey, SSHKeyStatus
from cloister_crds.lifecycle.request import named_ssh_keys
from cloister_crds.lifecycle.state.conditions import ConditionUpdate, condition, merge
from cloister_crds.problems import Problem

__all__ = [
    "API_REACHABLE",
    "SHORTEST_RSA",
    "api_reachable_condition",
    "key_error",
    "keys_checked_condition",
    "keys_of",
    "keys_without_api",
    "named_by",
    "ssh_key_status",
]

SHORTEST_RSA = 2048
"""Fewest bits of an RSA key; the SSH server of debug enclaves refuses shorter ones."""
_MODULUS = 2
"""Index of an RSA key's modulus: after its type and its exponent."""
_LAYOUTS: dict[str, tuple[int, int, int | None]] = {
    "ssh-ed25519": (2, 1, 32),
    "ssh-rsa": (3, _MODULUS, None),
    "ecdsa-sha2-nistp256": (3, 2, 65),
    "ecdsa-sha2-nistp384": (3, 2, 97),
    "ecdsa-sha2-nistp521": (3, 2, 133),
    "sk-ssh-ed25519@openssh.com": (3, 1, 32),
    "sk-ecdsa-sha2-nistp256@openssh.com": (4, 2, 65),
}
"""Of each type: how many fields its blob has, which of them is the key, and how many bytes that
has (None means any). Source: RFC 4253, section 6.6; RFC 5656, section 3.1; RFC 8709, section 4;
OpenSSH's PROTOCOL.u2f."""
USED_BY_LIMIT = 1000
"""How many names status.usedBy holds; the schema's bound."""


def named_by(name: str, containers: Iterable[Container]) -> tuple[Container, ...]:
    """Return the Containers of a namespace that use a key: what may run next, or what serves."""
    users = (container for container in containers if name in named_ssh_keys(container))
    return tuple(sorted(users, key=lambda each: each.metadata.name))


def keys_of(names: Iterable[str], keys: Iterable[SSHKey]) -> tuple[EnclaveKey, ...]:
    """Return the keys that a request names, with their present values, ordered by name.

    Parameters
    ----------
    names
        Names of SSHKeys; those that do not exist are ignored (admission refuses them).
    """
    wanted = frozenset(names)
    found = (each for each in keys if each.metadata.name in wanted)
    return tuple(
        EnclaveKey(name=each.metadata.name, public_key=each.spec.public_key)
        for each in sorted(found, key=lambda key: key.metadata.name)
    )


def key_error(public_key: str) -> str | None:
    """Return why a public key cannot be used.

    Parameters
    ----------
    public_key
        One line of an OpenSSH public key file, in the form that the kind's schema checks.

    Returns
    -------
    str | None
        What follows the field's name in a sentence; None when it can be used.
    """
    kind, blob = public_key.split(" ", 2)[:2]
    damaged = "is cut off or damaged; copy the whole line of the .pub file."
    try:
        fields = _fields(b64decode(blob, validate=True))
    except (binascii.Error, ValueError):
        return damaged
    if not fields or fields[0] != kind.encode():
        return f"is declared as {kind} and is of another type; copy the whole line again."
    count, index, length = _LAYOUTS[kind]
    if len(fields) != count or length not in {None, len(fields[index])}:
        return damaged
    if kind == "ssh-rsa":
        bits = int.from_bytes(fields[_MODULUS], "big").bit_length()
        if bits < SHORTEST_RSA:
            return (
                f"is an RSA key of {bits} bits; use one of at least {SHORTEST_RSA}, or an "
                "ssh-ed25519 key."
            )
    return None


def ssh_key_status(key: SSHKey, containers: Iterable[Container], now: datetime) -> SSHKeyStatus:
    """Return the next status of an SSHKey."""
    error = key_error(key.spec.public_key)
    if error is None:
        text = "The key can log in to debug enclaves that name it."
        updates = [ConditionUpdate("Ready", status=True, reason="KeyUsable", message=text)]
    else:
        updates = [
            ConditionUpdate(
                kind,
                status=kind == "Stalled",
                reason="SSHKeyInvalid",
                message=f"spec.publicKey {error}",
            )
            for kind in ("Ready", "Stalled")
        ]
    generation = key.metadata.generation
    return key.status.model_copy(
        update={
            "observed_generation": generation,
            "key_type": key.spec.public_key.partition(" ")[0],
            "used_by": tuple(
                each.metadata.name
                for each in named_by(key.metadata.name, containers)[:USED_BY_LIMIT]
            ),
            "conditions": merge(key.status.conditions, updates, generation=generation, now=now),
        }
    )


def _fields(blob: bytes) -> list[bytes]:
    """Split a key's blob into its fields, each a length of four bytes and that many bytes.

    Raises
    ------
    ValueError
        When the blob ends within a field.
    """
    fields, at = [], 0
    while at < len(blob):
        length = int.from_bytes(blob[at : at + 4], "big")
        end = at + 4 + length
        if at + 4 > len(blob) or end > len(blob):
            raise ValueError("the blob ends within a field")
        fields.append(blob[at + 4 : end])
        at = end
    return fields


API_REACHABLE = "ApiReachable"
"""Condition of a Host: whether its enclaves can reach the API."""
_MISSING = "ApiAddressMissing"


def api_reachable_condition(address: str | None, error: str) -> ConditionUpdate:
    """Return the condition of a Host about whether enclaves can reach the API.

    Parameters
    ----------
    address
        The setting ``apiAddress``; None if it is not set.
    error
        Why it is not reached at present, as a sentence; empty if it is.
    """
    if address is None:
        text = (
            "The operator has no apiAddress: files that require API keys are refused, and no "
            "certificates are signed. Set apiAddress in the operator's settings."
        )
        return ConditionUpdate(API_REACHABLE, status=False, reason=_MISSING, message=text)
    if error:
        return ConditionUpdate(API_REACHABLE, status=False, reason="ApiUnreachable", message=error)
    text = f"The API responds at {address}."
    return ConditionUpdate(API_REACHABLE, status=True, reason="ApiAnswers", message=text)


def keys_without_api(config: ServiceConfig, host: Host | None, *, known: bool) -> Iterator[Problem]:
    """Yield a problem if a file requires keys and enclaves do not know the API's address.

    Parameters
    ----------
    config
        The parsed file.
    host
        The Host that it would run on; None if not known.
    known
        False when the caller has the operator's settings and ``apiAddress`` is not set; else the
        Host's condition decides.
    """
    reachable = condition(host.status.conditions, API_REACHABLE) if host is not None else None
    missing = not known or (reachable is not None and reachable.reason == _MISSING)
    if config.shim.keyed_endpoints and missing:
        yield Problem(
            "shim.authenticated",
            _MISSING,
            "shim.authenticated: enclaves do not know where API keys are checked; ask the "
            "administrator to set apiAddress in the operator's settings, or leave it out.",
        )


def keys_checked_condition(host: Host) -> ConditionUpdate | None:
    """Return whether the keys of an enclave that requires them can be checked now.

    Returns
    -------
    ConditionUpdate | None
        The condition ``KeysChecked`` of a Container; None if the Host has no condition yet.
    """
    reachable = condition(host.status.conditions, API_REACHABLE)
    if reachable is None:
        return None
    if reachable.status is ConditionStatus.TRUE:
        text = "API keys are checked at the API."
        return ConditionUpdate("KeysChecked", status=True, reason=reachable.reason, message=text)
    text = (
        "API keys cannot be checked: requests with one get 503, except for keys that were valid "
        f"a moment ago. {reachable.message}"
    )
    return ConditionUpdate("KeysChecked", status=False, reason=reachable.reason, message=text)
