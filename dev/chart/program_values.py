"""The values of the two programs: their Pods, accounts, Services and ways from outside."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from cloister_crds.kinds.scalars import HOSTNAME_PATTERN

Objects = list[dict[str, Any]]
"""Objects of Kubernetes, passed on as they are."""
NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
OPTIONAL_NAME = r"^([a-z0-9]([-.a-z0-9]*[a-z0-9])?)?$"
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


class AccountValues(ValuesSection):
    """A service account."""

    create: bool = True
    """Whether the chart makes it. An account of your own must be there before."""
    name: Annotated[str, Field(pattern=NAME, max_length=63)]
    """Its name. Roles and admission policies follow it."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Its annotations, such as those of a cloud's workload identity."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Further labels of it."""
    automount: bool = True
    """Whether other Pods with this account get its token. Those of the chart always do."""


Probe = dict[
    Literal["initialDelaySeconds", "periodSeconds", "timeoutSeconds", "failureThreshold"],
    Annotated[int, Field(ge=0)],
]
"""Times of a probe; its path and port are the program's."""


class ProbesValues(ValuesSection):
    """The times of a program's probes."""

    startup: Probe = Field(default={"periodSeconds": 2, "failureThreshold": 60})
    """Times of its startup probe, as in a Pod."""
    liveness: Probe = Field(
        default={"periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 3}
    )
    """Times of its liveness probe."""
    readiness: Probe = Field(default={"periodSeconds": 2, "timeoutSeconds": 5})
    """Times of its readiness probe."""


class DisruptionValues(ValuesSection):
    """A PodDisruptionBudget."""

    enabled: bool = True
    """Whether there is one, where there is more than one replica."""
    max_unavailable: int | str = 1
    """Pods that may be away, as a number or percentage."""
    min_available: int | str | None = None
    """Pods that must be there, in place of `maxUnavailable`."""
    unhealthy_pod_eviction_policy: Literal["", "IfHealthyBudget", "AlwaysAllow"] = ""
    """Whether Pods that are not ready can be evicted. Empty: the cluster's default."""


def pod_security_context() -> dict[str, Any]:
    """Return the security context of Pods under Pod Security `restricted`."""
    user = {"runAsUser": 65_532, "runAsGroup": 65_532, "fsGroup": 65_532}
    profile = {"seccompProfile": {"type": "RuntimeDefault"}}
    return {"runAsNonRoot": True, **user, "fsGroupChangePolicy": "OnRootMismatch", **profile}


def security_context() -> dict[str, Any]:
    """Return the security context of a container under Pod Security `restricted`."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


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
    host_aliases: Objects = Field(default_factory=list)
    """Further lines of /etc/hosts."""
    dns_policy: str = ""
    """How its Pods resolve names."""
    dns_config: dict[str, Any] = Field(default_factory=dict)
    """Name servers and search domains of its Pods."""
    runtime_class_name: str = ""
    """RuntimeClass of its Pods."""
    pod_security_context: dict[str, Any] = Field(default_factory=pod_security_context)
    """Security context of its Pods. On OpenShift set `runAsUser`, `runAsGroup` and `fsGroup` to
    null: it assigns them."""
    security_context: dict[str, Any] = Field(default_factory=security_context)
    """Security context of its container."""
    probes: ProbesValues = ProbesValues()
    """The times of its probes."""
    pod_disruption_budget: DisruptionValues = DisruptionValues()
    """How many of its Pods a drain of nodes may take."""
    revision_history_limit: Annotated[int, Field(ge=0)] = 10
    """ReplicaSets that stay for `kubectl rollout undo`."""
    init_containers: Objects = Field(default_factory=list)
    """Containers that run before it."""
    extra_containers: Objects = Field(default_factory=list)
    """Containers that run next to it."""
    topology_spread_constraints: Objects | None = None
    """How its Pods are spread. null: over nodes and zones, where that is possible."""
    extra_env: Objects = Field(default_factory=list)
    """Further environment variables, such as TZ."""
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

    probes: ProbesValues = ProbesValues(readiness={"periodSeconds": 5, "timeoutSeconds": 5})
    """The times of its probes."""
    replicas: Annotated[int, Field(ge=0)] = 2
    """Replicas: one leads, the others follow the cluster as standbys. 0 is for maintenance:
    nothing starts, updates or ends, and running enclaves continue to serve."""
    service_account: AccountValues = AccountValues(name="cloister-operator")
    """Its account."""
    resources: dict[str, Any] = Field(default_factory=lambda: resources("100m", "256Mi"))
    """Requests and limits of its container (docs/operations/sizing.md); 10,000 Containers took
    524 MiB."""
    settings: dict[str, Any] = Field(default_factory=lambda: {"log": {"format": "json"}})
    """Its settings as in docs/operator.md, but for those that the chart makes itself. A setting
    that names a file takes `{secret: NAME, key: KEY}` or `{configMap: NAME, key: KEY}`."""


Port = Annotated[int, Field(ge=1, le=65_535)]
Hosts = list[Annotated[str, Field(pattern=HOSTNAME_PATTERN)]]


class ServiceValues(ValuesSection):
    """A Service."""

    type: Annotated[str, Field(pattern=r"^(ClusterIP|NodePort|LoadBalancer)$")] = "ClusterIP"
    """Its type."""
    port: Port = 80
    """Its port, which speaks plain HTTP: terminate TLS in front of it, and pass the header Host
    on."""
    node_port: Port | None = None
    """Its port on each node. null: the cluster chooses one, where the type has one."""
    load_balancer_class: str = ""
    """Implementation of its load balancer. Empty: the cluster's default."""
    external_traffic_policy: Literal["", "Cluster", "Local"] = ""
    """Where requests from outside of the cluster go. Empty: the cluster's default."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Its annotations."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Further labels of it."""


class IngressValues(ValuesSection):
    """An Ingress."""

    enabled: bool = False
    """Whether there is one."""
    class_name: str = ""
    """Its IngressClass. Empty: the cluster's default."""
    hosts: Hosts = Field(default_factory=list)
    """Its host names."""
    tls: Objects = Field(default_factory=list)
    """Secrets with certificates for them, as in `tls` of an Ingress."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Its annotations."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Further labels of it."""


class RouteValues(ValuesSection):
    """An HTTPRoute of the Gateway API."""

    enabled: bool = False
    """Whether there is one."""
    parent_refs: Objects = Field(default_factory=list)
    """The Gateways that it belongs to, whose listeners terminate TLS."""
    hosts: Hosts = Field(default_factory=list)
    """Its host names."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Its annotations."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Further labels of it."""


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
    ingress: IngressValues = IngressValues()
    """An Ingress to it."""
    http_route: RouteValues = RouteValues()
    """An HTTPRoute to it."""
    dashboard_service: ServiceValues = ServiceValues()
    """The Service of the dashboard, where `api.settings.dashboard` names its address."""
    dashboard_ingress: IngressValues = IngressValues()
    """An Ingress to the dashboard; without `hosts` that of its address."""
    dashboard_http_route: RouteValues = RouteValues()
    """An HTTPRoute to the dashboard; without `hosts` that of its address."""
    resources: dict[str, Any] = Field(default_factory=lambda: resources("200m", "256Mi"))
    """Requests and limits of its container."""
    settings: dict[str, Any] = Field(default_factory=lambda: {"logFormat": "json"})
    """Its settings as in docs/admin-api.md, but for those that the chart makes itself, and those
    that it has from the operator. Files are named as in `operator.settings`."""
