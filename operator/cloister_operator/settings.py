"""Settings of the operator: one YAML file, read once at the start.

Secrets are never written here; settings name files that hold them.
"""

import os
from datetime import timedelta
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from cloister_clients.dns import DnsSettings
from cloister_clients.registry import RegistrySettings
from cloister_clients.settings import (
    SettingsError,
    SettingsSection,
    read_settings_file,
    require_file,
)
from cloister_clients.sources import SourceSettings, check_prerequisites
from cloister_clients.telemetry import LogFormat
from cloister_clients.tracing.settings import TracingSettings
from cloister_crds.installation import DefaultLimits, InstallationSettings
from cloister_crds.kinds.scalars import HOSTNAME_PATTERN
from cloister_crds.lifecycle.names.domains import DomainSettings
from cloister_crds.lifecycle.state.observed import DecisionSettings, Gateway
from cloister_crds.names import RepositoryNames
from cloister_operator.enclave.network.addresses import DnsResolver, ServicePods
from cloister_operator.enclave.plan import ApiIdentity, BuildSettings
from cloister_operator.enclave.tenant import API_ROLE, OPERATOR_ROLE

CONFIG_VARIABLE = "CLOISTER_CONFIG"
"""Environment variable that names the file when the command line does not."""


LABEL_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
"""Pattern of names of namespaces."""
OBJECT_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
"""Pattern of names of most objects."""
SHORTEST_KEY = 32
"""Bytes of the installation key at least."""
SecretName = Annotated[str, Field(pattern=OBJECT_NAME, max_length=253)]
"""Name of a core Secret."""


class LogSettings(SettingsSection):
    """Format and level of the log."""

    format: LogFormat = LogFormat.TEXT
    """text or json. Default text."""
    level: Annotated[str, Field(pattern=r"^(DEBUG|INFO|WARNING|ERROR)$")] = "INFO"
    """Lowest level that is logged. Default INFO."""


class HealthSettings(SettingsSection):
    """Where health and metrics are served."""

    host: str = "127.0.0.1"
    """Address to listen on; in a Pod ``0.0.0.0``. Default the loopback address."""
    port: Annotated[int, Field(ge=0, le=65535)] = 0
    """Port to listen on; 0 means a free one, which the log names. Default 0."""
    stale_seconds: Annotated[float, Field(gt=0)] = 180.0
    """Seconds without a heartbeat of the event loop or the workers after which the process is no
    longer healthy. Default 180."""


class LeaseSettings(SettingsSection):
    """Leader election among replicas (Kubernetes, "Leases")."""

    name: str = "cloister-operator"
    """Name of the Lease in `operatorNamespace`."""
    duration_seconds: Annotated[float, Field(ge=1)] = 15.0
    """Seconds after which a silent leader is replaced. Default 15."""
    renew_seconds: Annotated[float, Field(gt=0)] = 10.0
    """Seconds in which the leader must renew; else it exits. Default 10."""
    retry_seconds: Annotated[float, Field(gt=0)] = 2.0
    """Seconds between two attempts to take or renew the Lease. Default 2."""


class AccountSettings(SettingsSection):
    """Names of the two accounts in `operatorNamespace`; roles and policies name them too."""

    operator: Annotated[str, Field(pattern=OBJECT_NAME, max_length=253)] = "cloister-operator"
    """The operator's own. Default cloister-operator."""
    api: Annotated[str, Field(pattern=OBJECT_NAME, max_length=253)] = "cloister-api"
    """The API's. Default cloister-api."""

    def by_role(self) -> dict[str, str]:
        """Return the account that each ClusterRole is bound to, the operator's first."""
        return {OPERATOR_ROLE: self.operator, API_ROLE: self.api}


class ServicePodsSettings(SettingsSection):
    """Pods behind a Service, for network plugins that judge a connection to it by them."""

    namespace: Annotated[str, Field(pattern=LABEL_NAME, max_length=63)] | None = None
    """Their namespace; unset means `operatorNamespace`."""
    labels: dict[str, str] = Field(min_length=1)
    """Labels that they have."""
    port: Annotated[int, Field(ge=1, le=65535)]
    """Port that they listen on."""

    def read(self, operator_namespace: str) -> ServicePods:
        """Return them as builders need them."""
        return ServicePods(self.namespace or operator_namespace, self.labels, self.port)


