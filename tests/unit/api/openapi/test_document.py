"""The description of the API: valid, whole, and with an example of each form."""

from html.parser import HTMLParser
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate
from typing_extensions import override

from cloister_api.openapi.document import KINDS, operations
from cloister_api.openapi.examples import EXAMPLES
from tests.support.clients.openapi_check import check_form, described

ALL = {f"{method} {path}": operation for path, method, operation in operations(described())}


def test_the_document_is_valid() -> None:
    validate(described())
    assert described()["openapi"].startswith("3.1")


def test_operation_ids_are_stable_words_and_each_is_there_once() -> None:
    names = [operation["operationId"] for operation in ALL.values()]
    assert len(names) == len(set(names))
    assert all(name.isidentifier() and name.islower() for name in names)


@pytest.mark.spec("20.10")
@pytest.mark.parametrize("name", sorted(ALL))
def test_every_operation_says_what_it_answers(name: str) -> None:
    operation = ALL[name]
    assert operation["description"], name
    successes = [status for status in operation["responses"] if status.startswith("2")]
    assert successes, name
    for status in successes:
        content = operation["responses"][status].get("content", {})
        assert (status == "204") == (not content), name
        for kind, form in content.items():
            assert form["schema"] or kind != "application/json", f"{name} does not say its form"
    if operation["security"]:
        assert {"401", "429", "500", "503"} <= operation["responses"].keys()
    assert all("description" in each or "$ref" in each for each in operation.get("parameters", ()))


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_every_example_has_its_form(name: str) -> None:
    form = described()["components"]["schemas"][name]
    Draft202012Validator.check_schema(form)
    check_form({"$ref": f"#/components/schemas/{name}"}, EXAMPLES[name], name)


def test_every_form_of_a_body_or_an_answer_has_an_example() -> None:
    used: set[str] = set()
    for operation in ALL.values():
        places = [operation.get("requestBody", {}), *operation["responses"].values()]
        for place in places:
            for content in place.get("content", {}).values():
                form = content["schema"].get("items", content["schema"])
                forms = form.get("anyOf", [form])
                used |= {each["$ref"].split("/")[-1] for each in forms if "$ref" in each}
    assert used == set(EXAMPLES)


def test_every_code_of_an_error_has_an_example() -> None:
    form = described()["components"]["schemas"]["ErrorResponse"]
    codes = {kind.code for kind in KINDS.values()}
    assert codes == set(form["properties"]["code"]["enum"])
    for status, kind in KINDS.items():
        check_form({"$ref": "#/components/schemas/ErrorResponse"}, kind.body, str(status))


class Links(HTMLParser):
    """Collects links and their targets, and what a browser would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.targets: set[str] = set()
        self.fetched: list[str] = []

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note one tag."""
        given: dict[str, Any] = dict(attrs)
        if "id" in given:
            self.targets.add(given["id"])
        if tag == "a":
            self.links.add(given["href"])
        if tag in {"script", "link", "img"} or "src" in given:
            self.fetched.append(tag)
