"""The text of the rules: the same for every enclave, with the Pod of one enclave at its end."""

import json
from functools import cache
from importlib.resources import files
from typing import Any, Final

__all__ = ["policy_data_text", "rules_text"]

_PARTS: Final = ("requests.rego", "containers.rego")
"""Files of the one module; each repeats its head, so that tools can read it by itself."""


@cache
def rules_text() -> str:
    """Return the rules, whose digest a release publishes."""
    folder = files(__package__)
    first, *others = ((folder / name).read_text(encoding="utf-8") for name in _PARTS)
    return first + "".join(each.partition("import future.keywords.in\n")[2] for each in others)


def policy_data_text(data: dict[str, Any]) -> str:
    """Write the description of a Pod as one term of Rego.

    Returns
    -------
    str
        JSON with a line for each value: the engine of the agent bounds the length of lines.
    """
    return json.dumps(data, ensure_ascii=False, indent=1, sort_keys=True)
