"""The values of the chart: one model, from which values.yaml, its schema and its table are made.

Settings of the two programs are their own models (`OperatorSettings`, `ApiSettings`); what the
chart decides itself, such as paths and ports, is taken out of them by `dev.chart.schema`.
"""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from cloister_crds.kinds.scalars import HOSTNAME_PATTERN

Objects = list[dict[str, Any]]
"""Objects of Kubernetes, passed on as they are."""
DIGEST = r"^(sha256:[0-9a-f]{64})?$"
NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
OPTIONAL_NAME = r"^([a-z0-9]([-.a-z0-9]*[a-z0-9])?)?$"
PATH = r"^(/[A-Za-z0-9_+-][A-Za-z0-9_.+-]*)+$"
QUANTITY = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$"


class ValuesSection(BaseModel):
    """Base of every section: camelCase, unknown values are errors, docstrings are comments."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        use_attribute_docstrings=True,
    )


class GlobalValues(ValuesSection):
    """Values that a chart shares with those that it contains."""

    model_config = ConfigDict(extra="allow")

    image_registry: str = ""
    """Registry of all images, with a path where it has one, such as a mirror. Empty: the REGISTRY
    of `make images` that the chart was packaged with. Wins over `images.*.registry`."""


class ImageValues(ValuesSection):
    """One image."""

    registry: str = ""
    """Its registry. Empty: the one of the package."""
    repository: str
    """Its repository."""
    tag: str = ""
    """Its tag, which counts only where no digest is known. Empty: the chart's appVersion."""
    digest: Annotated[str, Field(pattern=DIGEST)] = ""
    """Its digest, `sha256:…`. Empty: the one that the chart was packaged with."""


class ImagesValues(ValuesSection):
    """The images."""

    cloister: ImageValues = ImageValues(repository="cloister")
    """Operator, API and command line."""
    guest: ImageValues = ImageValues(repository="cloister-guest")
    """The program that works inside every enclave; measured, so its digest is needed."""
    shim: ImageValues = ImageValues(repository="cloister-shim")
    """The proxy in front of every enclave's containers; its digest is needed as well."""


class AccountValues(ValuesSection):
    """A service account."""

    name: Annotated[str, Field(pattern=NAME, max_length=63)]
    """Its name. Roles and admission policies follow it."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Its annotations, such as those of a cloud's workload identity."""


class PodValues(ValuesSection):
    """What both Deployments have."""

    annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations of its Pods."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Further labels of its Pods."""
    priority_class_name: str = ""
    """PriorityClass of its Pods."""
    node_selector: dict[str, str] = Field(default_factory=dict)
    """Labels of the nodes that its Pods may run on."""
    tolerations: Objects = Field(default_factory=list)
    """Tolerations of its Pods."""
    affinity: dict[str, Any] = Field(default_factory=dict)
    """Affinity of its Pods."""
    topology_spread_constraints: Objects | None = None
    """How its Pods are spread. null: over nodes and zones, where that is possible."""
    extra_env: Objects = Field(default_factory=list)
    """Further environment variables, such as HTTPS_PROXY."""
    extra_volumes: Objects = Field(default_factory=list)
    """Further volumes."""
    extra_volume_mounts: Objects = Field(default_factory=list)
    """Where these are mounted."""
    temporary_size: Annotated[str, Field(pattern=QUANTITY)] = "2Gi"
    """Limit of its directory /tmp, into which git fetches; at least `sources.maxDiskBytes`."""


def resources(cpu: str, memory: str) -> dict[str, Any]:
    """Return requests, and the limit of memory; CPU that nobody else wants may be used."""
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": "1Gi"}}


class OperatorValues(PodValues):
    """The operator."""

    replicas: Annotated[int, Field(ge=0)] = 2
    """Replicas: one leads, the others follow the cluster as standbys. 0 is for maintenance:
    nothing starts, updates or ends, and running enclaves continue to serve."""
    service_account: AccountValues = AccountValues(name="cloister-operator")
    """Its account."""
    resources: dict[str, Any] = Field(default_factory=lambda: resources("100m", "256Mi"))
    """Requests and limits of its container; 10,000 Containers need 700 MiB."""
    settings: dict[str, Any] = Field(default_factory=lambda: {"log": {"format": "json"}})
    """Its settings as in docs/operator.md, but for those that the chart makes itself. A setting
    that names a file takes `{secret: NAME, key: KEY}` or `{configMap: NAME, key: KEY}`."""


class ServiceValues(ValuesSection):
    """The Service of the API."""

    type: Annotated[str, Field(pattern=r"^(ClusterIP|NodePort|LoadBalancer)$")] = "ClusterIP"
    """Its type."""
    port: Annotated[int, Field(ge=1, le=65_535)] = 80
    """Its port. The API speaks plain HTTP: terminate TLS in front of it."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Its annotations."""


