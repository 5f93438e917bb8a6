"""What the chart gives the programs: settings that they read, files, probes, volumes, images."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from cloister_api.commands.backup import backup
from cloister_api.settings import ApiSettings
from cloister_clients.telemetry import LogFormat
from cloister_operator.settings import OperatorSettings, read_settings
from tests.support.programs.helm import CHART, FULL, LEAST, Helm

pytestmark = pytest.mark.programs("helm")

Rendered = dict[tuple[str, str, str], dict[str, Any]]
FILES = Path("/etc/cloister/files")
SQLITE = LEAST | {"keys": {"existingSecret": "own-keys"}}


def settings_of(rendered: Rendered, program: str) -> str:
    """Return the settings of a program as its Pod has them, in a file that no upgrade changes."""
    (template,) = (
        each["spec"]["template"]
        for (kind, _, name), each in rendered.items()
        if kind == "Deployment" and name == f"cloister-{program}"
    )
    (volume,) = (each for each in template["spec"]["volumes"] if each["name"] == "config")
    (item,) = volume["downwardAPI"]["items"]
    assert item["path"] == f"{program}.yaml"
    assert item["fieldRef"] == {"fieldPath": "metadata.annotations['cloister.dev/settings']"}
    return str(template["metadata"]["annotations"]["cloister.dev/settings"])


def settings_file(rendered: Rendered, program: str, folder: Path) -> Path:
    """Write the settings of a program as its Pod has them."""
    path = folder / f"{program}.yaml"
    path.write_text(settings_of(rendered, program), encoding="utf-8")
    return path


def pod(rendered: Rendered, name: str, kind: str = "Deployment") -> dict[str, Any]:
    """Return the spec of a Pod."""
    (found,) = (each for key, each in rendered.items() if (key[0], key[2]) == (kind, name))
    spec: dict[str, Any] = found["spec"]["template"]["spec"]
    return spec


def mounted(spec: dict[str, Any]) -> set[Path]:
    """Return the paths of the files that settings may name."""
    (volume,) = (each for each in spec["volumes"] if each["name"] == "files")
    return {
        FILES / item["path"]
        for source in volume["projected"]["sources"]
        for item in next(iter(source.values()))["items"]
    }


def named(settings: Any) -> set[Path]:
    """Return the files that settings name."""
    if isinstance(settings, dict):
        return set().union(*map(named, settings.values()))
    if isinstance(settings, (list, tuple)):
        return set().union(*map(named, settings))
    return {settings} if isinstance(settings, Path) and settings.is_relative_to(FILES) else set()


def test_the_programs_read_the_least_settings(least: Rendered, tmp_path: Path) -> None:
    operator = read_settings(settings_file(least, "operator", tmp_path))
    assert operator.containers_domain == "containers.example.com"
    assert operator.operator_namespace == "cloister-system"
    assert (operator.health.host, operator.health.port) == ("0.0.0.0", 8081)
    api = ApiSettings.read(settings_file(least, "api", tmp_path))
    assert api.ledger.path == Path("/var/lib/cloister/ledger.sqlite")
    assert not api.development
    assert operator.log.format == api.log_format == LogFormat.JSON


def test_the_programs_read_all_settings(full: Rendered, tmp_path: Path) -> None:
    operator = read_settings(settings_file(full, "operator", tmp_path))
    assert operator.operator_namespace == "elsewhere"
    assert (operator.accounts.operator, operator.accounts.api) == ("robot", "facade")
    assert operator.sources.file_names == ("service-config.yml", "other.yml")
    assert operator.health.stale_seconds == FULL["operator"]["settings"]["health"]["staleSeconds"]
    api = ApiSettings.read(settings_file(full, "api", tmp_path))
    assert api.operator_namespace == "elsewhere"
    # The API has the names of the file from the operator, and refuses them here.
    assert api.sources == operator.sources.model_copy(
        update={"file_names": api.sources.file_names, "max_file_bytes": api.sources.max_file_bytes}
    )
    assert api.ledger.path is None
    assert api.certificates is not None


@pytest.mark.parametrize("program", ["operator", "api"])
def test_every_file_that_settings_name_is_mounted(
    full: Rendered, program: str, tmp_path: Path
) -> None:
    path = settings_file(full, program, tmp_path)
    settings: OperatorSettings | ApiSettings = (
        read_settings(path) if program == "operator" else ApiSettings.read(path)
    )
    spec = pod(full, f"cloister-{program}")
    assert mounted(spec) == named(settings.model_dump())
    assert {"name": "files", "mountPath": str(FILES), "readOnly": True} in spec["containers"][0][
        "volumeMounts"
    ]


@pytest.mark.parametrize("program", ["operator", "api"])
def test_pods_start_again_with_other_settings_and_with_no_other_change(
    helm: Helm, least: Rendered, program: str
) -> None:
    def stamp(rendered: Rendered) -> str:
        return settings_of(rendered, program)

    other = SQLITE | {
        program: {"settings": {"writeWaitSeconds": 7} if program == "api" else {"workers": 7}}
    }
    assert stamp(helm.rendered(other)) != stamp(least)
    same = SQLITE | {program: {"labels": {"a": "b"}}, "networkPolicy": {"enabled": False}}
    assert stamp(helm.rendered(same)) == stamp(least)


def test_sqlite_has_one_pod_at_a_time_and_a_volume(helm: Helm, least: Rendered) -> None:
    deployment = least["Deployment", "cloister-system", "cloister-api"]["spec"]
    assert deployment["replicas"] == 1
    assert deployment["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    claims = [each for each in pod(least, "cloister-api")["volumes"] if each["name"] == "ledger"]
    assert claims == [{"name": "ledger", "persistentVolumeClaim": {"claimName": "cloister-ledger"}}]
    assert ("PersistentVolumeClaim", "cloister-system", "cloister-ledger") in least
    given = {"sqlite": {"existingClaim": "mine"}}
    other = helm.rendered(SQLITE | {"ledger": given})
    assert not [kind for kind, _, _ in other if kind == "PersistentVolumeClaim"]
    assert "mine" in json.dumps(pod(other, "cloister-api")["volumes"])


def test_postgres_has_replicas_of_its_own_or_of_an_autoscaler(helm: Helm, full: Rendered) -> None:
    ledger = {"ledger": {"postgresql": {"existingSecret": "database"}}}
    rendered = helm.rendered(SQLITE | ledger)
    found = rendered["Deployment", "cloister-system", "cloister-api"]["spec"]
    assert (found["replicas"], found["strategy"]["type"]) == (2, "RollingUpdate")
    kinds = {(kind, name) for kind, _, name in rendered}
    assert ("PodDisruptionBudget", "cloister-api") in kinds
    assert ("PodDisruptionBudget", "cloister-operator") in kinds
    assert "HorizontalPodAutoscaler" not in {kind for kind, _ in kinds}
    assert "replicas" not in full["Deployment", "elsewhere", "cloister-api"]["spec"]
    scaler = full["HorizontalPodAutoscaler", "elsewhere", "cloister-api"]["spec"]
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (2, 6)


def test_a_pod_has_time_to_drain(least: Rendered, full: Rendered) -> None:
    """The API drains for 5 s and finishes requests for 30 s unless it is told otherwise."""
    assert pod(least, "cloister-api")["terminationGracePeriodSeconds"] == 5 + 30 + 15
    assert pod(full, "cloister-api")["terminationGracePeriodSeconds"] == 8 + 20 + 15


@pytest.mark.parametrize("program", ["operator", "api"])
def test_probes_ask_the_ports_that_the_program_serves(
    least: Rendered, program: str, tmp_path: Path
) -> None:
    path = settings_file(least, program, tmp_path)
    (container,) = pod(least, f"cloister-{program}")["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    if program == "operator":
        assert ports == {"metrics": read_settings(path).health.port}
    else:
        api = ApiSettings.read(path)
        assert ports == {"http": api.listen.port, "metrics": api.metrics.port}
    asked = {
        name: (
            container[f"{name}Probe"]["httpGet"]["path"],
            container[f"{name}Probe"]["httpGet"]["port"],
        )
        for name in ("startup", "liveness", "readiness")
    }
    port = "metrics" if program == "operator" else "http"
    assert asked == {
        "startup": ("/healthz", port),
        "liveness": ("/healthz", port),
        "readiness": ("/readyz", port),
    }


def test_pods_take_what_an_administrator_adds(full: Rendered) -> None:
    spec, given = pod(full, "cloister-operator"), FULL["operator"]
    (container,) = spec["containers"]
    assert spec["serviceAccountName"] == "robot"
    assert spec["imagePullSecrets"] == [{"name": "pull"}]
    for name in ("priorityClassName", "nodeSelector", "tolerations", "affinity"):
        assert spec[name] == given[name]
    assert spec["topologySpreadConstraints"] == []
    assert container["env"][1:] == given["extraEnv"]
    assert given["extraVolumes"][0] in spec["volumes"]
    assert given["extraVolumeMounts"][0] in container["volumeMounts"]
    metadata = full["Deployment", "elsewhere", "cloister-operator"]["spec"]["template"]["metadata"]
    assert metadata["labels"]["example.com/team"] == "platform"
    assert metadata["annotations"]["example.com/note"] == "operator"
    account = full["ServiceAccount", "elsewhere", "robot"]["metadata"]
    assert account["annotations"] == given["serviceAccount"]["annotations"]


def test_a_label_of_an_administrator_changes_no_selector(helm: Helm) -> None:
    labels = {"app.kubernetes.io/component": "other"}
    rendered = helm.rendered(SQLITE | {"operator": {"labels": labels}})
    found = rendered["Deployment", "cloister-system", "cloister-operator"]["spec"]
    selector = found["selector"]["matchLabels"]
    assert selector.items() <= found["template"]["metadata"]["labels"].items()


@pytest.mark.parametrize(
    ("image", "reference"),
    [
        ({}, "registry.example.com/cloister:{version}"),
        ({"tag": "v9"}, "registry.example.com/cloister:v9"),
        (
            {"tag": "v9", "digest": f"sha256:{'d' * 64}"},
            f"registry.example.com/cloister@sha256:{'d' * 64}",
        ),
        (
            {"registry": "other.example.com", "repository": "a/b"},
            "registry.example.com/a/b:{version}",
        ),
    ],
)
def test_a_digest_counts_before_a_tag_and_one_registry_for_all(
    helm: Helm, image: dict[str, str], reference: str
) -> None:
    images = {**LEAST["images"], "cloister": image}
    rendered = helm.rendered(SQLITE | {"images": images})
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    for name, kind in (("cloister-operator", "Deployment"), ("cloister-uninstall-check", "Job")):
        (container,) = pod(rendered, name, kind)["containers"]
        assert container["image"] == reference.format(version=version)


def test_certificates_of_the_own_authority_have_settings(helm: Helm) -> None:
    chosen = {"requestsPerHour": 9, "own": {"lifetimeSeconds": 86_400}}
    values = FULL | {"api": {"settings": {"certificates": chosen}}}
    found = json.loads(settings_of(helm.rendered(values), "api"))["certificates"]
    assert (found["issuer"], found["requestsPerHour"]) == ("own", 9)
    assert found["own"].keys() == {"certificate", "key", "lifetimeSeconds"}


def test_an_image_may_have_a_registry_of_its_own(helm: Helm) -> None:
    images = {
        name: {"registry": f"{name}.example.com", "digest": f"sha256:{'e' * 64}"}
        for name in ("cloister", "guest", "shim")
    }
    rendered = helm.rendered(SQLITE | {"global": {}, "images": images})
    settings = read_settings(settings_file(rendered, "operator", helm.folder))
    assert settings.guest_image.startswith("guest.example.com/cloister-guest@")
    assert settings.shim_image.startswith("shim.example.com/cloister-shim@")


def test_network_policies_open_what_is_served(helm: Helm, least: Rendered, full: Rendered) -> None:
    def opened(program: str) -> dict[int, Any]:
        rules = least["NetworkPolicy", "cloister-system", f"cloister-{program}"]["spec"]["ingress"]
        return {port["port"]: rule.get("from") for rule in rules for port in rule["ports"]}

    own_namespace: Any = [{"podSelector": {}}]
    assert opened("operator") == {8081: own_namespace}
    assert opened("api") == {9090: own_namespace, 8080: None}
    peers = [{"podSelector": {"matchLabels": {"app": "gateway"}}}]
    narrow = helm.rendered(SQLITE | {"networkPolicy": {"apiFrom": peers, "metricsFrom": []}})
    rules = narrow["NetworkPolicy", "cloister-system", "cloister-api"]["spec"]["ingress"]
    assert [rule["from"] for rule in rules] == [peers]
    assert not narrow["NetworkPolicy", "cloister-system", "cloister-operator"]["spec"]["ingress"]
    none = helm.rendered(SQLITE | {"networkPolicy": {"enabled": False}})
    assert not [kind for kind, _, _ in none if kind == "NetworkPolicy"]
    assert ("NetworkPolicy", "elsewhere", "cloister-api") in full


@pytest.mark.parametrize("way", ["serviceMonitor", "podMonitor"])
def test_monitors_find_the_metrics_of_both_programs(helm: Helm, least: Rendered, way: str) -> None:
    kind = way[0].upper() + way[1:]
    assert kind not in {found for found, _, _ in least}
    chosen = {way: {"enabled": True, "interval": "15s", "labels": {"release": "prometheus"}}}
    rendered = helm.rendered(SQLITE | {"monitoring": chosen})
    for program in ("operator", "api"):
        found = rendered[kind, "cloister-system", f"cloister-{program}"]
        assert found["metadata"]["labels"]["release"] == "prometheus"
        wanted = found["spec"]["selector"]["matchLabels"]
        if way == "podMonitor":
            target = rendered["Deployment", "cloister-system", f"cloister-{program}"]
            labels = target["spec"]["template"]["metadata"]["labels"]
            (endpoint,) = found["spec"]["podMetricsEndpoints"]
        else:
            service = rendered["Service", "cloister-system", f"cloister-{program}-metrics"]
            labels = service["metadata"]["labels"]
            (endpoint,) = found["spec"]["endpoints"]
        assert wanted.items() <= labels.items()
        assert endpoint == {"port": "metrics", "interval": "15s"}


def test_a_dashboard_has_a_port_and_a_service_of_its_own(
    helm: Helm, least: Rendered, tmp_path: Path
) -> None:
    assert ("Service", "cloister-system", "cloister-dashboard") not in least
    address = "https://console.example.com"
    peers = [{"podSelector": {"matchLabels": {"app": "gateway"}}}]
    rendered = helm.rendered(
        SQLITE
        | {
            "api": {"settings": {"dashboard": {"address": address}}},
            "networkPolicy": {"dashboardFrom": peers},
        }
    )
    settings = ApiSettings.read(settings_file(rendered, "api", tmp_path))
    assert settings.dashboard is not None
    assert settings.dashboard.address == address
    (container,) = pod(rendered, "cloister-api")["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports["dashboard"] == settings.dashboard.listen.port
    service = rendered["Service", "cloister-system", "cloister-dashboard"]["spec"]
    assert service["ports"] == [{"name": "http", "port": 80, "targetPort": "dashboard"}]
    rules = rendered["NetworkPolicy", "cloister-system", "cloister-api"]["spec"]["ingress"]
    opened = {port["port"]: rule.get("from") for rule in rules for port in rule["ports"]}
    assert opened[settings.dashboard.listen.port] == peers


def test_the_secret_of_the_openid_provider_is_a_mounted_secret(helm: Helm, tmp_path: Path) -> None:
    oidc = {
        "name": "Acme SSO",
        "issuer": "https://id.example.com",
        "clientId": "cloister",
        "clientSecretFile": {"secret": "cloister-oidc", "key": "client-secret"},
        "caFile": {"configMap": "authorities", "key": "ca.crt"},
    }
    dashboard = {"address": "https://console.example.com", "oidc": oidc}
    rendered = helm.rendered(SQLITE | {"api": {"settings": {"dashboard": dashboard}}})
    settings = ApiSettings.read(settings_file(rendered, "api", tmp_path))
    assert settings.dashboard is not None
    found = settings.dashboard.oidc
    assert found is not None
    assert found.ca_file is not None
    wanted = {found.client_secret_file, found.ca_file}
    assert wanted <= mounted(pod(rendered, "cloister-api"))
    secret = {"secret": "cloister-oidc", "key": "client-secret"}
    assert found.client_secret_file == FILES.joinpath("secret", *secret.values())


def test_backups_have_the_settings_of_the_api_and_need_a_place(helm: Helm) -> None:
    """With SQLite also its volume, on its node."""
    assert "backup.enabled needs a place" in helm.refusal(SQLITE | {"backup": {"enabled": True}})
    values = {"backup": {"enabled": True, "existingClaim": "archives", "keep": 3}}
    rendered = helm.rendered(SQLITE | values)
    job = rendered["CronJob", "cloister-system", "cloister-backup"]["spec"]["jobTemplate"]["spec"]
    template, spec = job["template"], job["template"]["spec"]
    assert template["metadata"]["annotations"]["cloister.dev/settings"] == settings_of(
        rendered, "api"
    )
    (writing,), (keeping,) = spec["initContainers"], spec["containers"]
    command, *arguments = writing["args"]
    assert command == "backup"
    given = backup.make_context(command, arguments).params
    assert given["config"] == Path("/etc/cloister/config/api.yaml")
    assert {each["name"] for each in writing["volumeMounts"]} >= {"ledger", "backup", "config"}
    assert "found[:-3]" in keeping["command"][2]
    assert spec["affinity"]["podAffinity"]
    role = rendered["ClusterRole", "", "cloister-backup"]
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"get", "list"}
