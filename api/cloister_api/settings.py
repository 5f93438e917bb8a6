"""Settings of the facade and its commands: one YAML file, read at start.

``cloister api --config FILE`` or $CLOISTER_CONFIG. Keys are camelCase; an unknown key is an error.
Secrets are never in the file, only the names of files that hold them.
"""

from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from cloister_api.certificates.settings import CertificateSettings
from cloister_api.collateral import CollateralSettings
from cloister_api.ledger.database import LedgerSettings
from cloister_api.payments.settings import StripeSettings
from cloister_api.sessions.settings import DashboardSettings
from cloister_clients.registry import RegistrySettings
from cloister_clients.settings import SettingsSection, read_settings_file
from cloister_clients.sources import SourceSettings
from cloister_clients.telemetry import LogFormat
from cloister_clients.tracing.settings import TracingSettings

PUBLISHED = (
    "containersDomain",
    "service",
    "platform",
    "strictFrom",
    "metering",
    "pullDeadlineSeconds",
    "progressDeadlineSeconds",
    "defaultLimits",
)
"""Settings of the operator, which publishes them (`cloister_crds.installation`)."""
PUBLISHED_OF = {"sources": ("fileNames", "maxFileBytes"), "registry": ("maxImageBytes",)}
"""Those of them in sections."""


class ListenSettings(SettingsSection):
    """Where the facade listens; TLS is terminated in front of it."""

    host: str = "127.0.0.1"
    """Address to bind. Default 127.0.0.1."""
    port: Annotated[int, Field(ge=0, le=65_535)] = 8080
    """Port to bind; 0 means a free one, reported in the first line of the output. Default 8080."""


class LimitSettings(SettingsSection):
    """How much of the facade callers may occupy concurrently, by replica."""

    connections: Annotated[int, Field(ge=16, le=100_000)] = 2000
    """Connections that may be open; beyond that the one that has waited longest for a request is
    ended. Default 2000."""
    header_seconds: Annotated[float, Field(gt=0, le=300)] = 10.0
    """Seconds in which the headers of a request must arrive, counted from the opening of the
    connection or the response before. Default 10."""
    body_seconds: Annotated[float, Field(gt=0, le=300)] = 10.0
    """Seconds in which a whole body must arrive. Default 10."""
    body_bytes: Annotated[int, Field(ge=4 * 1024 * 1024)] = 32 * 1024 * 1024
    """Bytes of unfinished bodies that may be in memory, for each organization and for each path
    that needs no admin key; beyond that the one that has been arriving longest is refused with 503.
    Default 32 MiB."""
    requests: Annotated[int, Field(ge=1, le=100_000)] = 1000
    """Requests with admin keys that may be in progress; more are 503. Default 1000."""
    organization_requests: Annotated[int, Field(ge=1, le=100_000)] = 100
    """Of these, those of one organization; more are 429. Default 100."""
    organization_writes_per_second: Annotated[float, Field(gt=0, le=1_000_000)] | None = 5.0
    """Requests other than GET of one organization per second, with all its admin keys and over all
    replicas; more are 429. Pages of the dashboard count for their user. None means no limit.
    Default 5."""
    organization_write_burst: Annotated[int, Field(ge=1, le=1_000_000)] = 500
    """Of these, how many in one burst. Default 500."""


class LookupSettings(SettingsSection):
    """Lookups at sources and registries for requests, by replica."""

    at_once: Annotated[int, Field(ge=1, le=256)] = 32
    """Concurrent lookups, at sources and at registries each. Default 32."""
    per_organization: Annotated[int, Field(ge=1, le=256)] = 4
    """How many of these one organization may have, so that one whose servers are slow does not make
    the others wait. Default 4."""
    requests_per_organization: Annotated[int, Field(ge=1, le=1000)] = 32
    """Concurrent requests of one organization that look something up; more are 429. Default 32."""
    request_seconds: Annotated[float, Field(ge=1, le=600)] = 30.0
    """Seconds that all lookups of one request may take together; what has no response by then
    counts as unavailable. Default 30."""


class KeyCheckSettings(SettingsSection):
    """Rate limit of checks of one regular key."""

    rate_per_second: Annotated[float, Field(gt=0, le=1_000_000)] | None = None
    """Checks per second of one key over all replicas; None means no limit. A shim checks a key that
    it knows at most once a second, so this limits shims, not requests."""
    burst: Annotated[int, Field(ge=1, le=1_000_000)] = 100
    """Checks that a key may make in one burst over all replicas. Default 100."""
    unknown_per_second: Annotated[float, Field(gt=0, le=1_000_000)] = 100.0
    """Checks per second, by replica, with keys that are well-formed and unknown, and ten times as
    many in one burst; more are 429. Known keys do not count. Default 100."""


