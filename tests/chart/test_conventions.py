"""What administrators know from other charts: labels, security contexts, doors, further objects."""

from typing import Any

import pytest
import yaml

from tests.support.programs.helm import CHART, FULL, LEAST, Helm

pytestmark = pytest.mark.programs("helm")

Rendered = dict[tuple[str, str, str], dict[str, Any]]
SQLITE = LEAST | {"keys": {"existingSecret": "own-keys"}}
POSTGRES = SQLITE | {"ledger": {"postgresql": {"existingSecret": "database"}}}
SYSTEM, PROGRAMS = "cloister-system", ("operator", "api")
OWN = {
    "app.kubernetes.io/name": "cloister",
    "app.kubernetes.io/instance": "cloister",
    "app.kubernetes.io/part-of": "cloister",
    "app.kubernetes.io/managed-by": "Helm",
}
EVERYTHING: dict[str, Any] = {
    "monitoring": {
        name: {"enabled": True}
        for name in ("serviceMonitor", "podMonitor", "prometheusRule", "dashboards")
    },
}
MUTATES = ("--api-versions", "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy")


def for_both(**values: Any) -> dict[str, Any]:
    """Return values of an installation with PostgreSQL and the same values of both programs."""
    return POSTGRES | dict.fromkeys(PROGRAMS, values)


def pod(rendered: Rendered, program: str) -> dict[str, Any]:
    """Return the spec of a program's Pods."""
    found = rendered["Deployment", SYSTEM, f"cloister-{program}"]
    spec: dict[str, Any] = found["spec"]["template"]["spec"]
    return spec


def test_every_object_has_the_labels_of_the_field_and_those_of_the_administrator(
    helm: Helm,
) -> None:
    further = {"team": "platform", "app.kubernetes.io/component": "mine"}
    notes = {"example.com/owner": "platform"}
    values = FULL | EVERYTHING | {"commonLabels": further, "commonAnnotations": notes}
    rendered = helm.rendered(values, *MUTATES)
    kinds = {kind for kind, _, _ in rendered}
    assert {"CustomResourceDefinition", "ValidatingAdmissionPolicy", "ClusterRole"} <= kinds
    assert {"MutatingAdmissionPolicy", "Job", "Pod", "ServiceMonitor", "ConfigMap"} <= kinds
    for found in rendered.values():
        labels = found["metadata"]["labels"]
        assert labels.items() >= OWN.items()
        assert labels["team"] == "platform"
        assert labels["app.kubernetes.io/component"] != "mine"
        assert labels["helm.sh/chart"] == f"cloister-{labels['app.kubernetes.io/version']}"
        assert found["metadata"]["annotations"].items() >= notes.items()


def test_labels_of_an_administrator_are_in_no_selector(helm: Helm) -> None:
    labels = {"commonLabels": {"team": "platform"}}
    without, with_them = (
        helm.rendered(POSTGRES | EVERYTHING | each, *MUTATES) for each in ({}, labels)
    )
    for key, found in with_them.items():
        before, after = without[key].get("spec", {}), found.get("spec", {})
        for name in ("selector", "podSelector"):
            assert before.get(name) == after.get(name)
    template = with_them["Deployment", SYSTEM, "cloister-api"]["spec"]["template"]
    assert template["metadata"]["labels"]["team"] == "platform"


def test_what_stays_on_uninstall_stays_with_further_annotations(helm: Helm) -> None:
    rendered = helm.rendered(SQLITE | {"commonAnnotations": {"a": "b"}})
    for kind in ("CustomResourceDefinition", "ValidatingAdmissionPolicy", "PersistentVolumeClaim"):
        kept = [each for key, each in rendered.items() if key[0] == kind]
        assert kept
        for each in kept:
            assert each["metadata"]["annotations"] == {"a": "b", "helm.sh/resource-policy": "keep"}


