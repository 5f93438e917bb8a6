"""Names and places that the house check refuses."""

from pathlib import Path

import pytest

from dev.house.layout import check


def grow(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('"""Something."""\n')


def test_a_tidy_tree_is_clean(tmp_path: Path) -> None:
    grow(tmp_path, "api/cloister_api/routes.py", "tests/__init__.py", "tests/support/__init__.py")
    assert check(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("operator/__init__.py", "folder of packages"),
        ("crds/loose.py", "loose module"),
        ("api/cloister_api/utils.py", "utils does not describe"),
        ("api/cloister_api/helpers/keys.py", "helpers does not describe"),
        ("dev/common.py", "common does not describe"),
        ("tests/unit/__init__.py", "not packages"),
    ],
)
def test_each_misplaced_file_is_named(tmp_path: Path, name: str, word: str) -> None:
    grow(tmp_path, name)
    (finding,) = check(tmp_path)
    assert finding.path == Path(name)
    assert word in finding.message


@pytest.mark.parametrize(
    ("modules", "nested", "found"),
    [(15, True, 0), (16, True, 1), (24, False, 0), (25, False, 1)],
)
def test_crowded_packages_are_named(
    tmp_path: Path, *, modules: int, nested: bool, found: int
) -> None:
    grow(tmp_path, "api/cloister_api/__init__.py")
    grow(tmp_path, *(f"api/cloister_api/noun{number}.py" for number in range(modules)))
    if nested:
        grow(tmp_path, "api/cloister_api/routes/__init__.py")
    findings = check(tmp_path)
    assert len(findings) == found
    assert all("sort them into sub-packages" in finding.message for finding in findings)


def test_code_of_others_is_not_checked(tmp_path: Path) -> None:
    grow(tmp_path, "dev/demo/service/utils.py")
    assert check(tmp_path) == []
