"""What Helm runs beside the programs: checks before an upgrade and a deletion, and `helm test`."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from cloister_api.settings import ApiSettings
from cloister_cli.doctor.command import doctor
from cloister_cli.doctor.upgrade import upgrade_check
from cloister_crds.installation import CONFIG_MAP_NAME
from cloister_operator.settings import read_settings
from tests.support.programs.helm import LEAST, Helm

pytestmark = pytest.mark.programs("helm")

Rendered = dict[tuple[str, str, str], dict[str, Any]]
SQLITE = LEAST | {"keys": {"existingSecret": "own-keys"}}
HOOK = "helm.sh/hook"
CHECK = "cloister-upgrade-check"
CLASSES = ["system-cluster-critical"]


def hooks(rendered: Rendered, event: str) -> Rendered:
    """Return the objects that Helm makes at an event."""
    return {
        key: each
        for key, each in rendered.items()
        if event in each["metadata"].get("annotations", {}).get(HOOK, "").split(",")
    }


def pod_spec(found: dict[str, Any]) -> dict[str, Any]:
    """Return the spec of a Pod, or of the Pod of a Job."""
    spec: dict[str, Any] = found["spec"]
    return spec["template"]["spec"] if found["kind"] == "Job" else spec


def is_restricted(spec: dict[str, Any]) -> bool:
    """Return whether Pod Security `restricted` lets a Pod in, with a root that is read-only."""
    pod = spec["securityContext"]
    return bool(
        pod["runAsNonRoot"] and pod["seccompProfile"] == {"type": "RuntimeDefault"}
    ) and all(
        each["securityContext"]
        == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        for each in spec["containers"]
    )


def test_every_pod_of_a_hook_is_restricted(least: Rendered, full: Rendered) -> None:
    for rendered in (least, full):
        found = [
            each
            for each in rendered.values()
            if each["kind"] in {"Job", "Pod"} and HOOK in each["metadata"]["annotations"]
        ]
        assert len(found) == 4
        assert all(map(is_restricted, map(pod_spec, found)))


def test_deletion_waits_for_a_check_unless_it_is_forced(helm: Helm, least: Rendered) -> None:
    check = least["Job", "cloister-system", "cloister-uninstall-check"]
    assert check["metadata"]["annotations"]["helm.sh/hook"] == "pre-delete"
    (container,) = check["spec"]["template"]["spec"]["containers"]
    restore = "helm rollback cloister 1 -n cloister-system"
    assert container["args"] == ["uninstall-check", "--restore-command", restore]
    forced = helm.rendered(SQLITE | {"uninstall": {"force": True}})
    assert not hooks(forced, "pre-delete")


def test_an_upgrade_begins_with_a_check_of_the_settings_to_come(
    helm: Helm, full: Rendered, tmp_path: Path
) -> None:
    """Its account, rights and settings are there before it, and go with it."""
    found = hooks(full, "pre-upgrade")
    assert {kind for kind, _, _ in found} == {
        *("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"),
        *("ConfigMap", "Job"),
    }
    assert {name for _, _, name in found} == {CHECK}
    weights = {
        kind: int(each["metadata"]["annotations"]["helm.sh/hook-weight"])
        for (kind, _, _), each in found.items()
    }
    assert max(weights, key=weights.__getitem__) == "Job"
    assert sorted(weights.values())[-2] < weights["Job"]
    gone = {
        each["metadata"]["annotations"]["helm.sh/hook-delete-policy"] for each in found.values()
    }
    assert gone == {"before-hook-creation,hook-succeeded"}
    data = found["ConfigMap", "elsewhere", CHECK]["data"]
    for program in ("operator", "api"):
        template = full["Deployment", "elsewhere", f"cloister-{program}"]["spec"]["template"]
        present = template["metadata"]["annotations"]["cloister.dev/settings"]
        assert yaml.safe_load(data[f"{program}.yaml"]) == yaml.safe_load(present)
        (tmp_path / f"{program}.yaml").write_text(data[f"{program}.yaml"])
    read_settings(tmp_path / "operator.yaml")
    ApiSettings.read(tmp_path / "api.yaml")
    without = helm.rendered(SQLITE | {"checks": {"upgrade": False}})
    assert not hooks(without, "pre-upgrade")


def test_the_check_of_an_upgrade_has_the_rights_that_it_needs(full: Rendered) -> None:
    found = hooks(full, "pre-upgrade")
    spec = pod_spec(found["Job", "elsewhere", CHECK])
    assert (
        spec["serviceAccountName"]
        == found["ServiceAccount", "elsewhere", CHECK]["metadata"]["name"]
    )
    for kind, namespace in (("ClusterRole", ""), ("Role", "elsewhere")):
        binding = found[f"{kind}Binding", namespace, CHECK]
        assert binding["roleRef"]["kind"] == kind
        assert binding["subjects"] == [
            {"kind": "ServiceAccount", "name": CHECK, "namespace": "elsewhere"}
        ]
    assert found["ClusterRole", "", CHECK]["rules"] == [
        {
            "apiGroups": ["apiextensions.k8s.io"],
            "resources": ["customresourcedefinitions"],
            "verbs": ["get"],
        },
        {
            "apiGroups": ["cloister.dev"],
            "resources": ["containers", "domains"],
            "verbs": ["list"],
        },
        {
            "apiGroups": ["scheduling.k8s.io"],
            "resources": ["priorityclasses"],
            "resourceNames": CLASSES,
            "verbs": ["get"],
        },
    ]
    of_deployments, *of_files = found["Role", "elsewhere", CHECK]["rules"]
    assert of_deployments == {
        "apiGroups": ["apps"],
        "resources": ["deployments"],
        "verbs": ["list"],
    }
    mounted = {(each["resources"][0], name) for each in of_files for name in each["resourceNames"]}
    assert mounted == {
        ("secrets" if "secret" in source else "configmaps", each["name"])
        for program in ("operator", "api")
        for volume in full["Deployment", "elsewhere", f"cloister-{program}"]["spec"]["template"][
            "spec"
        ]["volumes"]
        for source in volume.get("projected", {}).get("sources", ())
        for each in source.values()
    } | {("configmaps", CONFIG_MAP_NAME)}
    assert {verb for each in of_files for verb in each["verbs"]} == {"get"}
    (container,) = spec["containers"]
    command, *arguments = container["args"]
    context = upgrade_check.make_context(command, arguments)
    assert context.params["namespace"] == "elsewhere"
    assert list(context.params["priority_classes"]) == CLASSES
    mounts = {each["mountPath"] for each in container["volumeMounts"]}
    assert mounts == {str(context.params["settings"])}


def test_the_tests_of_a_release_are_doctors_by_both_accounts(
    helm: Helm, least: Rendered, full: Rendered
) -> None:
    """Each has what its program has; the volume of SQLite is the API's alone."""
    for program, account in (("operator", "robot"), ("api", "facade")):
        spec = full["Pod", "elsewhere", f"cloister-test-{program}"]["spec"]
        assert spec["serviceAccountName"] == account
        assert spec["restartPolicy"] == "Never"
        (container,) = spec["containers"]
        command, *arguments = container["args"]
        assert command == "doctor"
        given = doctor.make_context(command, arguments).params
        assert given["namespace"] == "elsewhere"
        assert (given["operator_account"], given["api_account"]) == ("robot", "facade")
        assert str(given[f"{program}_config"]) == f"/etc/cloister/config/{program}.yaml"
        template = full["Deployment", "elsewhere", f"cloister-{program}"]["spec"]["template"]
        name = "cloister.dev/settings"
        pod = full["Pod", "elsewhere", f"cloister-test-{program}"]
        assert pod["metadata"]["annotations"][name] == template["metadata"]["annotations"][name]
        target = template["spec"]
        assert spec["volumes"] == [each for each in target["volumes"] if each["name"] != "ledger"]
    arguments = least["Pod", "cloister-system", "cloister-test-api"]["spec"]["containers"][0][
        "args"
    ]
    assert "--api-config" not in arguments
    without = helm.rendered(SQLITE | {"checks": {"tests": False}})
    assert not hooks(without, "test")


def test_labels_of_hooks_are_selected_by_no_service_or_policy(full: Rendered) -> None:
    selectors = [
        each["spec"].get("podSelector", each["spec"].get("selector", {}))
        for each in full.values()
        if each["kind"] in {"NetworkPolicy", "Service", "PodDisruptionBudget"}
    ]
    wanted = [each.get("matchLabels", each) for each in selectors]
    assert wanted
    for kind, _, name in (
        hooks(full, "test") | hooks(full, "pre-upgrade") | hooks(full, "pre-delete")
    ):
        if kind not in {"Job", "Pod"}:
            continue
        found = full[kind, "elsewhere", name]
        template = found["spec"]["template"] if kind == "Job" else found
        labels = template["metadata"]["labels"]
        assert not [each for each in wanted if each.items() <= labels.items()]
