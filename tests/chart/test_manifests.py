"""CRDs, policies, roles and accounts of the chart: those of the plain manifests, of the release."""

import json
from typing import Any

import pytest
import yaml

from dev.chart.manifests import follow_release
from tests.support.cluster.admission_policies import MANIFESTS
from tests.support.programs.helm import LEAST, Helm, objects

pytestmark = pytest.mark.programs("helm")

Rendered = dict[tuple[str, str, str], dict[str, Any]]
KEEP = {"helm.sh/resource-policy": "keep"}
CRD = "CustomResourceDefinition"
POLICIES = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
ROLES = ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ResourceQuota")
SYSTEM = "cloister-system"
PART = "app.kubernetes.io/part-of"
ACCOUNT = "ServiceAccount"


MUTATIONS = ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding")
MUTATES = ("--api-versions", "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy")


def plain(*folders: str) -> Rendered:
    """Return the plain manifests, but for namespace and accounts."""
    found: Rendered = {}
    for folder in folders or ("crds", "policies", "roles"):
        for path in sorted((MANIFESTS / folder).glob("*.yaml")):
            if path.name != "accounts.yaml":
                found |= objects(path.read_text(encoding="utf-8"))
    return found


def renamed(found: Rendered, namespace: str, accounts: dict[str, str]) -> Rendered:
    """Return manifests as an installation of other names has them; CRDs name none."""
    crds = {key: each for key, each in found.items() if key[0] == CRD}
    others = json.loads(json.dumps([each for key, each in found.items() if key[0] != CRD]))
    for each in others:
        for subject in each.get("subjects", ()):
            subject["name"] = accounts[subject["name"]]
    text = json.dumps(others)
    for account, name in accounts.items():
        before = f"system:serviceaccount:{SYSTEM}:{account}"
        text = text.replace(before, f"system:serviceaccount:{SYSTEM}:{name}")
    return crds | objects(yaml.safe_dump_all(json.loads(text.replace(SYSTEM, namespace))))


def of_manifests(
    rendered: Rendered, kinds: tuple[str, ...] = (CRD, *POLICIES, *MUTATIONS, *ROLES)
) -> Rendered:
    """Return the rendered objects that the plain manifests have too, with the labels of these."""
    found = {
        key: json.loads(json.dumps(each))
        for key, each in rendered.items()
        if key[0] in kinds and not is_hook(each)
    }
    for each in found.values():
        each["metadata"].pop("annotations", None)
        labels = each["metadata"]["labels"]
        each["metadata"]["labels"] = {PART: labels[PART]}
    return found


def is_hook(found: dict[str, Any]) -> bool:
    """Return whether an object is there for a check alone, and belongs to no installation."""
    return "helm.sh/hook" in found["metadata"].get("annotations", {})


def kept(rendered: Rendered) -> set[str]:
    """Return the kinds of which every object stays on uninstall."""
    stays: dict[str, bool] = {}
    for (kind, _, _), each in rendered.items():
        stays[kind] = stays.get(kind, True) and each["metadata"].get("annotations") == KEEP
    return {kind for kind, all_stay in stays.items() if all_stay}


def test_the_chart_has_what_the_plain_manifests_have(least: Rendered) -> None:
    assert of_manifests(least) == plain()


def test_namespace_and_accounts_follow_the_release(full: Rendered) -> None:
    accounts = {"cloister-operator": "robot", "cloister-api": "facade"}
    found = of_manifests(full)
    assert found == renamed(plain(), "elsewhere", accounts)
    made = [
        name for (kind, _, name), each in full.items() if (kind, is_hook(each)) == (ACCOUNT, False)
    ]
    assert sorted(made) == ["facade", "robot"]
    mentioned = json.dumps([each for key, each in found.items() if key[0] != CRD])
    assert SYSTEM not in mentioned
    assert "system:serviceaccount:elsewhere:robot" in mentioned


def test_kinds_and_policies_stay_on_uninstall_and_roles_do_not(least: Rendered) -> None:
    # The volume of the ledger stays as well.
    assert kept(least) == {CRD, *POLICIES, "PersistentVolumeClaim"}


def test_what_stays_can_be_chosen(helm: Helm) -> None:
    values = LEAST | {
        "keys": {"existingSecret": "own-keys"},
        "crds": {"keep": False},
        "policies": {"keep": False},
    }
    assert kept(helm.rendered(values)) == {"PersistentVolumeClaim"}
    without = helm.rendered(values | {"crds": {"enabled": False}})
    assert not [kind for kind, _, _ in without if kind == CRD]


def test_what_hosts_may_use_of_nodes_are_values(helm: Helm) -> None:
    nodes = {
        "modelDirectories": ["/mnt/weights", "/srv/models"],
        "attestationSockets": [],
        "machineRuntimeClasses": ["kata"],
        "privilegedLauncher": True,
    }
    rendered = helm.rendered(LEAST | {"keys": {"existingSecret": "own-keys"}, "nodes": nodes})
    policy = rendered["ValidatingAdmissionPolicy", "", "cloister-operator"]
    found = {each["name"]: each["expression"] for each in policy["spec"]["variables"]}
    assert {name: json.loads(found[name]) for name in nodes} == nodes


def test_mutating_policies_are_for_clusters_that_have_them(helm: Helm) -> None:
    values = LEAST | {"keys": {"existingSecret": "own-keys"}}
    values |= {"operator": {"serviceAccount": {"name": "robot"}}}
    rendered = helm.rendered(values, *MUTATES)
    accounts = {"cloister-operator": "robot"}
    assert of_manifests(rendered, MUTATIONS) == renamed(plain("mutations"), SYSTEM, accounts)
    assert not kept(rendered) & set(MUTATIONS)


@pytest.mark.parametrize(
    "line",
    ["name: cloister-system", "message: see cloister-system", "namespace: cloister-system-x"],
)
def test_a_manifest_that_cannot_follow_is_an_error(line: str) -> None:
    with pytest.raises(ValueError, match="in a way that no template follows"):
        follow_release(f"metadata:\n  {line}\n")


def test_braces_of_a_manifest_are_not_actions_of_a_template() -> None:
    assert follow_release("x: '{{ y }}'") == "x: '{{ \"{{\" }} y }}'"
