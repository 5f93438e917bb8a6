"""The manifests and commands of the pages in docs/gitops, as a reader copies them."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

__all__ = ["ROOT", "Page"]

ROOT = Path(__file__).parents[3]
"""The checkout."""
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Page:
    """One page, with the addresses of the reader's own installation in place of the examples."""

    name: str
    """Name of the file, without suffix."""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """Example on the page -> what the reader has instead."""

    def manifests(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Return the objects of all blocks of YAML by kind and name.

        Raises
        ------
        AssertionError
            When an address does not occur, so that the test would follow another page.
        """
        found = {}
        for text in self._blocks("yaml"):
            for body in yaml.safe_load_all(text):
                key = body["kind"], body["metadata"]["name"]
                assert key not in found, f"docs/gitops/{self.name}.md has {key} twice"
                found[key] = body
        return found

    def commands(self) -> list[list[str]]:
        """Return the commands, split into words as a shell does."""
        lines = "".join(self._blocks("")).replace("\\\n", " ").splitlines()
        return [shlex.split(line, comments=True) for line in lines if line]

    def _blocks(self, language: str) -> list[str]:
        text = (ROOT / "docs" / "gitops" / f"{self.name}.md").read_text(encoding="utf-8")
        for example, own in self.addresses.items():
            assert example in text, f"docs/gitops/{self.name}.md does not name {example}"
            text = text.replace(example, own)
        return [block for kind, block in _BLOCK.findall(text) if kind == language]
