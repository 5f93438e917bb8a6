"""The admission policies: the names are those of the manifests, and lapses are found."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from cloister_clients.kube.kinds import POLICIES, lapsed_policies

FOLDER = Path("crds/manifests/policies")


def installed() -> tuple[list[Any], list[Any]]:
    """Return the policies and the bindings of the manifests."""
    found = [
        each
        for path in sorted(FOLDER.glob("*.yaml"))
        for each in yaml.safe_load_all(path.read_text(encoding="utf-8"))
    ]
    policies = [each for each in found if each["kind"] == "ValidatingAdmissionPolicy"]
    return policies, [each for each in found if each not in policies]


def test_the_names_are_those_of_the_manifests() -> None:
    policies, bindings = installed()
    assert sorted(POLICIES) == sorted(each["metadata"]["name"] for each in policies)
    assert lapsed_policies(policies, bindings) == {}


@pytest.mark.parametrize("name", POLICIES)
def test_each_policy_that_is_not_in_force_is_found(name: str) -> None:
    policies, bindings = copy.deepcopy(installed())
    (policy,) = [each for each in policies if each["metadata"]["name"] == name]
    (binding,) = [each for each in bindings if each["spec"]["policyName"] == name]
    others = [each for each in policies if each is not policy]
    assert lapsed_policies(others, bindings) == {name: "it does not exist"}
    binding["spec"]["validationActions"] = ["Warn", "Audit"]
    unbound = {name: "no binding with the action Deny names it"}
    assert lapsed_policies(policies, bindings) == unbound
    policy["spec"]["failurePolicy"] = "Ignore"
    assert lapsed_policies(policies, bindings) == {name: "its failurePolicy is not Fail"}
