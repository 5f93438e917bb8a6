"""The state of a rollout in the terms of the rules: wanted, serving, lost, attempts of a request.

`RolloutState` derives facts from one `Observed`; it decides nothing. Each request that plays a part
has `RevisionAttempts`. Usually there is one; while an update runs there are two, that of the wanted
request and that of the one that serves or served.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from cloister_crds.backoff import backoff_delay
from cloister_crds.kinds.container import (
    Container,
    ContainerPhase,
    ContainerStatus,
    DesiredState,
    KeptRequest,
)
from cloister_crds.kinds.enclave import Enclave, EnclavePhase
from cloister_crds.kinds.request import RequestRecord
from cloister_crds.lifecycle import request as requests
from cloister_crds.lifecycle.kept_request import kept_request, request_instead
from cloister_crds.lifecycle.names.domains import find_domain, may_serve
from cloister_crds.lifecycle.names.hostnames import (
    generated_hostnames,
    internal_hostname,
    wanted_hostnames,
)
from cloister_crds.lifecycle.pause import is_paused
from cloister_crds.lifecycle.state.conditions import condition
from cloister_crds.lifecycle.state.observed import DecisionSettings, Observed
from cloister_crds.lifecycle.state.reasons import is_transient
from cloister_operator.rollout.auto_update import FollowedRelease, RolloutPlan, follow_release

STEADY = timedelta(minutes=5)
"""An attempt that was ready for this long is retried without backoff when it is lost."""


def has_failed(enclave: Enclave) -> bool:
    """Return whether an attempt is over."""
    return enclave.status.phase in {EnclavePhase.FAILED, EnclavePhase.ENDED}


def is_draining(enclave: Enclave) -> bool:
    """Return whether an Enclave served, was replaced by the next one, and only drains."""
    return enclave.status.demoted_at is not None and not has_failed(enclave)


def is_ready(enclave: Enclave) -> bool:
    """Return whether an attempt could serve."""
    return enclave.status.phase is EnclavePhase.READY and not _is_deleting(enclave)


def _is_deleting(enclave: Enclave) -> bool:
    return enclave.metadata.deletion_timestamp is not None


def _can_serve(enclave: Enclave) -> bool:
    return not has_failed(enclave) and not _is_deleting(enclave)


def _failed_at(enclave: Enclave, now: datetime) -> datetime:
    stalled = condition(enclave.status.conditions, "Stalled")
    return stalled.last_transition_time if stalled is not None else now


def enclave_names(*enclaves: Enclave | None) -> frozenset[str]:
    """Return the names of Enclaves; None counts for nothing."""
    return frozenset(each.metadata.name for each in enclaves if each is not None)


@dataclass(frozen=True)
class RevisionAttempts:
    """The attempts of one request."""

    request: RequestRecord
    """The request."""
    enclaves: tuple[Enclave, ...]
    """Its Enclaves that are not being deleted, oldest first, one per attempt."""
    origin: Enclave | None
    """The Enclave that a further attempt copies commit, file, images and secrets from: the one that
    served, else the newest; None if there is none, and everything is resolved again."""

    @property
    def newest(self) -> Enclave | None:
        """The attempt that counts."""
        return self.enclaves[-1] if self.enclaves else None

    @property
    def live(self) -> Enclave | None:
        """The newest attempt while it is not over."""
        return self.newest if self.newest is not None and not has_failed(self.newest) else None

    @property
    def ready(self) -> Enclave | None:
        """The newest attempt when it could serve."""
        return self.newest if self.newest is not None and is_ready(self.newest) else None

    @property
    def failed(self) -> Enclave | None:
        """The newest attempt when it is over."""
        return self.newest if self.newest is not None and has_failed(self.newest) else None

    @property
    def ever_served(self) -> bool:
        """Whether one of its Enclaves served."""
        everything = (*self.enclaves, *((self.origin,) if self.origin else ()))
        return any(each.status.promoted_at is not None for each in everything)

    def losses(self, now: datetime) -> int:
        """Return how many attempts were lost in a row, the newest included.

        `now` is used for an attempt that does not record when it ended.
        """
        if self.failed is None:
            return 0
        ready_at = self.failed.status.ready_at
        if ready_at is not None and _failed_at(self.failed, now) - ready_at >= STEADY:
            return 0
        return self.failed.spec.losses + 1

    def retry_at(self, now: datetime) -> datetime:
        """Return when the next attempt may be created: the backoff after a loss, in UTC.

        `now` is used for an attempt that does not record when it ended.
        """
        if self.failed is None:
            return now
        # The first loss of what was ready has no backoff: it worked, and somebody may depend on it.
        had_been_ready = self.failed.status.ready_at is not None
        ended = _failed_at(self.failed, now)
        if ended > now:
            # The clock was set back meanwhile; it may take long to reach that time again.
            return now
        return ended + backoff_delay(self.losses(now) - int(had_been_ready))


@dataclass(frozen=True)
class RolloutState:
    """One observation and the time at which it is evaluated."""

    observed: Observed
    """What was observed."""
    now: datetime
    """The present, in UTC."""

    @property
    def container(self) -> Container:
        """The Container."""
        return self.observed.container

    @property
    def status(self) -> ContainerStatus:
        """Its present status."""
        return self.container.status

    @property
    def settings(self) -> DecisionSettings:
        """What the administrator set."""
        return self.observed.settings

    @property
    def is_paused(self) -> bool:
        """Whether reconciling of the Container is paused."""
        return is_paused(self.container)

    @property
    def is_deleting(self) -> bool:
        """Whether the Container has a deletionTimestamp."""
        return self.container.metadata.deletion_timestamp is not None

    @property
    def is_stopped(self) -> bool:
        """Whether spec requests no enclave."""
        return self.container.spec.state is DesiredState.STOPPED

    def inherits_hostname(self, hostname: str) -> bool:
        """Return whether a host name of spec is held by the Container that this one replaces."""
        claim = self.observed.claims.get(hostname)
        if claim is None or not self.observed.inherits_hostnames:
            return False
        meta, holder = self.container.metadata, claim.spec.holder
        return (holder.namespace, holder.name) == (meta.namespace, self.container.spec.replaces)

    @cached_property
    def wanted(self) -> RequestRecord:
        """The desired request: that of spec, or what is kept instead; when paused, what serves."""
        if self.is_paused and self.active is not None:
            return self.active.spec.request
        return request_instead(self.kept, self._asked)

    @property
    def _asked(self) -> RequestRecord:
        """The request in spec, with the tag that is followed."""
        return requests.record(self.container.spec, followed_tag=self.followed_release.tag)

    @cached_property
    def kept(self) -> KeptRequest | None:
        """What counts instead of the request in spec; None if spec counts."""
        serving = self.active.spec.request if self.active is not None else None
        return kept_request(self.container, self._asked, serving)

    @cached_property
    def requested(self) -> Container:
        """The Container with the request that counts in its spec."""
        if self.kept is None:
            return self.container
        spec = requests.with_request(self.container.spec, self.wanted)
        return self.container.model_copy(update={"spec": spec})

    @property
    def was_reported(self) -> bool:
        """Whether the conditions in status are about the very request that is wanted now."""
        ready = condition(self.status.conditions, "Ready")
        latest = self.status.latest_release
        followed = latest.tag if latest is not None and latest.followed else None
        return (
            ready is not None
            and ready.observed_generation == self.container.metadata.generation
            and followed == self.followed_release.tag
        )

    @cached_property
    def followed_release(self) -> FollowedRelease:
        """The release that automatic updates follow."""
        if self.is_paused:
            return FollowedRelease()
        return follow_release(self.observed, self.now)

    @cached_property
    def all_enclaves(self) -> tuple[Enclave, ...]:
        """Enclaves of this Container, deleting ones included, oldest first."""
        uid = self.container.metadata.uid
        own = (each for each in self.observed.enclaves if each.spec.container.uid == uid)
        return tuple(sorted(own, key=self._age))

    @cached_property
    def enclaves(self) -> tuple[Enclave, ...]:
        """Enclaves of this Container that are not being deleted, oldest first."""
        return tuple(each for each in self.all_enclaves if not _is_deleting(each))

    @cached_property
    def active(self) -> Enclave | None:
        """The Enclave that status names as the serving one, as far as it still exists.

        While status names none, it is what the Service was pointed at for an earlier request: the
        request has changed before status named its Enclave, which receives requests already.
        """
        name = self.status.active_enclave or self._selected_for_an_earlier_request
        return next((each for each in self.all_enclaves if each.metadata.name == name), None)

    @property
    def _selected_for_an_earlier_request(self) -> str:
        service = self.observed.service
        for each in self.enclaves if service is not None else ():
            if service is not None and each.metadata.name == service.selects:
                earlier = not requests.is_made_for(each.spec, self._asked)
                ready = each.status.phase is EnclavePhase.READY
                return service.selects if ready and earlier else ""
        return ""

    @cached_property
    def serving(self) -> Enclave | None:
        """The active Enclave while it exists and was not lost."""
        return self.active if self.active is not None and _can_serve(self.active) else None

    def active_after(self, plan: RolloutPlan) -> Enclave | None:
        """Return the Enclave that status names as serving under a plan, lost or not."""
        if plan.active is None:
            return self.active
        return next((each for each in self.all_enclaves if each.metadata.name == plan.active), None)

    def serving_after(self, plan: RolloutPlan) -> Enclave | None:
        """Return the Enclave that serves under a plan; None if none does, or it was lost."""
        active = self.active_after(plan)
        return active if active is not None and _can_serve(active) else None

    @cached_property
    def wanted_attempts(self) -> RevisionAttempts:
        """Attempts of the wanted request."""
        return self.attempts_of(self.wanted)

    @cached_property
    def served_attempts(self) -> RevisionAttempts | None:
        """Attempts of the request that serves or served last, where it is not the wanted one."""
        if self.active is None or requests.is_made_for(self.active.spec, self.wanted):
            return None
        return self.attempts_of(self.active.spec.request)

    @cached_property
    def revision(self) -> str:
        """Name of the wanted request: that of its attempts, else a new one."""
        newest = self.wanted_attempts.newest or self.wanted_attempts.origin
        if newest is not None:
            return newest.spec.revision
        return requests.revision(self.wanted, self.container.metadata.generation)

    @cached_property
    def hostnames(self) -> tuple[str, ...]:
        """Host names that are requested and may be served, the public one first."""
        return tuple(each for each in self._requested_hostnames if self.accepts(each))

    @property
    def named_hostnames(self) -> frozenset[str]:
        """Host names that a decision may be about: those requested, and those of Enclaves.

        Their holder matters; `Observed.claims` has their claims.
        """
        served = (host for each in self.all_enclaves for host in each.spec.hostnames)
        return frozenset((*self._requested_hostnames, *served))

    @property
    def _requested_hostnames(self) -> tuple[str, ...]:
        return wanted_hostnames(
            self.requested, self.observed.organization, self.settings.containers_domain
        )

    @property
    def internal_hostname(self) -> str:
        """The generated host name; empty without an Organization."""
        organization = self.observed.organization
        if organization is None:
            return ""
        return internal_hostname(self.requested, organization, self.settings.containers_domain)

    def is_custom(self, hostname: str) -> bool:
        """Return whether a host name is a custom domain, not a generated one."""
        return not hostname.endswith(f".{self.settings.containers_domain}")

    def accepts(self, hostname: str) -> bool:
        """Return whether requests for a host name are accepted; a custom one's Domain decides."""
        domain = find_domain(hostname, self.observed.domains)
        return not self.is_custom(hostname) or may_serve(
            domain, now=self.now, grace=self.settings.domain_grace
        )

    @property
    def is_staging(self) -> bool:
        """Whether an update waits for promotion."""
        explicit = self.explicit_staging
        return self.default_staging if explicit is None else explicit

    @property
    def explicit_staging(self) -> bool | None:
        """Whether spec makes an update wait for promotion; None if the default counts."""
        spec = self.container.spec
        if self._is_relaunch and spec.relaunch_staging is not None:
            return spec.relaunch_staging
        return spec.staging

    @property
    def _is_relaunch(self) -> bool:
        """Whether the update is the one that the present value of spec.relaunch requests."""
        relaunch = self.container.spec.relaunch
        served = self.active.spec.request.relaunch if self.active is not None else relaunch
        return served != relaunch == self.wanted.relaunch

    @property
    def default_staging(self) -> bool:
        """The Deployment's default of staging, as it was when the first Enclave was made."""
        kept, deployment = self.status.staging, self.observed.deployment
        if kept is not None:
            return kept
        return deployment is not None and deployment.spec.default_staging

    @property
    def preview(self) -> str:
        """Host name at which an update created now can be tried; empty if it is not staged."""
        organization = self.observed.organization
        if organization is None or not self.is_staging or self.served_attempts is None:
            return ""
        return generated_hostnames(
            self.requested,
            organization,
            self.settings.containers_domain,
            debug=self.requested.spec.debug,
        ).preview

    @cached_property
    def last_failure(self) -> Enclave | None:
        """The failed Enclave of an earlier request, kept while the wanted one starts."""
        others = (
            each
            for each in self.enclaves
            if has_failed(each)
            and not is_transient(each.status.reason)
            and not requests.is_made_for(each.spec, self.wanted)
        )
        return max(others, key=self._age, default=None)

    @cached_property
    def is_update(self) -> bool:
        """Whether the wanted request follows on another one: what serves, served or failed."""
        if self.served_attempts is not None or self.last_failure is not None:
            return True
        update = self.status.update
        if update is not None and update.revision == self.revision and not self.is_stopped:
            return True
        return (
            self.status.phase is ContainerPhase.FAILED
            and self.status.observed_generation < self.container.metadata.generation
        )

    @property
    def is_routed(self) -> bool:
        """Whether the Service routes to the serving Enclave."""
        return self.serving is not None and self.routes_to(self.serving)

    def routes_to(self, enclave: Enclave) -> bool:
        """Return whether the Service selects an Enclave and its EndpointSlice has the address."""
        service = self.observed.service
        return (
            service is not None
            and service.selects == enclave.metadata.name
            and bool(enclave.status.address)
            and enclave.status.address in service.addresses
        )

    def attempts_of(self, request: RequestRecord) -> RevisionAttempts:
        """Return the attempts of a request."""
        active = self.active
        found = [
            each
            for each in self.enclaves
            if requests.is_made_for(each.spec, request)
            and (each is active or not is_draining(each))
        ]
        # The attempt number orders a revision, not creationTimestamp: the server's clock may be set
        # back. `found` has the oldest first.
        began = {each.spec.revision: at for at, each in reversed(tuple(enumerate(found)))}
        found.sort(key=lambda each: (began[each.spec.revision], each.spec.attempt))
        attempts = tuple(found)
        origin = attempts[-1] if attempts else None
        if active is not None and requests.is_made_for(active.spec, request):
            origin = active
        return RevisionAttempts(request=request, enclaves=attempts, origin=origin)

    def next_attempt_number(self, revision: str) -> int:
        """Return the number of the next attempt of a revision: one more than the highest one.

        Failed ones and those of an earlier Container of the same name count too, since names
        contain the number.
        """
        return 1 + max(
            (
                each.spec.attempt
                for each in (*self.observed.enclaves, *self.observed.departed)
                if each.spec.revision == revision
            ),
            default=0,
        )

    def _age(self, enclave: Enclave) -> tuple[datetime, int, str]:
        created = enclave.metadata.creation_timestamp or self.now
        return (created, enclave.spec.attempt, enclave.metadata.name)
