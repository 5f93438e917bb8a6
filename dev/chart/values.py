"""The values of the chart: one model, from which values.yaml, its schema and its table are made.

Settings of the two programs are their own models (`OperatorSettings`, `ApiSettings`); what the
chart decides itself, such as paths and ports, is taken out of them by `dev.chart.schema`.
"""

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from cloister_crds.kinds.scalars import HOSTNAME_PATTERN
from dev.chart.program_values import (
    OPTIONAL_NAME,
    QUANTITY,
    ApiValues,
    Objects,
    OperatorValues,
    ValuesSection,
)

DIGEST = r"^(sha256:[0-9a-f]{64})?$"
PATH = r"^(/[A-Za-z0-9_+-][A-Za-z0-9_.+-]*)+$"


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
    `operator.settings.apiAddress` and `.signedCertificates` too. Other settings of certificates,
    such as `own.lifetimeSeconds`, are in `api.settings.certificates`."""
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
    scrape_timeout: Annotated[str, Field(pattern=r"^([0-9]+(ms|s|m))?$")] = ""
    """How long one reading may take. Empty: Prometheus' own."""
    relabelings: Objects = Field(default_factory=list)
    """Changes of labels of the targets."""
    metric_relabelings: Objects = Field(default_factory=list)
    """Changes of labels of the metrics."""
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
    annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations of them, such as the folder in Grafana."""
    namespace: Annotated[str, Field(pattern=OPTIONAL_NAME)] = ""
    """Namespace of the ConfigMaps. Empty: the release's."""


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


class BackupValues(ValuesSection):
    """Backups of the whole installation, as docs/operations/backup.md has them."""

    enabled: bool = False
    """Whether a CronJob makes them. Its account may read all Secrets of the cluster."""
    schedule: Annotated[str, Field(min_length=1)] = "17 2 * * *"
    """When, as in `spec.schedule` of a CronJob. The alert `CloisterBackupOld` expects one a day."""
    existing_claim: Annotated[str, Field(pattern=OPTIONAL_NAME)] = ""
    """PersistentVolumeClaim that the archives are written to. Empty: a directory that ends with the
    Pod, from which `containers` must take them."""
    keep: Annotated[int, Field(ge=1)] = 14
    """How many archives stay on the claim; older ones are deleted after each backup."""
    containers: Objects = Field(default_factory=list)
    """Containers that run when the archive is written, such as one that encrypts and copies it. It
    is the newest file of the volume `backup`, which they mount themselves."""


class UninstallValues(ValuesSection):
    """What happens before the release is deleted."""

    force: bool = False
    """Whether it may be while there are Containers. Their enclaves then run on, with nobody to
    update, meter or end them."""


class ChartValues(ValuesSection):
    """All values."""

    globals: GlobalValues = Field(default=GlobalValues(), alias="global")
    """Values that a chart shares with those that it contains."""
    common_labels: dict[str, str] = Field(default_factory=dict)
    """Further labels of every object of the chart and of its Pods. None of the chart's own labels
    can be replaced."""
    common_annotations: dict[str, str] = Field(default_factory=dict)
    """Further annotations of every object of the chart."""
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
    backup: BackupValues = BackupValues()
    """Backups of the whole installation."""
    uninstall: UninstallValues = UninstallValues()
    """What happens before the release is deleted."""
    extra_objects: Objects = Field(default_factory=list)
    """Further objects of the release, such as a NetworkPolicy or an ExternalSecret. Text in them is
    read as a template."""
