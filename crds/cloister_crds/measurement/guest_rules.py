"""The rules by which the agent of a confidential machine decides what its host may request.

One text for all enclaves, whose digest a release publishes; the description of one Pod comes at
its end (`cloister_operator.enclave.guest_policy`).
"""

import hashlib
import json
from functools import cache
from importlib.resources import files
from typing import Any, Final

__all__ = [
    "POD_DOCUMENT",
    "PUBLISHED_RULES",
    "pod_of",
    "pod_text",
    "policy_text",
    "rules_digest",
    "rules_text",
]

PUBLISHED_RULES: Final = {
    "sha256:6fd23f075adcb8d75b7e4f3c3922dd143ffeb48a71b6416d6955936d5174f6c1": "Kata Containers 4.1"
}
"""Digests of the rules that this release publishes, and the runtime whose agent reads them."""

POD_DOCUMENT: Final = "pod.json"
"""Name of the description of a Pod among the measured documents."""
_PARTS: Final = ("requests.rego", "containers.rego")
"""Files of the one module; each repeats its head, so that tools can read it by itself."""
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
    """Return the description of a Pod in a policy; empty = it has none."""
    return policy.partition(_BETWEEN)[2].removesuffix("\n")
