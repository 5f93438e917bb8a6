"""Files that require API keys where enclaves do not know the API's address."""

from dataclasses import replace
from typing import Any

import pytest

from cloister_crds.config import Shim
from cloister_crds.kinds import Host
from cloister_crds.lifecycle.admission.keys import api_reachable_condition, keys_checked_condition
from cloister_crds.lifecycle.admission.validation import RequestFacts, file_problems
from cloister_crds.lifecycle.state.conditions import merge
from tests.support.builders.resources import NOW, container_of, file_of, host_of, release_of

URL = "https://api.example.com"


def host_that_tells(address: str | None, trouble: str = "") -> Host:
    """Make a Host with what the operator found."""
    host = host_of()
    told = merge((), [api_reachable_condition(address, trouble)], generation=1, now=NOW)
    status = host.status.model_copy(update={"conditions": told})
    return host.model_copy(update={"status": status})


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
    question = RequestFacts(name="web", spec=container_of().spec, organization=None)
    asked = replace(question, release=release_of(file_of(shim=shim)), api_known=known)
    found = {(each.field, each.code) for each in file_problems(asked)}
    assert (("shim.authenticated", "ApiAddressMissing") in found) is wrong


@pytest.mark.parametrize(
    ("host", "wrong"),
    [
        (host_of(), False),
        (host_that_tells(None), True),
        (host_that_tells(URL), False),
        (host_that_tells(URL, "Nobody answers there."), False),
    ],
)
def test_who_has_no_settings_reads_the_same_from_the_host(host: Host, *, wrong: bool) -> None:
    shim = Shim(upstream_port=80, paths=("/",), upstream_container="web", authenticated=True)
    question = RequestFacts(name="web", spec=container_of().spec, organization=None, hosts=(host,))
    found = file_problems(replace(question, release=release_of(file_of(shim=shim))))
    codes = [each.code for each in found if each.field == "shim.authenticated"]
    assert codes == (["ApiAddressMissing"] if wrong else [])


def test_a_host_tells_whether_the_api_is_reached() -> None:
    missing, away, there = (
        api_reachable_condition(None, ""),
        api_reachable_condition(URL, "Nobody answers there. Bring it back."),
        api_reachable_condition(URL, ""),
    )
    assert (missing.status, missing.reason) == (False, "ApiAddressMissing")
    assert "Set apiAddress" in missing.message
    assert (away.status, away.reason) == (False, "ApiUnreachable")
    assert away.message == "Nobody answers there. Bring it back."
    assert (there.status, there.reason) == (True, "ApiAnswers")
    assert URL in there.message


def test_a_container_tells_whether_its_keys_are_checked() -> None:
    assert keys_checked_condition(host_of()) is None
    good = keys_checked_condition(host_that_tells(URL))
    assert good is not None
    assert (good.type, good.status) == ("KeysChecked", True)
    bad = keys_checked_condition(host_that_tells(URL, "Nobody answers there. Bring it back."))
    assert bad is not None
    assert (bad.status, bad.reason) == (False, "ApiUnreachable")
    assert "503" in bad.message
    assert bad.message.endswith("Bring it back.")
