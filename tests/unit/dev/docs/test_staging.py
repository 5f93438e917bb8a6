"""The pages of the site: what becomes of links, and where folders stand."""

import subprocess
from pathlib import Path

import pytest

from dev.docs import navigation
from dev.docs.staging import rewritten, stage

KNOWN = {"README.md", "docs/a.md", "docs/p.svg", "docs/spec/README.md", "docs/decisions/index.md"}
OTHERS = {"crds/x.yaml", "dev/x.py", "docs/spec", "docs/decisions"}
FORGE = "https://forge.example/one/two/blob/main/"


@pytest.mark.parametrize(
    ("text", "source", "expected"),
    [
        ("[a](a.md#x) ![p](p.svg) [front](../README.md)", "", None),
        ("[gone](none.md) [gone](../dev/none.py)", FORGE, None),
        ("[out](https://example.org) [mail](mailto:a@example.org) [own](#x)", FORGE, None),
        ("the [manifest](../crds/x.yaml) of", "", "the manifest of"),
        ("[`x.py`](../dev/x.py#L3), [a](a.md)", "", "`x.py`, [a](a.md)"),
        ("[`x.py`](../dev/x.py#L3)", FORGE, f"[`x.py`]({FORGE}dev/x.py#L3)"),
        (
            "[rules](spec) [why](decisions/)",
            "",
            "[rules](spec/README.md) [why](decisions/index.md)",
        ),
        ("`[code](../dev/x.py)`\n\n```\n[code](../dev/x.py)\n```", "", None),
    ],
)
def test_links_lead_to_pages_a_forge_or_nowhere(
    text: str, source: str, expected: str | None
) -> None:
    found = rewritten(text, "docs/b.md", KNOWN, OTHERS, source)
    assert found == (text if expected is None else expected)


def test_a_folder_has_its_pages_and_an_index(tmp_path: Path) -> None:
    root, to = tmp_path / "root", tmp_path / "to"
    for name, text in {
        "README.md": "# Front\n\n[why](docs/decisions) [program](dev/x.py)",
        "dev/docs/navigation.yaml": (
            "- README.md\n- Decisions:\n  - docs/decisions/\n- Rules:\n  - docs/spec/\n"
        ),
        "dev/x.py": "",
        "docs/decisions/b.md": "# Second\n",
        "docs/decisions/a.md": "text\n\n# First one\n",
        "docs/p.svg": "<svg/>",
        "docs/spec/README.md": "# All",
        "docs/spec/api.md": "# Api",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)

    entries = stage(root, to, "")

    assert list(navigation.names(entries)) == [
        "README.md",
        "docs/decisions/index.md",
        "docs/decisions/a.md",
        "docs/decisions/b.md",
        "docs/spec/README.md",
        "docs/spec/api.md",
    ]
    assert (to / "docs/decisions/index.md").read_text() == (
        "# Decisions\n\n* [First one](a.md)\n* [Second](b.md)\n"
    )
    assert (to / "README.md").read_text() == "# Front\n\n[why](docs/decisions/index.md) program"
    assert (to / "docs/p.svg").exists()
    assert not (to / "dev").exists()