class AutoscalingValues(ValuesSection):
    """A HorizontalPodAutoscaler."""

    enabled: bool = False
    """Whether there is one; it needs PostgreSQL and metrics-server. The Deployment then has no
    `replicas` of its own, so that an upgrade does not undo what the autoscaler did."""
    min_replicas: Annotated[int, Field(ge=1)] = 2
    """Replicas at least."""
    max_replicas: Annotated[int, Field(ge=1)] = 6
    """Replicas at most."""
    target_cpu_percent: Annotated[int, Field(ge=1, le=1000)] = 70
    """Use of the requested CPU that it aims at."""


class DashboardServiceValues(ValuesSection):
    """The Service of the dashboard, where `api.settings.dashboard` names its address."""

    port: Annotated[int, Field(ge=1, le=65_535)] = 80
    """Its port. The dashboard speaks plain HTTP: terminate TLS in front of it, and pass the header
    Host on."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Its annotations."""


class ApiValues(PodValues):
    """The API."""

    replicas: Annotated[int, Field(ge=1)] | None = None
    """Replicas. null: 2 with PostgreSQL, 1 with SQLite, which cannot have more."""
    autoscaling: AutoscalingValues = AutoscalingValues()
    """Replicas by load."""
    service_account: AccountValues = AccountValues(name="cloister-api")
    """Its account."""
    service: ServiceValues = ServiceValues()
    """Its Service."""
    dashboard_service: DashboardServiceValues = DashboardServiceValues()
    """The Service of the dashboard, where `api.settings.dashboard` names its address."""
    resources: dict[str, Any] = Field(default_factory=lambda: resources("200m", "256Mi"))
    """Requests and limits of its container."""
    settings: dict[str, Any] = Field(default_factory=lambda: {"logFormat": "json"})
    """Its settings as in docs/admin-api.md, but for those that the chart makes itself, and those
    that it has from the operator. Files are named as in `operator.settings`."""


class SqliteValues(ValuesSection):
    """The ledger in a file on a volume."""

    size: Annotated[str, Field(pattern=QUANTITY)] = "8Gi"
    """Size of its volume."""
    storage_class_name: str = ""
    """StorageClass of its volume. Empty: the cluster's default."""
    existing_claim: Annotated[str, Field(pattern=OPTIONAL_NAME)] = ""
    """PersistentVolumeClaim to use in place of an own one."""


class PostgresValues(ValuesSection):
    """The ledger in a database."""

    existing_secret: Annotated[str, Field(pattern=OPTIONAL_NAME)] = ""
    """Secret with the address of a PostgreSQL database, `postgresql://user:password@host/database`.
    Empty: SQLite."""
    key: str = "url"
    """Its key in the Secret."""


class LedgerValues(ValuesSection):
    """Where the ledger is: keys, usage, audit."""

    sqlite: SqliteValues = SqliteValues()
    """In a file, for one replica of the API."""
    postgresql: PostgresValues = PostgresValues()
    """In a database, for any number."""


class KeysValues(ValuesSection):
    """The installation's keys."""

    existing_secret: Annotated[str, Field(pattern=OPTIONAL_NAME)] = ""
    """Secret with the keys `key-material` (`cloister admin-key init`) and `installation-key` (32
    random bytes). Empty: the chart makes both once and keeps them; it must see the cluster for
    that, so `helm template` and Argo CD need a Secret here."""


class AuthorityValues(ValuesSection):
    """An own certificate authority for enclaves."""

    enabled: bool = False
    """Whether the API signs the certificates of enclaves by it; clients must trust it. Set
    `operator.settings.apiAddress` and `.signedCertificates` too."""
    existing_secret: Annotated[str, Field(pattern=OPTIONAL_NAME)] = ""
    """Secret of type kubernetes.io/tls with certificate and key. Empty: the chart makes it once and
    keeps it, under the same condition as `keys.existingSecret`."""


class CrdsValues(ValuesSection):
    """The kinds of Cloister."""

    enabled: bool = True
    """Whether the chart installs and updates them."""
    keep: bool = True
    """Whether they stay on `helm uninstall`; without that every Container of the cluster goes."""


class PoliciesValues(ValuesSection):
    """The admission policies."""

    keep: bool = True
    """Whether they stay on `helm uninstall`. Enclaves that go on running could be entered without
    them."""


class NodesValues(ValuesSection):
    """What Hosts may use of their nodes."""

    model_directories: list[Annotated[str, Field(pattern=PATH)]] = Field(
        default_factory=lambda: ["/srv/models"]
    )
    """Directories of model stores (`models.directory` of Hosts), or directories above them.
    Enclaves read them."""
    attestation_sockets: list[Annotated[str, Field(pattern=PATH)]] = Field(
        default_factory=lambda: ["/run/attestation/api.sock"]
    )
    """Sockets of attestation services (`attestationService` of Hosts with `teeUnit: Node`). Never
    the socket of a container runtime."""
    machine_runtime_classes: list[Annotated[str, Field(pattern=OPTIONAL_NAME, min_length=1)]] = (
        Field(default_factory=lambda: ["kata-qemu-snp", "kata-qemu-tdx"])
    )
    """RuntimeClasses that start each Pod as a virtual machine (`runtimeClassName` of Hosts with
    `teeUnit: Pod`). Pods of all others have a user namespace."""
    privileged_launcher: bool = False
    """Whether Hosts may have `allowPrivilegedLauncher`. Pods without a user namespace are then
    admitted on every node."""


