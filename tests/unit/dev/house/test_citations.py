"""Which tests cite which rule, and the pages made of it."""

from pathlib import Path

import pytest

from dev.house import citations

SPEC = """# Part 1: the API

<a id="12"></a>
## 12 Limits

<a id="12.1"></a>**12.1** It is one.

| rule | key |
|---|---|
| <a id="12.2"></a>12.2 | `cpus` |

<a id="12.10"></a>**12.10** It is served.
"""
SUBJECTS = """
[uncited]
"12.2" = "Advice."

[lifecycle."States"]
stop = "ready → stopped"

[attack."A client"]
key = "a second key"
"""
PYTHON = """
@pytest.MARK.spec("12.1")
@pytest.mark.asyncio
async def test_one(): pass

@pytest.mark.parametrize("a", [1, pytest.param(2, marks=pytest.MARK.attack("key"))])
def test_two(a): pass
"""
IN_PODS = '@pytest.MARK.lifecycle("stop")\ndef test_stop(): pass\n'
GO = "// TestServes has words.\n//\n// spec: 12.1, 12.10\nfunc TestServes(t *testing.T) {}\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Write a checkout in which everything is cited."""
    write(tmp_path, "docs/spec/api.md", SPEC)
    write(tmp_path, "tests/data/citations.toml", SUBJECTS)
    write(tmp_path, "tests/unit/test_a.py", PYTHON)
    write(tmp_path, "tests/cluster/test_b.py", IN_PODS)
    write(tmp_path, "operator/guest/a_test.go", GO)
    return tmp_path


def write(root: Path, name: str, text: str) -> None:
    """Write a file; MARK stands for a mark, which in this file would be one."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.replace("MARK", "mark"), encoding="utf-8")


def test_pages_list_the_tests_of_each_rule(checkout: Path) -> None:
    assert citations.check(checkout) == []
    rules, lifecycle, attacks = citations.pages(checkout).values()
    go = "[`TestServes`](../../operator/guest/a_test.go)"
    assert (
        f"| [12.1](../spec/api.md#12.1) | {go}, [`test_one`](../../tests/unit/test_a.py) |" in rules
    )
    assert f"| [12.10](../spec/api.md#12.10) | {go} |" in rules
    assert "| [12.2](../spec/api.md#12.2) | Advice. |" in rules.partition("of its own")[2]
    assert "| ready → stopped | - | [`test_stop`](../../tests/cluster/test_b.py) |" in lifecycle
    assert "| a second key | [`test_two`](../../tests/unit/test_a.py) |" in attacks


def test_rules_without_a_test_or_a_reason_are_found(checkout: Path) -> None:
    write(checkout, "tests/unit/test_a.py", '@pytest.MARK.spec("12.2")\ndef test_one(): pass\n')
    write(checkout, "operator/guest/a_test.go", "")
    assert [finding.message.partition(";")[0] for finding in citations.check(checkout)] == [
        "no test cites spec 12.1",
        "no test cites spec 12.10",
        "tests cite rule 12.2",
        "no test cites attack key",
    ]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "tests/test_c.py",
            '@pytest.MARK.spec("12.1", "12.4")\ndef test_c(): pass\n',
            "1: spec 12.4 is not in docs/spec",
        ),
        (
            "tests/test_c.py",
            '@pytest.MARK.attack("door")\ndef test_c(): pass\n',
            "1: attack door is not in tests/data/citations.toml",
        ),
        ("tests/test_c.py", "\n@pytest.MARK.spec(*ALL)\ndef test_c(): pass\n", "2: spec: name"),
        (
            "tests/test_c.py",
            'pytestmark = pytest.MARK.spec("12.1")\n',
            "1: mark: is not above a test",
        ),
        (
            "tests/test_c.py",
            '@pytest.MARK.spec("12.1")\ndef made(): pass\n',
            "1: spec: is not above",
        ),
        ("operator/guest/c_test.go", "// spec: 12.1\n\nfunc TestC() {}\n", "1: spec: is not above"),
    ],
)
def test_citations_that_count_for_nothing_are_found(
    checkout: Path, name: str, text: str, message: str
) -> None:
    write(checkout, name, text)
    (finding,) = citations.check(checkout)
    assert str(finding).startswith(f"{name}:{message}")
