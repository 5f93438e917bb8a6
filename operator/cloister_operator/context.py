"""The parts of one process, wired together once and closed once."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Self

from cloister_clients.clock import Clock, ServerClock, utc_now
from cloister_clients.dns import AuthoritativeDns, DnsSettings
from cloister_clients.kube import KubeClient, KubeConfig
from cloister_clients.registry import RegistryClient
from cloister_clients.sources import SourceProvider, provider_from
from cloister_crds.config import Rules
from cloister_crds.installation import DefaultLimits
from cloister_crds.lifecycle.names.domains import DomainSettings
from cloister_crds.lifecycle.state.observed import DecisionSettings
from cloister_operator.cache.departed_containers import (
    ContainerCounts,
    ContainerOrder,
    DepartedContainers,
)
from cloister_operator.cache.projections import WatchedKind, watched_kinds
from cloister_operator.cache.reconcile_memory import ConfigCache, ModelCache, ReconcileMemory
from cloister_operator.cache.relist import Relister
from cloister_operator.cache.store import Store, StoreChange
from cloister_operator.enclave.plan import BuildSettings
from cloister_operator.lookups.cluster import (
    ApiEndpointResolver,
    ClusterNetworkReader,
    GatewayKinds,
)
from cloister_operator.lookups.external_lookup import (
    ExternalLookup,
    ImageLookup,
    ImageRegistry,
    NameServers,
)
from cloister_operator.lookups.lanes import Lanes
from cloister_operator.lookups.resolver import LookupResolver
from cloister_operator.settings import OperatorSettings
from cloister_operator.telemetry.health import Liveness
from cloister_operator.telemetry.metrics import OperatorMetrics
from cloister_operator.workqueue.queue import StatusThrottle, WorkQueue
from cloister_operator.workqueue.triggers import Key, group_of
from cloister_operator.writer import FIELD_MANAGER, ClusterWriter

USER_AGENT = "cloister-operator"
"""User-Agent of the operator's requests."""


def file_rules(settings: OperatorSettings) -> Rules:
    """Return the rules that files of releases must meet; each lookup adds the tiers of its Host."""
    return Rules(
        deployable_bytes=settings.sources.max_file_bytes,
        strict_from=settings.strict_from,
        service=settings.service,
        release=True,
    )


def _observe(
    metrics: OperatorMetrics, store: Store, queue: WorkQueue[Key], clock: ServerClock
) -> None:
    """Have the metrics read that are counted elsewhere."""
    schedule, kinds = queue.schedule, {each.kind: each for each in store.kinds}
    metrics.observe_queue(
        {"normal": lambda: schedule.normal, "low": lambda: schedule.low},
        delayed=lambda: schedule.delayed,
        longest=lambda: schedule.longest_work(queue.now()),
    )
    metrics.observe_cache(kinds, lambda kind: store.count(kinds[kind]))
    metrics.observe_containers(ContainerCounts(store))
    metrics.observe_clock(lambda: clock.offset / timedelta(seconds=1))


def _busy(queue: WorkQueue[Key], settings: OperatorSettings) -> Callable[[], bool]:
    """Return what says whether more keys are due than workers can take."""
    return lambda: len(queue.schedule) > settings.workers


def _forget_with_objects(store: Store, models: ModelCache, resolver: LookupResolver) -> None:
    """Have what is remembered of an object dropped with it."""

    def forget(change: StoreChange) -> None:
        gone = change.before
        if gone is not None and (change.after is None or change.after.uid != gone.uid):
            models.forget(gone.uid)
            resolver.forget(Key(change.ref.kind, change.namespace, change.name))

    store.subscribe(forget)


def _cluster_network(
    settings: OperatorSettings, client: KubeClient, store: Store
) -> ClusterNetworkReader:
    """Make the reader of the cluster's network, with the API endpoint of the settings."""
    api = ApiEndpointResolver.of(settings.api_address)
    return ClusterNetworkReader(client, store, settings.enclave_network, client.clock, api)


def _domains(settings: OperatorSettings) -> DomainSettings | None:
    """Return the settings of custom domains; None if there are none.

    Raises
    ------
    OSError, ValueError
        When the installation key cannot be read or is too short.
    """
    if settings.domains is None:
        return None
    return settings.domains.read(settings.service, settings.containers_domain)


def _lanes(settings: OperatorSettings, clock: Clock) -> Lanes:
    """Make the lanes of lookups."""
    return Lanes(
        total=settings.resolvers,
        per_organization=settings.resolvers_per_organization,
        sources=settings.sources,
        clock=clock,
    )


@dataclass(frozen=True, slots=True)
class Outside:
    """What the operator asks outside of the cluster."""

    source: SourceProvider
    """Source provider of repositories."""
    registry: ImageRegistry
    """Image registries."""
    dns: NameServers
    """Authoritative name servers."""

    @classmethod
    def of(cls, settings: OperatorSettings) -> Self:
        """Make what the settings name."""
        return cls(
            source=provider_from(settings.sources),
            registry=RegistryClient(settings.registry),
            dns=AuthoritativeDns(settings.domains.dns if settings.domains else DnsSettings()),
        )