class EnclaveNetworkSettings(SettingsSection):
    """What the networks of enclaves need to know and cannot be read from the cluster."""

    resolvers: tuple[IPv4Address, ...] = Field(default=(), max_length=8)
    """Name servers that resolve public names, queried on port 53 in this order. Default none: the
    cluster's own, the Service kube-dns in kube-system."""
    resolver_pods: tuple[ServicePodsSettings, ...] = Field(default=(), max_length=8)
    """Pods of those name servers that are Services of the cluster. Default none: the cluster's own
    name servers are Pods in kube-system that listen on port 53."""
    api_pods: ServicePodsSettings = Field(
        default_factory=lambda: ServicePodsSettings(
            labels={"app.kubernetes.io/name": "cloister", "app.kubernetes.io/component": "api"},
            port=8080,
        )
    )
    """Pods of the Service that `apiAddress` names; set it when that is not the API's own, as where
    a proxy in the cluster ends its TLS. Default the API's Pods of the chart."""
    denied: tuple[IPv4Network, ...] = Field(default=(), max_length=256)
    """Further ranges that enclaves must not reach, such as those of nodes that are added later with
    public addresses. Private and special ranges, and the nodes, API server, Pods and Services that
    are read from the cluster, are always denied. Default none."""
    probe_sources: tuple[IPv4Address, ...] = Field(default=(), max_length=64)
    """Further addresses from which kubelets probe enclaves, for network plug-ins by which the
    kubelet's requests come from neither an address of the node nor the Pod's gateway. Default
    none."""
    cluster_domains: tuple[Annotated[str, Field(min_length=1, max_length=253)], ...] = (
        "cluster.local",
    )
    """Domains that are never resolved for an enclave: the cluster's own. Default cluster.local."""

    def named_resolvers(self) -> tuple[DnsResolver, ...]:
        """Return the name servers of the setting."""
        return tuple(DnsResolver(str(each)) for each in self.resolvers)

    def named_resolver_pods(self, operator_namespace: str) -> tuple[ServicePods, ...]:
        """Return their Pods."""
        return tuple(each.read(operator_namespace) for each in self.resolver_pods)

    @model_validator(mode="after")
    def pods_of_resolvers(self) -> Self:
        """Refuse Pods of name servers that nobody asks.

        Raises
        ------
        ValueError
            When no name server is set.
        """
        if self.resolver_pods and not self.resolvers:
            raise ValueError("resolverPods needs resolvers: the Pods are theirs; set both")
        return self


class GatewaySettings(SettingsSection):
    """The Gateway that receives requests (Gateway API)."""

    name: Annotated[str, Field(pattern=OBJECT_NAME, max_length=253)]
    """Name of the Gateway."""
    namespace: Annotated[str, Field(pattern=LABEL_NAME, max_length=63)] | None = None
    """Its namespace; unset means `operatorNamespace`."""
    listener: Annotated[str, Field(pattern=OBJECT_NAME, max_length=253)] | None = None
    """Name of its listener, which must be of protocol TLS in mode Passthrough; unset means every
    one that accepts the route."""


class CustomDomainSettings(SettingsSection):
    """How custom domains of organizations are verified and kept."""

    target: Annotated[str, Field(pattern=HOSTNAME_PATTERN, max_length=220)]
    """Domain of the targets of CNAME records, such as ``dns.example.com``; every name under it must
    resolve to the installation's entry point."""
    installation_key_file: Path
    """File with at least 32 random bytes, the same for the life of the installation: the values of
    the records are derived from it, so that neither a restore nor a re-creation changes them."""
    check_seconds: Annotated[int, Field(ge=1)] = 300
    """Seconds between two lookups of the records of a domain. Default 300."""
    grace_seconds: Annotated[int, Field(ge=0)] = 604_800
    """Seconds for which a domain that lost its TXT record is still served. Default 604800 (7
    days)."""
    dns: DnsSettings = Field(default_factory=DnsSettings)
    """How the servers of a zone are found and queried."""

    def read(self, service: str, containers_domain: str) -> DomainSettings:
        """Read the installation key and return the settings that decisions depend on.

        Raises
        ------
        OSError
            When the file cannot be read.
        ValueError
            When the key is too short.
        """
        key = self.installation_key_file.read_bytes()
        if len(key) < SHORTEST_KEY:
            raise ValueError(
                f"domains.installationKeyFile: {self.installation_key_file} holds {len(key)} "
                f"bytes; write at least {SHORTEST_KEY} random ones into it"
            )
        return DomainSettings(
            key=key,
            target=self.target,
            service=service,
            containers_domain=containers_domain,
            interval=timedelta(seconds=self.check_seconds),
            grace=timedelta(seconds=self.grace_seconds),
        )


