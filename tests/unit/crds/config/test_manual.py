"""The manual names every key, and its example is a file."""

import re
from pathlib import Path

import pytest

from cloister_crds.config import parse
from cloister_crds.config.rules.containers import CONTAINER
from cloister_crds.config.rules.file import FILE
from cloister_crds.config.rules.images import MODEL
from cloister_crds.config.rules.networks import NETWORK
from cloister_crds.config.rules.processes import HEALTHCHECK
from cloister_crds.config.rules.shim import SHIM

MANUAL = (Path(__file__).parents[4] / "docs/configuration-file.md").read_text("utf-8")
TABLES = (FILE, CONTAINER, HEALTHCHECK, MODEL, NETWORK, SHIM)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.noun)
def test_every_key_is_in_the_manual(table: object) -> None:
    for name in ("fields", "refused", "ignored"):
        for entry in getattr(table, name):
            key = getattr(entry, "key", entry)
            assert re.search(rf"(?<![a-z_-]){re.escape(key)}(?![a-z_-])", MANUAL), key


def test_the_first_example_is_valid() -> None:
    example = MANUAL.split("```yaml\n")[1].split("```")[0].replace("<64 hex digits>", "a" * 64)
    parsed = parse(example.encode())
    assert parsed.valid
    assert parsed.problems == ()
