"""The house check that a reader finds every page of the documentation."""

import subprocess
from pathlib import Path

from dev.house import pages

NAVIGATION = (
    "- README.md\n- Read:\n  - docs/README.md\n  - docs/a.md\n  - More:\n    - docs/more/\n"
)
GOOD = {
    "README.md": "# Front",
    "docs/README.md": "# Pages\n\n[front](../README.md) [a](a.md#a) [more](more)\n",
    "docs/a.md": "# A\n\n[out](https://example.org/docs/b.md)",
    "docs/more/x.md": "# X",
    "docs/more/y.md": "# Y",
    "dev/docs/navigation.yaml": NAVIGATION,
}


def findings(root: Path, changes: dict[str, str]) -> list[str]:
    """Return what the check finds in a repository that is right but for some files."""
    for name, text in (GOOD | changes).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
    return [str(finding) for finding in pages.check(root)]


def test_every_page_of_this_repository_is_found() -> None:
    root = Path(__file__).resolve().parents[4]
    assert [str(finding) for finding in pages.check(root)] == []


def test_pages_that_are_linked_and_listed_are_not_findings(tmp_path: Path) -> None:
    assert findings(tmp_path, {}) == []


def test_a_page_that_nobody_links_or_lists_is_a_finding(tmp_path: Path) -> None:
    assert findings(tmp_path, {"docs/lost.md": "# Lost\n\n[itself](lost.md)"}) == [
        "docs/lost.md: no way of links leads here from docs/README.md; link it from a page",
        "docs/lost.md: not in dev/docs/navigation.yaml; add it where a newcomer would read it",
    ]


def test_a_link_from_an_unreachable_page_helps_nobody(tmp_path: Path) -> None:
    found = findings(tmp_path, {"docs/lost.md": "[x](found.md)", "docs/found.md": "[x](lost.md)"})
    assert [each.partition(":")[0] for each in found if "no way" in each] == [
        "docs/found.md",
        "docs/lost.md",
    ]


def test_wrong_entries_of_the_navigation_are_findings(tmp_path: Path) -> None:
    wrong = NAVIGATION + "- docs/a.md\n- docs/none.md\n- Gone:\n  - docs/gone/\n"
    assert findings(tmp_path, {"dev/docs/navigation.yaml": wrong}) == [
        "dev/docs/navigation.yaml: docs/a.md stands 2 times; once is enough",
        "dev/docs/navigation.yaml: there is no page docs/none.md; remove it",
        "dev/docs/navigation.yaml: there is no page in docs/gone/; remove it",
    ]
