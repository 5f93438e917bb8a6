"""Lists and tables that the site shows as text."""

from pathlib import Path

import pytest

from dev.docs.misread import misread


@pytest.mark.parametrize("line", ["* an item", "- an item", "5. an item", "| a | row |"])
def test_items_and_rows_in_a_paragraph_are_found(tmp_path: Path, line: str) -> None:
    page = tmp_path / "docs" / "a" / "index.html"
    page.parent.mkdir(parents=True)
    page.write_text(f"<p>Text:\n{line}</p>\n<pre>\n{line}</pre>\n<ol>\n<li>one</li>\n</ol>\n")
    (found,) = misread(tmp_path)
    assert found.startswith(f"docs/a/index.html: text in place of a list or table: {line}")
