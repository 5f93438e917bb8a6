"""Takes secrets out of what a support bundle holds. Pure.

Twice, since neither is enough: by place (values of variables, commands, data, foreign annotations)
and by content (every value of a Secret that could be read, and what looks like a credential).
"""

import base64
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

__all__ = ["REDACTED", "Redactor", "secret_values"]

REDACTED: Final = "[redacted]"
"""What stands for a secret."""
SHORTEST: Final = 5
"""Characters of the shortest value that is looked for: shorter ones are in every text."""
VALUES: Final = frozenset({"data", "binaryData", "stringData", "members", "customerID", "value"})
"""Fields whose values go; keys of objects and names in lists stay."""
WHOLE: Final = frozenset({"command", "args", "managedFields", "dockerconfigjson"})
"""Fields that go with all that is in them."""
OUR_PREFIXES: Final = (
    *("cloister.dev/", "app.kubernetes.io/", "kubernetes.io/", "node.kubernetes.io/"),
    *("topology.kubernetes.io/", "meta.helm.sh/", "helm.sh/", "pod-security.kubernetes.io/"),
)
"""Prefixes of labels and annotations that tenants do not choose; others may hold anything."""
CREDENTIALS: Final = re.compile(
    r"\b(?:admin_|tk_)[0-9A-Za-z]{20,}"  # keys of this API
    r"|\bgh[a-z]_[0-9A-Za-z]{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{16,}"  # tokens of forges
    r"|\b(?:sk|rk|whsec)_(?:(?:live|test)_)?[0-9A-Za-z]{16,}"  # of Stripe
    r"|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"  # JSON Web Tokens
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|(?<=://)[^/\s@:]*:[^/\s@]+(?=@)"  # user and password in addresses
    r"|(?i:(?<=bearer )|(?<=basic )|(?<=password=)|(?<=token=))[^\s\"'&,;]{5,}",
    re.DOTALL,
)
"""What looks like a credential."""


class Redactor:
    """Removes secrets from texts and objects.

    Parameters
    ----------
    values
        Values of secrets; short ones are not looked for.
    """

    def __init__(self, values: Iterable[str] = ()) -> None:
        known = {form for value in values if len(value) >= SHORTEST for form in _forms(value)}
        longest_first = sorted(known, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, longest_first))) if known else None

    def text(self, text: str) -> str:
        """Return a text without what is known, or looks like, a secret."""
        if self._known is not None:
            text = self._known.sub(REDACTED, text)
        return CREDENTIALS.sub(REDACTED, text)

    def body(self, body: Any, *, hidden: bool = False) -> Any:
        """Return JSON data without secrets.

        Parameters
        ----------
        body
            The data.
        hidden
            Whether every string in it is a secret.
        """
        if isinstance(body, Mapping):
            return {
                self.text(key): self._field(key, value, hidden=hidden)
                for key, value in body.items()
                if key != "managedFields"
            }
        if isinstance(body, list | tuple):
            return [self.body(each, hidden=hidden) for each in body]
        if hidden and body is not None:
            return REDACTED
        return self.text(body) if isinstance(body, str) else body

    def _field(self, key: str, value: Any, *, hidden: bool) -> Any:
        """Return a field without secrets."""
        if key in {"annotations", "labels"} and isinstance(value, Mapping):
            ours = {name: text for name, text in value.items() if name.startswith(OUR_PREFIXES)}
            return {**self.body(ours), **_count(len(value) - len(ours))}
        if key in WHOLE or key.startswith("."):
            return REDACTED
        return self.body(value, hidden=hidden or key in VALUES)


def secret_values(secret: Mapping[str, Any]) -> set[str]:
    """Return the values of a core Secret, and the strings in those that are JSON."""
    found = set()
    for encoded in (secret.get("data") or {}).values():
        text = base64.b64decode(encoded).decode(errors="replace").strip()
        found |= {text, *(line.strip() for line in text.splitlines())}
        try:
            found |= _strings(json.loads(text))
        except ValueError:
            continue
    return found


def _strings(data: Any) -> set[str]:
    """Return every string value in JSON data."""
    if isinstance(data, Mapping):
        return {text for value in data.values() for text in _strings(value)}
    if isinstance(data, list):
        return {text for value in data for text in _strings(value)}
    return {data} if isinstance(data, str) else set()


def _forms(value: str) -> tuple[str, str, str]:
    """Return a value as it is, in base64, and as JSON writes it."""
    encoded = base64.b64encode(value.encode(errors="replace")).decode()
    return value, encoded.rstrip("="), json.dumps(value)[1:-1]


def _count(left_out: int) -> dict[str, str]:
    """Return a note of how many entries were left out; empty = none."""
    return {REDACTED: f"{left_out} others"} if left_out else {}
