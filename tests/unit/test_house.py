"""The repository follows the rules that `dev.house` checks."""

from dev.house import generated, imports, layout, naming, sources
from dev.house.__main__ import ROOT, main


def test_files_are_in_their_places() -> None:
    assert [str(finding) for finding in layout.check(ROOT)] == []


def test_files_follow_the_content_rules() -> None:
    assert [str(finding) for finding in sources.check(ROOT)] == []


def test_names_are_those_of_the_field_and_used_once() -> None:
    assert [str(finding) for finding in naming.check(ROOT)] == []


def test_imports_need_no_environment() -> None:
    assert [str(finding) for finding in imports.check(ROOT)] == []


def test_generated_files_are_up_to_date() -> None:
    assert [str(finding) for finding in generated.differences(ROOT)] == []


def test_the_command_reports_findings_by_its_exit_code() -> None:
    assert main(["verify"]) == 0