class AdminKeySettings(SettingsSection):
    """Rate limit of one admin key."""

    rate_per_second: Annotated[float, Field(gt=0, le=1_000_000)] | None = None
    """Requests per second of one key over all replicas; None means no limit."""
    burst: Annotated[int, Field(ge=1, le=1_000_000)] = 100
    """Requests that a key may make in one burst over all replicas. Default 100."""
    unknown_per_second: Annotated[float, Field(gt=0, le=1_000_000)] = 100.0
    """Requests per second, by replica, with keys that are well-formed and unknown, and ten times as
    many in one burst; more are 429. Known keys do not count. Default 100."""


class MetricsSettings(SettingsSection):
    """Where metrics for Prometheus are served, apart from the API."""

    host: str = "127.0.0.1"
    """Address to bind. Default 127.0.0.1."""
    port: Annotated[int, Field(ge=0, le=65_535)] | None = None
    """Port of /metrics; 0 means a free one, reported in the log; None means no metrics are
    served."""


class StopSettings(SettingsSection):
    """Graceful shutdown of the process."""

    drain_seconds: Annotated[float, Field(ge=0, le=300)] = 5.0
    """Seconds after SIGTERM in which requests are still accepted while /readyz answers 503, so that
    load balancers send them elsewhere. Default 5."""
    request_seconds: Annotated[int, Field(ge=1, le=300)] = 30
    """Seconds after that in which running requests may finish. Default 30."""


class WebhookSettings(SettingsSection):
    """Webhooks that speed up what the facade would notice later without them."""

    release_secret_file: Path | None = None
    """File with the secret that signs release webhooks of the source of repositories; unset if they
    are not accepted, and containers cannot be connected to their repository."""

    @property
    def on(self) -> bool:
        """Whether release webhooks are accepted."""
        return self.release_secret_file is not None


class AuditSettings(SettingsSection):
    """How long the audit trail is kept."""

    days: Annotated[int, Field(ge=2, le=36_500)] = 400
    """Days that rows of the audit trail are kept. Default 400. Retries of a create are
    recognized by the trail for a day, so that fewer than 2 are refused."""


class UsageSettings(SettingsSection):
    """How long usage is kept."""

    event_days: Annotated[int, Field(ge=91, le=36_500)] = 100
    """Days that single events are kept. An event may be reported up to 90 days late and is counted
    once only while it is kept, so that fewer than 91 are refused. Default 100. Sums by day are kept
    for ever."""


class UtilizationSettings(SettingsSection):
    """How utilization of containers is collected."""

    every_seconds: Annotated[float, Field(ge=1, le=300)] = 10.0
    """Seconds between two requests to the Metrics API. Default 10; metrics-server has new samples
    every 15 seconds unless it is told otherwise, and one that is never asked for is a gap."""


class ApiTracingSettings(TracingSettings):
    """Where traces are sent, and which."""

    follow_callers: bool = False
    """Whether a request continues the trace that its header traceparent names, and is recorded as
    that says. Default false: it is mentioned as a link, since callers are not trusted."""