@pytest.mark.parametrize("program", PROGRAMS)
def test_security_contexts_can_be_those_of_another_platform(helm: Helm, program: str) -> None:
    own = pod(helm.rendered(POSTGRES), program)
    assert own["securityContext"]["runAsUser"] == own["securityContext"]["fsGroup"]
    assigned = dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"))
    values = for_both(
        podSecurityContext=assigned, securityContext={"seccompProfile": {"type": "RuntimeDefault"}}
    )
    spec = pod(helm.rendered(values), program)
    assert not assigned.keys() & spec["securityContext"].keys()
    assert spec["securityContext"]["runAsNonRoot"]
    (container,) = spec["containers"]
    assert container["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["readOnlyRootFilesystem"]


@pytest.mark.parametrize("program", PROGRAMS)
def test_pods_take_what_pods_of_other_charts_take(helm: Helm, program: str) -> None:
    passed: dict[str, Any] = {
        "hostAliases": [{"ip": "192.0.2.1", "hostnames": ["git.example.com"]}],
        "dnsPolicy": "None",
        "dnsConfig": {"nameservers": ["192.0.2.53"]},
        "runtimeClassName": "gvisor",
        "initContainers": [{"name": "before", "image": "example.com/before"}],
    }
    beside = {"name": "beside", "image": "example.com/beside"}
    values = for_both(
        **passed,
        extraContainers=[beside],
        revisionHistoryLimit=2,
        probes={"startup": {"failureThreshold": 300}, "liveness": {"timeoutSeconds": 20}},
    )
    rendered = helm.rendered(values)
    spec = pod(rendered, program)
    assert {name: spec[name] for name in passed} == passed
    own, other = spec["containers"]
    assert (own["name"], other) == (program, beside)
    assert own["startupProbe"]["failureThreshold"] == 300
    assert own["startupProbe"]["httpGet"]["path"] == "/healthz"
    assert (own["livenessProbe"]["timeoutSeconds"], own["livenessProbe"]["periodSeconds"]) == (
        20,
        10,
    )
    deployment = rendered["Deployment", SYSTEM, f"cloister-{program}"]["spec"]
    assert deployment["revisionHistoryLimit"] == 2
    assert spec["automountServiceAccountToken"] is True


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_account_may_be_made_by_somebody_else(helm: Helm, program: str) -> None:
    name = f"cloister-{program}"
    own = helm.rendered(for_both(serviceAccount={"labels": {"a": "b"}, "automount": False}))
    account = own["ServiceAccount", SYSTEM, name]
    assert account["automountServiceAccountToken"] is False
    assert account["metadata"]["labels"]["a"] == "b"
    other = helm.rendered(for_both(serviceAccount={"create": False}))
    assert ("ServiceAccount", SYSTEM, name) not in other
    assert pod(other, program)["serviceAccountName"] == name


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_disruption_budget_can_be_another_or_none(helm: Helm, program: str) -> None:
    key = ("PodDisruptionBudget", SYSTEM, f"cloister-{program}")
    own = helm.rendered(POSTGRES)[key]["spec"]
    assert own["maxUnavailable"] == 1
    given = {"minAvailable": "50%", "unhealthyPodEvictionPolicy": "AlwaysAllow"}
    spec = helm.rendered(for_both(podDisruptionBudget=given))[key]["spec"]
    assert spec == given | {"selector": own["selector"]}
    assert key not in helm.rendered(for_both(podDisruptionBudget={"enabled": False}))


DASHBOARD = {"dashboard": {"address": "https://console.example.com"}}


@pytest.mark.parametrize(
    ("name", "prefix", "host"),
    [
        ("cloister-api", "", "api.example.com"),
        ("cloister-dashboard", "dashboard", "console.example.com"),
    ],
)
def test_an_ingress_and_a_route_lead_to_the_api_and_to_the_dashboard(
    helm: Helm, name: str, prefix: str, host: str
) -> None:
    def named(word: str) -> str:
        return f"{prefix}{word[0].upper()}{word[1:]}" if prefix else word

    # The dashboard's host is the one of its address.
    hosts = {} if prefix else {"hosts": [host]}
    gateway = {"name": "web", "namespace": "gateways"}
    tls = [{"hosts": [host], "secretName": "certificate"}]
    ingress = {"enabled": True, "className": "nginx", "tls": tls, "annotations": {"a": "b"}}
    api = {
        "settings": DASHBOARD,
        named("service"): {
            "type": "LoadBalancer",
            "port": 8000,
            "nodePort": 30_080,
            "loadBalancerClass": "example.com/internal",
            "externalTrafficPolicy": "Local",
            "annotations": {"a": "b"},
            "labels": {"c": "d"},
        },
        named("ingress"): ingress | hosts,
        named("httpRoute"): {"enabled": True, "parentRefs": [gateway]} | hosts,
    }
    rendered = helm.rendered(SQLITE | {"api": api})
    service = rendered["Service", SYSTEM, name]
    assert service["metadata"]["annotations"] == {"a": "b"}
    assert service["metadata"]["labels"]["c"] == "d"
    assert service["spec"]["loadBalancerClass"] == "example.com/internal"
    assert service["spec"]["externalTrafficPolicy"] == "Local"
    (port,) = service["spec"]["ports"]
    assert (port["port"], port["nodePort"]) == (8000, 30_080)
    found = rendered["Ingress", SYSTEM, name]
    assert (found["spec"]["ingressClassName"], found["spec"]["tls"]) == ("nginx", tls)
    (rule,) = found["spec"]["rules"]
    assert rule["host"] == host
    backend = rule["http"]["paths"][0]["backend"]["service"]
    assert backend == {"name": name, "port": {"name": port["name"]}}
    route = rendered["HTTPRoute", SYSTEM, name]["spec"]
    assert (route["parentRefs"], route["hostnames"]) == ([gateway], [host])
    assert route["rules"] == [{"backendRefs": [{"name": name, "port": port["port"]}]}]


@pytest.mark.parametrize(
    ("api", "sentence"),
    [
        ({"ingress": {"enabled": True}}, "the Ingress cloister-api has no hosts"),
        (
            {"httpRoute": {"enabled": True, "hosts": ["api.example.com"]}},
            "the HTTPRoute cloister-api has no parentRefs",
        ),
        ({"dashboardIngress": {"enabled": True}}, "set api.settings.dashboard"),
    ],
)
def test_a_door_that_leads_nowhere_is_refused(
    helm: Helm, api: dict[str, Any], sentence: str
) -> None:
    assert sentence in helm.refusal(SQLITE | {"api": api})


def test_monitors_and_dashboards_fit_those_who_read_them(helm: Helm) -> None:
    monitor = {
        "enabled": True,
        "scrapeTimeout": "5s",
        "relabelings": [{"action": "labeldrop", "regex": "pod"}],
        "metricRelabelings": [{"action": "drop", "regex": "x", "sourceLabels": ["__name__"]}],
    }
    dashboards = {"enabled": True, "namespace": "grafana", "annotations": {"folder": "Cloister"}}
    monitoring = {"serviceMonitor": monitor, "podMonitor": monitor, "dashboards": dashboards}
    rendered = helm.rendered(SQLITE | {"monitoring": monitoring})
    for kind, field in (("ServiceMonitor", "endpoints"), ("PodMonitor", "podMetricsEndpoints")):
        (endpoint,) = rendered[kind, SYSTEM, "cloister-api"]["spec"][field]
        assert (
            endpoint.items() >= {key: monitor[key] for key in monitor if key != "enabled"}.items()
        )
    dashboard = rendered["ConfigMap", "grafana", "cloister-dashboard-api"]
    assert dashboard["metadata"]["annotations"] == {"folder": "Cloister"}


def test_further_objects_belong_to_the_release(helm: Helm) -> None:
    further = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "mine", "namespace": "{{ .Release.Namespace }}"},
    }
    rendered = helm.rendered(SQLITE | {"extraObjects": [further, further | {"kind": "Secret"}]})
    assert ("ConfigMap", SYSTEM, "mine") in rendered
    assert ("Secret", SYSTEM, "mine") in rendered


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("commonLabels", ["a"]),
        ("api.probes", {"startup": {"httpGet": {"path": "/"}}}),
        ("api.probes", {"ready": {}}),
        ("api.podDisruptionBudget", {"unhealthyPodEvictionPolicy": "Never"}),
        ("operator.initContainers", {"name": "x"}),
        ("operator.revisionHistoryLimit", -1),
        ("operator.serviceAccount", {"automount": "yes"}),
        ("api.service", {"externalTrafficPolicy": "Near"}),
        ("api.ingress", {"hosts": ["https://api.example.com"]}),
        ("api.httpRoute", {"parents": []}),
        ("monitoring.serviceMonitor", {"scrapeTimeout": "soon"}),
        ("extraObjects", "kind: ConfigMap"),
    ],
)
def test_a_wrong_value_of_these_is_refused_by_its_name(helm: Helm, path: str, value: Any) -> None:
    first, _, rest = path.partition(".")
    given = {first: {rest: value} if rest else value}
    assert "/" + path.replace(".", "/") in helm.refusal(SQLITE | given)


def test_the_chart_says_what_it_is(helm: Helm) -> None:
    linted = helm.run("lint", str(CHART), "--strict")
    assert "icon" not in linted.stdout
    assert helm.run("show", "readme", str(CHART)).stdout.count("| `commonLabels` |") == 1
    shown = yaml.safe_load(helm.run("show", "chart", str(CHART)).stdout)
    assert shown["keywords"]
    assert shown["maintainers"] == [{"name": "The Cloister authors"}]
    kinds = yaml.safe_load(shown["annotations"]["artifacthub.io/crds"])
    assert {"Container", "Organization"} <= {each["kind"] for each in kinds}
    assert all(each["description"] for each in kinds)
