"""The house check of links between documents and of citations of the specification."""

import subprocess
from pathlib import Path

import pytest

from dev.house import links

SPEC = '<a id="4"></a>\n## 4 Errors\n\n<a id="4.3"></a>**4.3** A rule.\n'
FENCE = "```"
HYPHEN = "-"
"""Keeps refused texts out of this file."""


def repository(root: Path, files: dict[str, str]) -> list[str]:
    """Write a repository and return what the check finds in it."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
    return [str(finding) for finding in links.check(root)]


def test_every_link_and_citation_of_this_repository_resolves() -> None:
    root = Path(__file__).resolve().parents[4]
    assert [str(finding) for finding in links.check(root)] == []


def test_links_that_resolve_are_not_findings(tmp_path: Path) -> None:
    page = (
        "# One page\n\n[own](#one-page) [other](docs/b.md#the-second-thing) [folder](docs)\n"
        "[encoded](docs/a%20b.md) [root](/docs/b.md) [out](https://example.org/x#y)\n"
        "[mail](mailto:a@example.org) [named][ref] [lines](code.py#L1-L2)\n"
        '[titled](docs/b.md "B") ![picture](docs/p.svg) [row](docs/page.html#get-x)\n\n'
        "[ref]: docs/b.md#4.3\n"
    )
    files = {
        "a.md": page,
        "docs/b.md": f"# B\n## The *second* `thing`!\n{SPEC}",
        "docs/a b.md": "",
        "docs/p.svg": "",
        "docs/page.html": '<h2 id="get-x">x</h2>',
        "code.py": "1\n2\n",
    }
    assert repository(tmp_path, files) == []


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("docs/none.md", "there is no docs/none.md in the repository"),
        ("../outside.md", "there is no ../outside.md in the repository"),
        ("#nowhere", "a.md has no heading or anchor nowhere"),
        ("docs/b.md#nowhere", "docs/b.md has no heading or anchor nowhere"),
        ("code.py#L9", "code.py has no heading or anchor L9"),
        ("code.py#main", "code.py has no heading or anchor main"),
        ("ignored.md", "there is no ignored.md in the repository"),
    ],
)
def test_links_that_lead_nowhere_are_found(tmp_path: Path, target: str, message: str) -> None:
    files = {
        "a.md": f"# A\n\n[a link over\ntwo lines]({target})\n",
        "docs/b.md": "# B\n",
        "code.py": "1\n",
        "ignored.md": "",
        ".gitignore": "ignored.md\n",
    }
    (finding,) = repository(tmp_path, files)
    assert finding.startswith(f"a.md:4: link to {target}: {message}")


def test_links_to_tests_that_are_not_there_are_found(tmp_path: Path) -> None:
    page = "[`test_a`](../a.py) [`TestA`](../a_test.go)\n[`test_b`](../a.py), [`test_a`](..)\n"
    files = {
        "docs/a.md": page,
        "a.py": "async def test_a(): pass\n",
        "a_test.go": "func TestA() {}\n",
    }
    assert repository(tmp_path, files) == [
        "docs/a.md:2: . has no test test_a; correct the name",
        "docs/a.md:2: a.py has no test test_b; correct the name",
    ]


def test_code_holds_no_links() -> None:
    text = f"`[a](b.md)` and ``[a](`b`.md)``\n{FENCE}\n[a](b.md)\n{FENCE}\n[c](d.md)\n"
    assert list(links.links(text)) == [(5, "d.md")]


def test_repeated_headings_get_numbers_and_code_has_no_headings() -> None:
    text = f"# A b\n# A b\n{FENCE}\n# not one\n{FENCE}\n## [Linked](x.md), `code_x` #\n"
    assert links.anchors(text) == {"a-b", "a-b-1", "linked-code_x"}


def test_citations_are_numbers_of_rules_and_sections() -> None:
    text = "spec 4.3\n(spec 6, 21.1 and 22)\nspec\n    4\nspec.tag, spec 1a, inspec 5, spec\n"
    found = [(1, "4.3"), (2, "6"), (2, "21.1"), (2, "22"), (3, "4")]
    assert list(links.citations(text)) == found


@pytest.mark.parametrize("name", ["x.py", "y.go", "z.md", "t.toml", "u.yaml"])
def test_citations_of_numbers_that_do_not_exist_are_found(tmp_path: Path, name: str) -> None:
    files = {"docs/spec/part.md": SPEC, name: "spec 4, 4.3\nspec 4.4\n"}
    (finding,) = repository(tmp_path, files)
    assert finding == f"{name}:2: spec 4.4 does not exist; see docs/spec for the numbers"


def test_a_number_that_two_rules_have_is_found(tmp_path: Path) -> None:
    (finding,) = repository(tmp_path, {"docs/spec/a.md": SPEC, "docs/spec/b.md": SPEC[20:]})
    assert finding.startswith("docs/spec/b.md: spec 4.3 is in docs/spec/a.md too")


@pytest.mark.parametrize(
    "cited",
    [
        "(client~contract, section 4)",
        "the table of the client~contract",
        "Client~contract: before everything else",
        f"reference/client{HYPHEN}contract.md",
        f"../reference/config{HYPHEN}file.md",
        "DESIGN~section 7",
        "DESIGN,~section 7",
        '(spec,~"Errors")',
        '(specification,~"Limits")',
        "(spec,~section 3)",
        "Source:~the specification",
        "Sources:~spec, the table",
        'the specification,~"Networks"',
        'the specification~("Container")',
    ],
)
def test_citations_without_a_number_are_found(tmp_path: Path, cited: str) -> None:
    wrapped = cited.replace("~", "\n")
    files = {
        "docs/spec/part.md": SPEC + cited.replace("~", " "),
        "a.py": cited.replace("~", " "),
        "b.go": f"// {wrapped}\n",
        "c.md": f"[{cited.replace('~', ' ')}](docs/spec/part.md)\n{wrapped}\n",
    }
    found = repository(tmp_path, files)
    places = [finding.split(" ")[0] for finding in found]
    assert places == ["a.py:1:", "b.go:1:", "c.md:2:"]
    assert all("cite a rule of docs/spec by its number" in finding for finding in found)


def test_other_texts_and_code_are_not_citations_without_a_number() -> None:
    text = (
        'run("--config-file", f(spec, "Status"), {**spec, "status": 1})\n'
        "(spec 4.3) Source: spec 4.3. Sources: RFC 1123, section 2.1; the initdata specification\n"
        'the specification in general; (initdata specification, "data"); the contract\n'
    )
    assert list(links.unnumbered(text)) == []