class ApiSettings(SettingsSection):
    """All settings of the facade."""

    operator_namespace: Annotated[str, Field(min_length=1, max_length=63)] = "cloister-system"
    """Namespace of the operator, in which it publishes the settings that both programs judge by.
    Default cloister-system."""
    ledger: LedgerSettings
    """Where the ledger is."""
    sources: SourceSettings
    """Where repositories are."""
    registry: RegistrySettings = Field(default_factory=RegistrySettings)
    """How registries are reached."""
    certificates: CertificateSettings | None = None
    """Who signs certificates of enclaves; unset means no issuer, and /api/shim/cert answers 503."""
    collateral: CollateralSettings = Field(default_factory=CollateralSettings)
    """Where certificates, revocation lists and levels of processors with a TEE are fetched."""
    catalog: Path | None = None
    """File of the model catalog, a JSON array, reloaded when it changes; unset means no models."""
    key_check: KeyCheckSettings = Field(default_factory=KeyCheckSettings)
    """Rate limit of checks of one regular key."""
    admin_keys: AdminKeySettings = Field(default_factory=AdminKeySettings)
    """Rate limit of one admin key."""
    metrics: MetricsSettings = Field(default_factory=MetricsSettings)
    """Where metrics are served."""
    stop: StopSettings = Field(default_factory=StopSettings)
    """Graceful shutdown of the process."""
    webhooks: WebhookSettings = Field(default_factory=WebhookSettings)
    """Webhooks that are accepted."""
    audit: AuditSettings = Field(default_factory=AuditSettings)
    """How long the audit trail is kept."""
    usage: UsageSettings = Field(default_factory=UsageSettings)
    """How long usage is kept."""
    utilization: UtilizationSettings = Field(default_factory=UtilizationSettings)
    """How utilization of containers is collected."""
    stripe: StripeSettings | None = None
    """The payment processor; unset if there is none, and an Organization's spec says what it pays
    for."""
    lookups: LookupSettings = Field(default_factory=LookupSettings)
    """Lookups at sources and registries for requests."""
    listen: ListenSettings = Field(default_factory=ListenSettings)
    """Where the facade listens."""
    dashboard: DashboardSettings | None = None
    """The dashboard; unset if there is none, and no session is accepted anywhere."""
    limits: LimitSettings = Field(default_factory=LimitSettings)
    """How much of the facade callers may occupy concurrently."""
    kubeconfig: Path | None = None
    """Kubeconfig file; unset means $KUBECONFIG, the Pod's service account, or ~/.kube/config."""
    kube_context: str | None = None
    """Context of the kubeconfig; unset means its current one."""
    gitops_managers: tuple[str, ...] = (
        *("argocd-controller", "kustomize-controller", "helm-controller"),
        "flux",
    )
    """Field managers whose fields the facade does not change; a request that would is a 409."""
    write_wait_seconds: Annotated[float, Field(gt=0, le=60)] = 5.0
    """How long a write waits until the facade's own cache shows it, in seconds. Default 5."""
    development: bool = False
    """Creates missing key material and a missing own authority at the first start instead of
    refusing to start. Default false."""
    log_level: Annotated[str, Field(pattern=r"^(DEBUG|INFO|WARNING|ERROR)$")] = "INFO"
    """Lowest level that is logged. Default INFO."""
    log_format: LogFormat = LogFormat.TEXT
    """text or json, one object a line. Default text."""
    tracing: ApiTracingSettings | None = None
    """Traces of requests; unset if none are recorded."""

    @model_validator(mode="before")
    @classmethod
    def without_the_operators(cls, data: Any) -> Any:
        """Refuse settings that the operator has and publishes.

        Raises
        ------
        ValueError
            When there are some.
        """
        if not isinstance(data, dict):
            return data
        given = [name for name in PUBLISHED if name in data]
        for section, names in PUBLISHED_OF.items():
            found = data.get(section)
            if isinstance(found, dict):
                given += [f"{section}.{name}" for name in names if name in found]
        if given:
            raise ValueError(
                f"{', '.join(given)}: the API has this from the operator, which publishes it; "
                "set it there, and remove it here"
            )
        return data

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the settings file; relative paths in it are relative to its directory.

        Raises
        ------
        SettingsError
            When the file cannot be read or a key is unknown, missing or wrong.
        """
        return read_settings_file(path, cls).anchored(path.parent)

    def anchored(self, directory: Path) -> Self:
        """Return the settings with paths relative to a directory made absolute."""
        ledger = self.ledger.model_copy(
            update={
                "path": resolved(directory, self.ledger.path),
                "url_file": resolved(directory, self.ledger.url_file),
                "key_material": (directory / self.ledger.key_material).absolute(),
            }
        )
        kubeconfig = resolved(directory, self.kubeconfig)
        certificates = self.certificates and self.certificates.anchored(directory)
        collateral = self.collateral.model_copy(
            update={"ca_file": resolved(directory, self.collateral.ca_file)}
        )
        webhooks = self.webhooks.model_copy(
            update={"release_secret_file": resolved(directory, self.webhooks.release_secret_file)}
        )
        stripe = self.stripe and self.stripe.anchored(directory)
        dashboard = self.dashboard and self.dashboard.anchored(directory)
        catalog = (directory / self.catalog).absolute() if self.catalog else None
        tracing = self.tracing and self.tracing.model_copy(
            update={
                "headers_file": resolved(directory, self.tracing.headers_file),
                "ca_file": resolved(directory, self.tracing.ca_file),
            }
        )
        return self.model_copy(
            update={
                "ledger": ledger,
                "kubeconfig": kubeconfig,
                "certificates": certificates,
                "collateral": collateral,
                "catalog": catalog,
                "dashboard": dashboard,
                "stripe": stripe,
                "tracing": tracing,
                "webhooks": webhooks,
            }
        )


def resolved(directory: Path, path: Path | None) -> Path | None:
    """Return a path relative to a directory made absolute; None stays None.

    Links stay: in a Pod they lead to the present content of a Secret, and change with it.
    """
    return None if path is None else (directory / path).absolute()
