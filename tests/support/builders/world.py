"""A simulated cluster for decisions: it carries out what `decide` and `evaluate_enclave` return.

Objects in memory, time that a test advances. `SimulatedCluster.reconcile` is one reconcile of an
operator, the other methods are what may happen between two reconciles.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from cloister_crds.config.model import ServiceConfig
from cloister_crds.kinds import (
    Container,
    Deployment,
    Domain,
    Enclave,
    HostnameClaim,
    Organization,
    Secret,
    SSHKey,
)
from cloister_crds.kinds.container import (
    ContainerStatus,
    LatestRelease,
)
from cloister_crds.kinds.enclave import ContainerStateName
from cloister_crds.kinds.host import Host
from cloister_crds.kinds.meta import ObjectMeta
from cloister_crds.lifecycle.state.conditions import condition
from cloister_crds.lifecycle.state.observed import (
    DecisionSettings,
    Failed,
    Known,
    LookupResult,
    Need,
    NeedImage,
    NeedLatest,
    NeedRelease,
    NewestRelease,
    Observed,
    RouteFacts,
    RouteState,
    SecretValues,
    ServiceFacts,
)
from cloister_crds.lifecycle.state.release_order import release_order
from cloister_operator.rollout.decide import decide
from cloister_operator.rollout.decision import (
    Action,
    ClaimHostname,
    CreateEnclave,
    Decision,
    DeleteEnclave,
    DeleteRoute,
    DeleteService,
    EnsureDeployment,
    RecordDemoted,
    RecordServing,
    ReleaseHostname,
    RouteHostname,
    RouteTo,
    ServiceRole,
    TransferHostname,
)
from cloister_operator.rollout.enclave_status import (
    PodAction,
    evaluate_enclave,
    pod_action,
    reevaluate_after,
)
from cloister_operator.rollout.pod_facts import PodContainer, PodFacts, PodPhase
from cloister_operator.rollout.rollout_state import RolloutState
from tests.support.builders.invariants import check
from tests.support.builders.resources import (
    COMMIT,
    NOW,
    SETTINGS,
    claim_of,
    container_of,
    deployment_of,
    host_of,
    image_of,
    organization_of,
    release_of,
    subspec,
)

__all__ = ["UNHEALTHY", "SimulatedCluster"]

UNHEALTHY = "HealthcheckFailed: Container web is unhealthy. Its last output: refused"
"""Termination message of the agent of an enclave whose container is unhealthy."""


class SimulatedCluster:
    """One Container of one organization and all its objects."""

    def __init__(self, settings: DecisionSettings = SETTINGS) -> None:
        self.settings: DecisionSettings = settings
        self.now: datetime = NOW
        self.container: Container = container_of(status=ContainerStatus())
        self.organization: Organization = organization_of()
        self.hosts: tuple[Host, ...] = (host_of(),)
        self.enclaves: dict[str, Enclave] = {}
        self.pods: dict[str, PodFacts] = {}
        self.incomplete: set[str] = set()
        self.cordoned: set[str] = set()
        self.claims: dict[str, HostnameClaim] = {}
        self.successor: Container | None = None
        self.inherits_hostnames: bool = False
        self.domains: tuple[Domain, ...] = ()
        self.deployment: Deployment | None = None
        self.service: ServiceFacts | None = None
        self.preview: ServiceFacts | None = None
        self.shells: ServiceFacts | None = None
        self.routes: dict[str, RouteFacts] = {}
        self.ssh_keys: tuple[SSHKey, ...] = ()
        self.secrets: tuple[Secret, ...] = ()
        self.files: dict[str, ServiceConfig] = {}
        self.results: dict[Need, LookupResult] = {}
        self.source_is_up: bool = True
        self.bad_tags: set[str] = set()
        self.published: dict[str, datetime] = {"v1.0.0": NOW - timedelta(days=1)}
        self.commits: dict[str, str] = {}
        self.interrupt_next: bool = False
        self.wake_at: datetime | None = None
        self.decisions: list[Decision] = []
        self._count: int = 0

    # What the operator does.

    def observed(self) -> Observed:
        """Return the observed state of one reconcile."""
        return Observed(
            container=self.container,
            settings=self.settings,
            organization=self.organization,
            hosts=self.hosts,
            enclaves=tuple(self.enclaves.values()),
            pods=frozenset(self.pods),
            cordoned=frozenset(n for n, pod in self.pods.items() if pod.node in self.cordoned),
            incomplete=frozenset(self.incomplete),
            claims=dict(self.claims),
            successor=self.successor,
            inherits_hostnames=self.inherits_hostnames,
            rank=0,
            domains=self.domains,
            deployment=self.deployment,
            service=self.service,
            preview=self.preview,
            shells=self.shells,
            ssh_keys=self.ssh_keys,
            secrets=self.secrets,
            routes=dict(self.routes),
            results=dict(self.results),
        )

    def reconcile(self) -> Decision:
        """Reconcile once: evaluate Enclaves, create Pods, decide, check, apply, write status."""
        waits = []
        for name, enclave in list(self.enclaves.items()):
            status = evaluate_enclave(enclave, self.pods.get(name), self.now, self.settings)
            judged = enclave.model_copy(update={"status": status})
            self.enclaves[name] = judged
            self._tend_pod(judged)
            waits.append(reevaluate_after(judged, self.pods.get(name), self.now, self.settings))
        observed = self.observed()
        decision = decide(observed, self.now)
        check(self, observed, decision)
        for action in decision.actions:
            self.act(action)
        self.container = self.container.model_copy(update={"status": decision.status})
        for need in decision.needs:
            self.results[need] = self._result(need)
        waits.append(decision.requeue_after)
        known = [wait for wait in waits if wait is not None]
        self.wake_at = self.now + min(known) if known else None
        self.decisions.append(decision)
        promoted = [
            each
            for each in self.enclaves.values()
            if each.status.promoted_at is not None and each.status.demoted_at is None
        ]
        assert len(promoted) <= 1, "two enclaves serve"
        return decision

    def _tend_pod(self, enclave: Enclave) -> None:
        name = enclave.metadata.name
        pod = self.pods.get(name)
        match pod_action(enclave, pod):
            case PodAction.CREATE if name not in self.incomplete:
                self._count += 1
                web = PodContainer(name="web", checked=True)
                self.pods[name] = PodFacts(
                    uid=f"pod-{self._count}",
                    containers=(web,),
                    shim=PodContainer(name="shim"),
                    agent=PodContainer(name="agent"),
                )
            case PodAction.DELETE if pod is not None:
                self.pods[name] = replace(pod, deleting=True)
            case _:
                pass

    def act(self, action: Action) -> None:
        """Apply one action as the API server would."""
        match action:
            case CreateEnclave():
                self._create(action)
            case DeleteEnclave(name=name):
                self._delete_enclave(name)
            case ClaimHostname() | TransferHostname() | ReleaseHostname():
                self._hold(action)
            case RouteTo() | DeleteService():
                self._route(action)
            case RouteHostname() | DeleteRoute():
                self._route_hostname(action)
            case EnsureDeployment(repo=repo):
                self.deployment = deployment_of(repo)
            case RecordServing(enclave=name, at=at):
                self._patch(name, serving=True, promoted_at=at)
            case RecordDemoted(enclave=name, at=at):
                self._patch(name, serving=False, demoted_at=at)

    def _hold(self, action: ClaimHostname | TransferHostname | ReleaseHostname) -> None:
        mine = claim_of(action.hostname, holder=self.container.metadata.name)
        match action:
            case ClaimHostname(hostname=hostname):
                self.claims.setdefault(hostname, mine)
            case TransferHostname(hostname=hostname):
                assert self.claims[hostname].spec.holder.name == self.container.spec.replaces
                self.claims[hostname] = mine
            case ReleaseHostname(hostname=hostname):
                del self.claims[hostname]

    def _route(self, action: RouteTo | DeleteService) -> None:
        match action:
            case DeleteService(role=ServiceRole.SERVING):
                self.service = None
            case RouteTo(role=ServiceRole.SERVING, enclave=name):
                before = self.service.addresses if self.service else frozenset()
                self.service = ServiceFacts(selects=name, addresses=before)
            case RouteTo(role=ServiceRole.PREVIEW, enclave=name):
                self.preview = ServiceFacts(selects=name, uid="preview")
            case DeleteService(role=ServiceRole.PREVIEW, uid=uid):
                assert self.preview is not None
                assert uid == self.preview.uid
                self.preview = None
            case RouteTo(role=ServiceRole.SSH, enclave=name):
                self.shells = ServiceFacts(selects=name, uid="shells", node_port=30022)
            case DeleteService(role=ServiceRole.SSH, uid=uid):
                assert self.shells is not None
                assert uid == self.shells.uid
                self.shells = None
            case _:
                raise AssertionError(action)

    def _route_hostname(self, action: RouteHostname | DeleteRoute) -> None:
        match action:
            case RouteHostname(hostname=hostname, service=service):
                gateway = self.settings.gateway
                self.routes[hostname] = RouteFacts((hostname,), service, gateway, "route", "1")
            case DeleteRoute(hostname=hostname):
                del self.routes[hostname]

    def _create(self, action: CreateEnclave) -> None:
        if action.name in self.enclaves:
            self.incomplete.discard(action.name)
            return
        self._count += 1
        self.enclaves[action.name] = Enclave(
            metadata=ObjectMeta(
                name=action.name,
                uid=f"uid-{self._count}",
                resource_version="1",
                generation=1,
                creation_timestamp=self.now,
            ),
            spec=action.spec,
        )
        if self.interrupt_next:
            self.interrupt_next = False
            self.incomplete.add(action.name)

    def _patch(self, name: str, **status: datetime | bool) -> None:
        enclave = self.enclaves.get(name)
        if enclave is not None:
            changed = enclave.status.model_copy(update=status)
            self.enclaves[name] = enclave.model_copy(update={"status": changed})

    def _delete_enclave(self, name: str) -> None:
        enclave = self.enclaves[name]
        metadata = enclave.metadata.model_copy(update={"deletion_timestamp": self.now})
        self.enclaves[name] = enclave.model_copy(update={"metadata": metadata})
        if name in self.pods:
            self.pods[name] = replace(self.pods[name], deleting=True)

    def _result(self, need: Need) -> LookupResult:
        if isinstance(need, NeedRelease | NeedLatest) and not self.source_is_up:
            wait = self.now + timedelta(seconds=10)
            return Failed("SourceUnavailable", "no answer", True, self.now, wait)
        match need:
            case NeedRelease() if need.tag in self.bad_tags:
                return Failed("TagNotFound", "no such tag", False, self.now)
            case NeedRelease():
                return self.release(need)
            case NeedLatest():
                return Known(self._newest(need), self.now)
            case NeedImage():
                return Known(image_of(need.image), self.now)
            case _:
                return Known(SecretValues(), self.now)

    def release(self, need: NeedRelease) -> LookupResult:
        """Read a tag as a source does: a pinned commit that it left only where that is kept."""
        points_to, file = self.commits.get(need.tag, COMMIT), self.files.get(need.tag)
        commit = need.commit or points_to
        if commit != points_to and not need.kept:
            return Failed("TagMoved", f"points to {points_to}, not to {commit}", False, self.now)
        found = release_of(file, tag=need.tag, commit=commit, tag_commit=points_to)
        return Known(found, self.now)

    def _newest(self, need: NeedLatest) -> NewestRelease:
        if not self.published:
            return NewestRelease(newest=None)
        tag = max(self.published, key=lambda each: release_order(self.published[each], each))
        commit = self.commits.get(tag, COMMIT)
        newest = LatestRelease(tag=tag, commit=commit, published_at=self.published[tag])
        if need.than is None or need.than == tag:
            return NewestRelease(newest)
        than = self.published.get(need.than)
        return NewestRelease(newest, than, self.commits.get(need.than, COMMIT) if than else "")

    # What may happen between two reconciles.

    def publish_release(self, tag: str) -> None:
        """Publish a release now; every repository of the world is one."""
        self.published[tag] = self.now

    def change_spec(self, **spec: Any) -> None:
        """Change spec as a user does; nothing happens when nothing changes."""
        if any(getattr(self.container.spec, name) != value for name, value in spec.items()):
            self.container = subspec(self.container, **spec)

    def advance(self, seconds: float) -> None:
        """Advance the clock."""
        self.now += timedelta(seconds=seconds)

    def start(self, name: str) -> None:
        """Start the Pod of an Enclave."""
        pod = self.pods.get(name)
        if pod is None or pod.phase is not PodPhase.PENDING or pod.deleting:
            return
        free = [each for each in ("node-1", "node-2") if each not in self.cordoned]
        if not free or self.enclaves[name].spec.summary.gpus > self._free_gpus():
            return
        self._count += 1
        running: dict[str, Any] = {"state": ContainerStateName.RUNNING, "started_at": self.now}
        self.pods[name] = replace(
            pod,
            phase=PodPhase.RUNNING,
            node=free[0],
            address=f"10.0.0.{self._count}",
            containers=tuple(replace(each, **running) for each in pod.containers),
            shim=PodContainer(name="shim", ready=True, **running),
            agent=PodContainer(name="agent", **running),
        )

    def _free_gpus(self) -> int:
        """Return how many of the eight GPUs no Pod has."""
        bound = (self.enclaves.get(name) for name, pod in self.pods.items() if pod.node)
        return 8 - sum(each.spec.summary.gpus for each in bound if each is not None)

    def set_health(self, name: str, *, well: bool = True) -> None:
        """Make the health check of an Enclave pass or fail."""
        pod = self.pods.get(name)
        if pod is not None and pod.phase is PodPhase.RUNNING and not pod.deleting:
            healed = tuple(replace(each, ready=well) for each in pod.containers)
            reported: dict[str, Any] = {} if well else {"exit_code": 1, "exit_message": UNHEALTHY}
            agent = replace(pod.agent or PodContainer(name="agent"), ready=well, **reported)
            self.pods[name] = replace(pod, containers=healed, agent=agent)

    def fail_container(self, name: str) -> None:
        """Make the container of an Enclave exit with an error."""
        pod = self.pods.get(name)
        if pod is not None and pod.phase is PodPhase.RUNNING and not pod.deleting:
            ended = tuple(
                replace(each, state=ContainerStateName.TERMINATED, exit_code=3, ready=False)
                for each in pod.containers
            )
            self.pods[name] = replace(pod, containers=ended)

    def cordon(self, *nodes: str) -> None:
        """Cordon these nodes, and no others."""
        self.cordoned = set(nodes)

    def lose_pod(self, name: str) -> None:
        """Lose the Pod of an Enclave."""
        self.pods.pop(name, None)

    def delete_enclave(self, name: str) -> None:
        """Delete an Enclave by hand."""
        if name in self.enclaves:
            self._delete_enclave(name)

    def garbage_collect(self) -> None:
        """Garbage-collect what is being deleted."""
        for name in [name for name, pod in self.pods.items() if pod.deleting]:
            del self.pods[name]
        for name, enclave in list(self.enclaves.items()):
            if enclave.metadata.deletion_timestamp is not None and name not in self.pods:
                del self.enclaves[name]
                self.incomplete.discard(name)

    def sync_endpoints(self) -> None:
        """Update the EndpointSlice after the Service."""
        if self.service is not None:
            pod = self.pods.get(self.service.selects)
            address = pod.address if pod is not None and not pod.deleting else ""
            addresses = frozenset({address} if address else ())
            self.service = ServiceFacts(selects=self.service.selects, addresses=addresses)

    def report_routes(self, state: RouteState, message: str = "") -> None:
        """Make the gateway report the same state for every route."""
        self.routes = {
            name: replace(each, state=state, message=message) for name, each in self.routes.items()
        }

    def settle(self, *, passes: int = 400) -> None:
        """Let everything succeed until nothing more happens."""
        quiet = 0
        for _ in range(passes):
            for name in list(self.pods):
                self.start(name)
                self.set_health(name)
            self.sync_endpoints()
            self.garbage_collect()
            before = (self.container.status, dict(self.enclaves), dict(self.pods), self.service)
            decision = self.reconcile()
            same = before == (self.container.status, self.enclaves, self.pods, self.service)
            quiet = quiet + 1 if same and not decision.actions and not decision.needs else 0
            # Lookups of later releases never end; tests advance their interval by hand.
            following = RolloutState(self.observed(), self.now).followed_release.recheck_at
            if quiet > 2 and self.wake_at in {None, following}:
                return
            if quiet > 2:
                waited = self.wake_at or self.now
                self.now = max(waited, self.now + timedelta(seconds=1))
                if quiet > 20:
                    return
        raise AssertionError(f"no rest after {passes} passes: {self.decisions[-1]}")

    # Shortcuts for tests.

    def reason(self, kind: str = "Ready") -> str | None:
        """Return the reason of a condition of the Container; None = it does not exist."""
        return self.reason_of(self.container.status, kind)

    def reason_of(self, status: ContainerStatus, kind: str = "Ready") -> str | None:
        """Return the reason of a condition in a status; None = it does not exist."""
        found = condition(status.conditions, kind)
        return found.reason if found else None

    def promote(self) -> None:
        """Promote the update in progress, as a user does who has read its revision."""
        if self.container.status.update is not None:
            self.change_spec(promote=self.container.status.update.revision)

    def created(self) -> list[CreateEnclave]:
        """Return every Enclave that was created since the decisions were cleared."""
        actions = [action for decision in self.decisions for action in decision.actions]
        return [action for action in actions if isinstance(action, CreateEnclave)]

    def step(self) -> None:
        """Reconcile once after the Service has settled and what was deleted is gone."""
        self.sync_endpoints()
        self.garbage_collect()
        self.reconcile()

    def fail_candidate(self) -> None:
        """Start the candidate, and make its container exit with an error."""
        while self.container.status.candidate not in self.pods:
            self.step()
        self.step()
        name = self.container.status.candidate
        self.start(name)
        self.step()
        self.fail_container(name)
        for _ in range(4):
            self.step()
