"""Files that want API keys where enclaves do not know who checks them."""

from dataclasses import replace
from typing import Any

import pytest

from cloister_crds.config import Shim
from cloister_crds.lifecycle.validation import Question, file_problems
from tests.support.builders import container_of, file_of, release_of


@pytest.mark.parametrize(
    ("fields", "known", "wrong"),
    [
        ({"authenticated": True}, False, True),
        ({"authenticated": True}, True, False),
        ({"authenticated": True, "authenticated_endpoints": ()}, False, False),
        ({"authenticated_endpoints": ("/",)}, False, False),
        ({"rate_limit": 1.0}, False, False),
    ],
)
def test_keys_need_an_api_that_enclaves_know(
    fields: dict[str, Any], *, known: bool, wrong: bool
) -> None:
    shim = Shim(upstream_port=80, paths=("/",), upstream_container="web", **fields)
    question = Question(name="web", spec=container_of().spec, organization=None)
    asked = replace(question, release=release_of(file_of(shim=shim)), api_known=known)
    found = {(each.field, each.code) for each in file_problems(asked)}
    assert (("shim.authenticated", "ApiAddressMissing") in found) is wrong