@dataclass(frozen=True)
class ProcessContext:
    """The parts of one process."""

    settings: OperatorSettings
    """What the administrator set."""
    kube: KubeConfig
    """How the API server is reached."""
    client: KubeClient
    """For reads; writes go through `writer`."""
    store: Store
    """The informer cache."""
    departed: DepartedContainers
    """Containers that are gone while Pods of theirs may still run."""
    order: ContainerOrder
    """Places of Containers under the limit."""
    queue: WorkQueue[Key]
    """Keys of the objects to reconcile."""
    writer: ClusterWriter
    """For writes."""
    resolver: LookupResolver
    """Lookups outside the cache."""
    relister: Relister
    """Comparison of the informer cache with the server."""
    memory: ReconcileMemory
    """What reconciles remember between one another."""
    models: ModelCache
    """Parsed objects."""
    configs: ConfigCache
    """Parsed files."""
    outside: Outside
    """What is asked outside of the cluster."""
    image_lookup: ImageLookup
    """Lookups of images with the credentials of organizations."""
    cluster_network: ClusterNetworkReader
    """The cluster's network, as the networks of enclaves need it."""
    metrics: OperatorMetrics
    """Metrics."""
    liveness: Liveness
    """Heartbeats."""
    watched: tuple[WatchedKind, ...]
    """Kinds that are watched."""
    gateway: GatewayKinds | None = None
    """Kinds that route requests to containers; None if no Gateway is named in the settings."""
    domains: DomainSettings | None = None
    """How custom domains are verified; None if there are no custom domains."""
    clock: Clock = utc_now
    """The time by the API server's clock, whose timestamps the decisions compare it with."""
    status_throttle: StatusThrottle = field(default_factory=StatusThrottle)
    """When the status of an object that counts others may be written, by the monotonic clock."""

    @classmethod
    def from_settings(
        cls,
        settings: OperatorSettings,
        kube: KubeConfig,
        *,
        metrics: OperatorMetrics,
        liveness: Liveness,
        leads: Callable[[], bool],
        gateway: GatewayKinds | None = None,
        outside: Outside | None = None,
    ) -> Self:
        """Make all parts, inside the event loop that uses them.

        Parameters
        ----------
        leads
            Returns whether this process holds the Lease; called before each write.
        gateway
            Kinds that route requests to containers; None if no Gateway is named in the settings.
        outside
            What is asked outside of the cluster; None means what the settings name.

        Raises
        ------
        OSError
            When a file that the settings name cannot be read.
        """
        client = KubeClient(
            kube, field_manager=FIELD_MANAGER, user_agent=USER_AGENT, observe=metrics.requested
        )
        watched = watched_kinds(gateway.route if gateway else None)
        store, queue = Store(watched), WorkQueue[Key](observer=metrics.queue, group_of=group_of)
        rules, busy, clock = file_rules(settings), _busy(queue, settings), client.clock
        private = settings.registry.private_hosts
        outside = outside or Outside.of(settings)
        image_lookup = ImageLookup(client, outside.registry, further=private, enqueue=queue.add)
        lookup = ExternalLookup(
            source=outside.source,
            images=image_lookup,
            client=client,
            dns=outside.dns,
            rules=rules,
            clock=clock,
        )
        _observe(metrics, store, queue, clock)
        models, lanes = ModelCache(), _lanes(settings, clock)
        resolver = LookupResolver(
            lookup, enqueue=queue.add, metrics=metrics, lanes=lanes, clock=clock
        )
        _forget_with_objects(store, models, resolver)
        return cls(
            settings=settings,
            kube=kube,
            client=client,
            store=store,
            departed=DepartedContainers(store),
            order=ContainerOrder(store),
            queue=queue,
            writer=ClusterWriter(client, store, metrics, leads=leads, busy=busy, clock=clock),
            resolver=resolver,
            relister=Relister(
                client, store, metrics, liveness, every=settings.relist_seconds, watched=watched
            ),
            memory=ReconcileMemory(store),
            models=models,
            configs=ConfigCache(),
            outside=outside,
            image_lookup=image_lookup,
            cluster_network=_cluster_network(settings, client, store),
            metrics=metrics,
            liveness=liveness,
            watched=watched,
            gateway=gateway,
            domains=_domains(settings),
            clock=clock,
        )

    @cached_property
    def default_limits(self) -> DefaultLimits:
        """Limits of organizations that name none."""
        return self.settings.default_limits.published()

    @cached_property
    def decision(self) -> DecisionSettings:
        """The settings that decisions depend on."""
        return self.settings.decision()

    @cached_property
    def build(self) -> BuildSettings:
        """The settings that the builders depend on."""
        return self.settings.build()

    def now(self) -> datetime:
        """Return the time in whole seconds, as Kubernetes writes it."""
        return self.clock().replace(microsecond=0)

    async def aclose(self) -> None:
        """Close all connections."""
        await self.writer.aclose()
        await self.resolver.aclose()
        await self.outside.source.aclose()
        await self.outside.registry.aclose()
        await self.client.aclose()