class DefaultLimitSettings(SettingsSection):
    """Limits of organizations whose `spec.limits` does not name a number."""

    secrets: Annotated[int, Field(ge=0, le=10_000)] = 100
    """Secrets of cloister.dev; core Secrets are bounded by a number that follows from it. Default
    100."""
    ssh_keys: Annotated[int, Field(ge=0, le=10_000)] = 100
    """SSHKeys. Default 100."""
    domains: Annotated[int, Field(ge=0, le=10_000)] = 100
    """Domains. Default 100."""
    api_keys: Annotated[int, Field(ge=0, le=100_000)] = 1000
    """API keys, deleted ones not counted. Default 1000."""
    admin_keys: Annotated[int, Field(ge=0, le=10_000)] = 100
    """Valid admin keys. Default 100."""

    def published(self) -> DefaultLimits:
        """Return them as both programs have them."""
        return DefaultLimits(**self.model_dump())


class OperatorSettings(SettingsSection):
    """All settings of ``cloister operator``."""

    containers_domain: Annotated[str, Field(pattern=HOSTNAME_PATTERN, max_length=180)]
    """Domain of generated host names, such as ``containers.example.com``."""
    shim_image: Annotated[str, Field(pattern=r"^\S+@sha256:[0-9a-f]{64}$")]
    """Image of the shim of enclaves, with its digest."""
    guest_image: Annotated[str, Field(pattern=r"^\S+@sha256:[0-9a-f]{64}$")]
    """Image of the guest, our program inside every enclave, with its digest."""
    image_pull_secrets: Annotated[tuple[SecretName, ...], Field(max_length=8)] = ()
    """Core Secrets with credentials for these two, by the names that they have in the namespace of
    each organization, where the administrator puts them. Default none."""
    sources: SourceSettings
    """The source provider of repositories."""
    registry: RegistrySettings = Field(default_factory=RegistrySettings)
    """How image registries are reached."""
    kubeconfig: Path | None = None
    """kubeconfig file; unset means $KUBECONFIG, else the Pod's service account."""
    context: str | None = None
    """Context of the kubeconfig file; unset means its current one."""
    service: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,30}$")] = "cloister"
    """Name of the mount in every container and of the well-known paths. Default cloister."""
    operator_namespace: str = "cloister-system"
    """Namespace of the Lease and of the two accounts, which get their rights in the namespaces of
    organizations by RoleBindings. Default cloister-system."""
    accounts: AccountSettings = Field(default_factory=AccountSettings)
    """Names of these accounts."""
    platform: Annotated[str, Field(pattern=r"^[a-z0-9]+/[a-z0-9]+(/[a-z0-9]+)?$")] = "linux/amd64"
    """Platform that images must have. Default linux/amd64."""
    follow_interval_seconds: Annotated[int, Field(ge=10)] = 300
    """Seconds between two lookups of the newest release of a repository with auto-update. Default
    300; a release webhook triggers one immediately."""
    pull_deadline_seconds: Annotated[int, Field(ge=1)] = 3600
    """Seconds that an enclave may take from its creation until all of its containers have started:
    it is scheduled, its images are pulled and its models verified in that time. Default 3600."""
    progress_deadline_seconds: Annotated[int, Field(ge=1)] = 1800
    """Seconds that an enclave may take from then until it is ready, in addition to the longest time
    that a health check of its file may need. Default 1800."""
    default_limits: DefaultLimitSettings = Field(default_factory=DefaultLimitSettings)
    """Limits of organizations whose `spec.limits` does not name a number."""
    attempts: Annotated[int, Field(ge=1)] = 10
    """Attempts of a request that never served which may be lost in a row. Default 10."""
    api_address: Annotated[str, Field(pattern=r"^https?://[^/?#@\s]+/?$")] | None = None
    """Base address of the API as enclaves reach it, such as https://api.example.com; http only
    where nobody can listen in between. Unset means enclaves cannot reach it."""
    api_authorities: Path | None = None
    """PEM file with the certificate authorities of the API; unset means the public ones."""
    signed_certificates: bool = False
    """Whether the API has the certificates of enclaves signed; needs `apiAddress`. Default false:
    each enclave signs by an authority of its own, which no client knows."""
    key_cache_seconds: Annotated[float, Field(ge=0, le=60)] = 1.0
    """Seconds for which an enclave caches that an API key is valid. Default 1."""
    key_outage_seconds: Annotated[float, Field(ge=0, le=3600)] = 30.0
    """Seconds after its last successful check for which a key stays valid while the enclave cannot
    reach the API. Default 30."""
    enclave_network: EnclaveNetworkSettings = Field(default_factory=EnclaveNetworkSettings)
    """What the networks of enclaves need to know about the cluster."""
    strict_from: Annotated[str, Field(pattern=r"^\d+\.\d+\.\d+$")] | None = None
    """First cvm-version from which strict rules of the file are errors; unset means never."""
    metering: bool = False
    """Whether the run time of containers is metered: Enclaves keep a finalizer until the API has
    recorded how long they served. It applies to Enclaves that are
    created from then on. Default false."""
    metering_wait_seconds: Annotated[int, Field(ge=1)] = 86_400
    """Seconds for which a deleted Enclave waits for that; then the finalizer is removed, with a
    Warning. Default 86400 (a day)."""
    workers: Annotated[int, Field(ge=1, le=256)] = 16
    """Objects that are reconciled concurrently. Default 16."""
    resync_seconds: Annotated[float, Field(gt=0)] = 600.0
    """Seconds after which every object is reconciled again without a change. Default 600."""
    relist_seconds: Annotated[float, Field(gt=0)] = 300.0
    """Seconds between two comparisons of the informer cache with the server. Default 300."""
    claim_age_seconds: Annotated[float, Field(ge=0)] = 60.0
    """Grace period in seconds after which an unused HostnameClaim is released; the value of a
    secret that no object names is deleted after five times as long. Default 60."""
    resolvers: Annotated[int, Field(ge=1, le=64)] = 32
    """Concurrent lookups, at sources, at registries and at name servers each. Default 32."""
    resolvers_per_organization: Annotated[int, Field(ge=1, le=64)] = 4
    """How many of these one organization may have, so that one whose servers are slow does not make
    the others wait. Default 4."""
    domains: CustomDomainSettings | None = None
    """Custom domains; unset if there are none, and Domains report that."""
    gateway: GatewaySettings | None = None
    """The Gateway that receives requests: a TLSRoute of it is created for every host name. If
    unset, none are created, and requests reach containers by their Services."""
    drain_seconds: Annotated[float, Field(ge=0, le=3600)] = 10.0
    """Seconds that an enclave stays after its successor has endpoints, for gateways and nodes that
    observe that late. Default 10."""
    lease: LeaseSettings = Field(default_factory=LeaseSettings)
    """Leader election among replicas."""
    health: HealthSettings = Field(default_factory=HealthSettings)
    """Where health and metrics are served."""
    log: LogSettings = Field(default_factory=LogSettings)
    """Format and level of the log."""
    tracing: TracingSettings | None = None
    """Traces of reconciles; unset if none are recorded."""

    @model_validator(mode="after")
    def reachable(self) -> Self:
        """Refuse settings of the API that have no effect without another one.

        Raises
        ------
        ValueError
            When one lacks another.
        """
        if self.signed_certificates and self.api_address is None:
            raise ValueError(
                "signedCertificates needs apiAddress: enclaves request certificates from the API"
            )
        https = (self.api_address or "").startswith("https://")
        if self.api_authorities is not None and not https:
            raise ValueError("apiAuthorities needs an apiAddress with https")
        named = "api_pods" in self.enclave_network.model_fields_set
        if named and self.api_address is None:
            raise ValueError("enclaveNetwork.apiPods needs apiAddress: set both")
        return self

    def check_prerequisites(self) -> None:
        """Check that the programs and files are there which the settings need.

        Raises
        ------
        SettingsError
            When one is missing or unusable; names it and its setting.
        """
        check_prerequisites(self.sources)
        require_file("registry.caFile", self.registry.ca_file)
        require_file("apiAuthorities", self.api_authorities)
        if self.tracing is not None:
            self.tracing.check_prerequisites()
        if self.domains is None:
            return
        require_file("domains.installationKeyFile", self.domains.installation_key_file)
        try:
            self.domains.read(self.service, self.containers_domain)
        except ValueError as error:
            raise SettingsError(str(error)) from error

    def decision(self) -> DecisionSettings:
        """Return the part that decisions depend on."""
        return DecisionSettings(
            containers_domain=self.containers_domain,
            service=self.service,
            platform=self.platform,
            file_limit=self.sources.max_file_bytes,
            image_limit=self.registry.max_image_bytes,
            pull_deadline=timedelta(seconds=self.pull_deadline_seconds),
            progress_deadline=timedelta(seconds=self.progress_deadline_seconds),
            follow_interval=timedelta(seconds=self.follow_interval_seconds),
            attempts=self.attempts,
            domain_grace=timedelta(seconds=self.domains.grace_seconds if self.domains else 0),
            api_known=self.api_address is not None,
            drain=timedelta(seconds=self.drain_seconds),
            gateway=self._gateway(),
            repositories=RepositoryNames(ignore_case=self.sources.ignores_case),
        )

    def installation(self) -> InstallationSettings:
        """Return the part that is published, since the facade must not differ in it."""
        return InstallationSettings(
            containers_domain=self.containers_domain,
            service=self.service,
            platform=self.platform,
            strict_from=self.strict_from,
            file_names=self.sources.file_names,
            max_file_bytes=self.sources.max_file_bytes,
            max_image_bytes=self.registry.max_image_bytes,
            metering=self.metering,
            ignore_repository_case=self.sources.ignores_case,
            pull_deadline_seconds=self.pull_deadline_seconds,
            progress_deadline_seconds=self.progress_deadline_seconds,
            default_limits=self.default_limits.published(),
        )

    def _gateway(self) -> Gateway | None:
        """Return the Gateway that routes are attached to; None if there are no routes."""
        if self.gateway is None:
            return None
        named = self.gateway
        return Gateway(named.name, named.namespace or self.operator_namespace, named.listener or "")

    def build(self) -> BuildSettings:
        """Return the part that the builders depend on.

        Raises
        ------
        OSError
            When the file of authorities cannot be read.
        """
        return BuildSettings(
            shim_image=self.shim_image,
            guest_image=self.guest_image,
            pull_secrets=self.image_pull_secrets,
            service=self.service,
            key_cache_seconds=self.key_cache_seconds,
            key_outage_seconds=self.key_outage_seconds,
            api=self._api(),
        )

    def _api(self) -> ApiIdentity | None:
        """Return who the API is for enclaves; None if they cannot reach it."""
        if self.api_address is None:
            return None
        file = self.api_authorities
        return ApiIdentity(self.api_address, file.read_text(encoding="ascii") if file else "")


def read_settings(path: Path | None) -> OperatorSettings:
    """Read the settings.

    Parameters
    ----------
    path
        The file; None means the one that $CLOISTER_CONFIG names.

    Raises
    ------
    SettingsError
        When no file is named, it cannot be read, is not YAML, or has a missing, unknown or wrong
        setting.
    """
    if path is None:
        named = os.environ.get(CONFIG_VARIABLE)
        if not named:
            raise SettingsError(f"no settings: name a file with --config or in ${CONFIG_VARIABLE}")
        path = Path(named)
    return read_settings_file(path, OperatorSettings)
