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
    "pod_text",
    "policy_text",
    "rules_digest",
    "rules_text",
]

PUBLISHED_RULES: Final = {
    "sha256:038547169f315f8daa173f9b21fb387f1d527c3378292cdb40c9765f6ef6421a": "Kata Containers 4.1"
}
"""Digests of the rules that this release publishes, and the runtime whose agent reads them."""

POD_DOCUMENT: Final = "pod.json"
"""Name of the description of a Pod among the measured documents."""
_PARTS: Final = ("requests.rego", "containers.rego")
"""Files of the one module; each repeats its head, so that tools can read it by itself."""
_NAME: Final = "cloister_pod"
"""Name under which the rules find the description of the Pod."""


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
        JSON with a line for each value: the engine of the agent bounds the length of lines.
    """
    return json.dumps(data, ensure_ascii=False, indent=1, sort_keys=True)


def policy_text(pod: str) -> str:
    """Return the policy of one enclave.

    Parameters
    ----------
    pod
        Description of its Pod (`pod_text`).
    """
    return f"{rules_text()}\n{_NAME} := {pod}\n"
