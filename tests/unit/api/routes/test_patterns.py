"""A text that does not fit is answered with what to write, never with a regular expression."""

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from cloister_api.errors import detail_of
from cloister_api.schemas.containers import (
    PATTERN_WORDS,
    CreateContainerRequest,
    RelaunchRequest,
    ValidateNameRequest,
    ValidateReleaseRequest,
)


def patterns(schema: Any) -> set[str]:
    """Collect all patterns of a JSON schema."""
    if isinstance(schema, list):
        return set().union(*map(patterns, schema))
    if not isinstance(schema, dict):
        return set()
    own = {schema["pattern"]} if isinstance(schema.get("pattern"), str) else set()
    own |= set(schema.get("patternProperties", ()))
    return own.union(*(patterns(value) for value in schema.values()))


@pytest.mark.parametrize(
    "model", [RelaunchRequest, CreateContainerRequest, ValidateReleaseRequest, ValidateNameRequest]
)
def test_every_pattern_of_a_body_has_words(model: type[BaseModel]) -> None:
    assert patterns(model.model_json_schema()) <= PATTERN_WORDS.keys()


@pytest.mark.parametrize(
    ("change", "want_field", "want_words"),
    [
        ({"name": "Web_1"}, "name", "lowercase letters, digits and hyphens"),
        ({"repo": "https://example.com/a/b"}, "repo", "owner/name"),
        ({"secrets": ["a b"]}, "secrets.0", "UPPER_SNAKE_CASE or kebab-case"),
        ({"custom_domain": "x_y.example"}, "custom_domain", "host name"),
    ],
)
def test_the_words_say_what_to_write(
    change: dict[str, Any], want_field: str, want_words: str
) -> None:
    body = {"name": "web", "repo": "acme/web", "tag": "v1", **change}
    with pytest.raises(ValidationError) as caught:
        CreateContainerRequest.model_validate(body)
    problem: dict[str, Any] = dict(caught.value.errors()[0])
    problem["loc"] = ("body", *problem["loc"])
    detail = detail_of(problem)
    assert detail.field == want_field
    assert want_words in detail.message
    assert "^" not in detail.message