class NetworkPolicyValues(ValuesSection):
    """Who may connect to the programs."""

    enabled: bool = True
    """Whether there are NetworkPolicies. What the programs connect to is not limited by them:
    sources, registries and name servers are where tenants have them."""
    api_from: Objects = Field(default_factory=list)
    """Peers (`from` of a NetworkPolicy) that may call the API. Empty: all."""
    dashboard_from: Objects = Field(default_factory=list)
    """Peers that may open the dashboard, such as the gateway. Empty: all."""
    metrics_from: Objects = Field(default_factory=lambda: [{"podSelector": {}}])
    """Peers that may read metrics and health; name your Prometheus. The default is the Pods of the
    release's own namespace. Empty: nobody but the node."""


class MonitorValues(ValuesSection):
    """An object of the Prometheus operator."""

    enabled: bool = False
    """Whether there is one for each program."""
    interval: Annotated[str, Field(pattern=r"^[0-9]+(ms|s|m)$")] = "30s"
    """How often metrics are read."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels by which a Prometheus selects it."""


class RuleValues(ValuesSection):
    """The alerts of docs/operations.md."""

    enabled: bool = False
    """Whether there is a PrometheusRule with them."""
    runbook_base: Annotated[str, Field(pattern=r"^\S+$")] = "docs/runbooks/"
    """What `runbook_url` of each alert begins with, before `ALERT.md`. The default is their place
    in the sources of this version; name where your people read them, such as a forge or a site."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels by which a Prometheus selects it."""


class DashboardsValues(ValuesSection):
    """The dashboards of docs/operations.md."""

    enabled: bool = False
    """Whether there is a ConfigMap for each."""
    labels: dict[str, str] = Field(default_factory=lambda: {"grafana_dashboard": "1"})
    """Labels by which Grafana's side-car finds them."""


class MonitoringValues(ValuesSection):
    """How metrics are found."""

    service_monitor: MonitorValues = MonitorValues()
    """By ServiceMonitors."""
    pod_monitor: MonitorValues = MonitorValues()
    """By PodMonitors; one of both is enough."""
    prometheus_rule: RuleValues = RuleValues()
    """Alerts."""
    dashboards: DashboardsValues = DashboardsValues()
    """Dashboards for Grafana."""


class ChecksValues(ValuesSection):
    """What looks at the installation."""

    upgrade: bool = True
    """Whether an upgrade begins with `cloister upgrade-check` of the new version, which refuses
    what cannot follow the version that runs."""
    tests: bool = True
    """Whether `helm test` runs `cloister doctor`, with the account of each program."""


class UninstallValues(ValuesSection):
    """What happens before the release is deleted."""

    force: bool = False
    """Whether it may be while there are Containers. Their enclaves then run on, with nobody to
    update, meter or end them."""


class ChartValues(ValuesSection):
    """All values."""

    globals: GlobalValues = Field(default=GlobalValues(), alias="global")
    """Values that a chart shares with those that it contains."""
    containers_domain: Annotated[str, Field(pattern=rf"^$|{HOSTNAME_PATTERN}", max_length=180)] = ""
    """Domain of generated host names, such as `containers.example.com`. Required."""
    sources: dict[str, Any] = Field(default_factory=lambda: {"kind": "github"})
    """Where repositories are, as in docs/sources.md. Both programs read them."""
    registry: dict[str, Any] = Field(default_factory=dict)
    """How the registries of tenants' images are reached, as in docs/registries.md."""
    images: ImagesValues = ImagesValues()
    """The images of Cloister itself."""
    image_pull_policy: Annotated[str, Field(pattern=r"^(Always|IfNotPresent|Never)$")] = (
        "IfNotPresent"
    )
    """When they are pulled."""
    image_pull_secrets: list[dict[str, str]] = Field(default_factory=list)
    """Credentials for them, as `{name: NAME}`, of operator and API. Pods of enclaves have those of
    `operator.settings.imagePullSecrets`."""
    operator: OperatorValues = OperatorValues()
    """The operator."""
    api: ApiValues = ApiValues()
    """The API."""
    ledger: LedgerValues = LedgerValues()
    """The database of keys and usage."""
    keys: KeysValues = KeysValues()
    """The keys of the installation; losing them makes every admin and API key invalid."""
    authority: AuthorityValues = AuthorityValues()
    """An own certificate authority for enclaves."""
    crds: CrdsValues = CrdsValues()
    """The kinds of Cloister."""
    policies: PoliciesValues = PoliciesValues()
    """The admission policies."""
    nodes: NodesValues = NodesValues()
    """What Hosts may use of their nodes. The policy `cloister-operator` refuses enclaves that use
    anything else."""
    network_policy: NetworkPolicyValues = NetworkPolicyValues()
    """Who may connect to the programs."""
    monitoring: MonitoringValues = MonitoringValues()
    """How metrics are found."""
    checks: ChecksValues = ChecksValues()
    """Checks by hooks of Helm."""
    uninstall: UninstallValues = UninstallValues()
    """What happens before the release is deleted."""
