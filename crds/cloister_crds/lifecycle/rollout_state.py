"""What was observed, put in the words of the rules: wanted, serving, lost, attempts of a request.

`Scene` answers questions about one `Observed`; it decides nothing. Each request that plays a part
has a `Line`: its attempts in order. Usually there is one; while an update runs there are two, that
of the wanted request and that of the one that serves or served.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from cloister_crds.kinds.container import Container, ContainerPhase, ContainerStatus, DesiredState
from cloister_crds.kinds.enclave import Enclave, EnclavePhase
from cloister_crds.kinds.meta import PAUSED_ANNOTATION
from cloister_crds.kinds.request import RequestRecord
from cloister_crds.lifecycle import request as requests
from cloister_crds.lifecycle.auto_update import Following, follow
from cloister_crds.lifecycle.backoff import back_off
from cloister_crds.lifecycle.names.domains import domain_named, may_serve
from cloister_crds.lifecycle.names.hostnames import wanted_hostnames
from cloister_crds.lifecycle.state.conditions import condition
from cloister_crds.lifecycle.state.observed import DecisionSettings, Observed
from cloister_crds.lifecycle.state.reasons import is_transient
from cloister_crds.names import preview_hostname

__all__ = ["Line", "Scene", "has_failed", "has_retired", "is_ready", "names"]

STEADY = timedelta(minutes=5)
"""An attempt that was ready for so long is repeated without a wait when it is lost."""


def has_failed(enclave: Enclave) -> bool:
    """Tell whether an attempt is over."""
    return enclave.status.phase in {EnclavePhase.FAILED, EnclavePhase.ENDED}


def has_retired(enclave: Enclave) -> bool:
    """Tell whether an Enclave served, gave way to its successor, and only drains."""
    return enclave.status.demoted_at is not None and not has_failed(enclave)


def is_ready(enclave: Enclave) -> bool:
    """Tell whether an attempt could serve."""
    return enclave.status.phase is EnclavePhase.READY and not _is_leaving(enclave)


def _is_leaving(enclave: Enclave) -> bool:
    return enclave.metadata.deletion_timestamp is not None


def _failed_at(enclave: Enclave, now: datetime) -> datetime:
    stalled = condition(enclave.status.conditions, "Stalled")
    return stalled.last_transition_time if stalled is not None else now


def names(*enclaves: Enclave | None) -> frozenset[str]:
    """Answer the names of Enclaves; a None counts for nothing."""
    return frozenset(each.metadata.name for each in enclaves if each is not None)


@dataclass(frozen=True)
class Line:
    """The attempts of one request."""

    request: RequestRecord
    """The request."""
    attempts: tuple[Enclave, ...]
    """Its Enclaves that are not being deleted, oldest first."""
    origin: Enclave | None
    """The Enclave that a further attempt copies commit, file, images and secrets from: the one that
    served, else the newest; None = there is none, and everything is resolved anew."""
    leaving: bool = False
    """Whether `origin` is being deleted although it served."""

    @property
    def newest(self) -> Enclave | None:
        """The attempt that counts."""
        return self.attempts[-1] if self.attempts else None

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
        everything = (*self.attempts, *((self.origin,) if self.origin else ()))
        return any(each.status.promoted_at is not None for each in everything)

    def losses(self, now: datetime) -> int:
        """Answer how many attempts were lost in a row, the newest included.

        Parameters
        ----------
        now
            The present, for an attempt that says no time of its end.
        """
        if self.failed is None:
            return 0
        ready_at = self.failed.status.ready_at
        if ready_at is not None and _failed_at(self.failed, now) - ready_at >= STEADY:
            return 0
        return self.failed.spec.losses + 1

    def retry_at(self, now: datetime) -> datetime:
        """Answer when the next attempt may be made.

        Parameters
        ----------
        now
            The present, for an attempt that says no time of its end.
        """
        if self.failed is None:
            return now
        # The first loss of what was ready costs no wait: it worked, and somebody may depend on it.
        had_been_ready = self.failed.status.ready_at is not None
        ended = _failed_at(self.failed, now)
        if ended > now:
            # The clock was set back meanwhile; to wait until it is there again may take long.
            return now
        return ended + back_off(self.losses(now) - int(had_been_ready))


@dataclass(frozen=True)
class Scene:
    """One observation and the time at which it is judged."""

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
        """Its status as it stands."""
        return self.container.status

    @property
    def settings(self) -> DecisionSettings:
        """What the administrator set."""
        return self.observed.settings

    @property
    def is_paused(self) -> bool:
        """Whether somebody asked to leave the Container alone."""
        return self.container.metadata.annotations.get(PAUSED_ANNOTATION) == "true"

    @property
    def is_stopped(self) -> bool:
        """Whether spec asks for no enclave."""
        return self.container.spec.state is DesiredState.STOPPED

    def inherits(self, hostname: str) -> bool:
        """Tell whether a host name is held by the Container that this one replaces.

        Parameters
        ----------
        hostname
            A host name of spec.
        """
        claim = self.observed.claims.get(hostname)
        if claim is None or not self.observed.inherits:
            return False
        meta, holder = self.container.metadata, claim.spec.holder
        return (holder.namespace, holder.name) == (meta.namespace, self.container.spec.replaces)

    @cached_property
    def wanted(self) -> RequestRecord:
        """The request that spec asks for, with the tag that is followed."""
        return requests.record(self.container.spec, followed_tag=self.following.tag)

    @property
    def was_reported(self) -> bool:
        """Whether the conditions in status are about the very request that is wanted now."""
        ready = condition(self.status.conditions, "Ready")
        latest = self.status.latest_release
        followed = latest.tag if latest is not None and latest.followed else None
        return (
            ready is not None
            and ready.observed_generation == self.container.metadata.generation
            and followed == self.following.tag
        )

    @cached_property
    def following(self) -> Following:
        """Which release is followed."""
        return Following() if self.is_stopped else follow(self.observed, self.now)

    @cached_property
    def everyone(self) -> tuple[Enclave, ...]:
        """Enclaves of this Container, deleting ones included, oldest first."""
        uid = self.container.metadata.uid
        mine = (each for each in self.observed.enclaves if each.spec.container.uid == uid)
        return tuple(sorted(mine, key=self._age))

    @cached_property
    def mine(self) -> tuple[Enclave, ...]:
        """Enclaves of this Container that are not being deleted, oldest first."""
        return tuple(each for each in self.everyone if not _is_leaving(each))

    @cached_property
    def active(self) -> Enclave | None:
        """The Enclave that status names as the serving one, as far as it still exists."""
        name = self.status.active_enclave
        return next((each for each in self.everyone if each.metadata.name == name), None)

    @cached_property
    def serving(self) -> Enclave | None:
        """The active Enclave while it is there and was not lost."""
        active = self.active
        if active is None or has_failed(active) or _is_leaving(active):
            return None
        return active

    @cached_property
    def wanted_line(self) -> Line:
        """Attempts of the wanted request."""
        return self.line(self.wanted)

    @cached_property
    def served_line(self) -> Line | None:
        """Attempts of the request that serves or served last, where it is not the wanted one."""
        if self.active is None or requests.same(self.active.spec.request, self.wanted):
            return None
        return self.line(self.active.spec.request)

    @cached_property
    def revision(self) -> str:
        """Name of the wanted request: that of its attempts, else a new one."""
        newest = self.wanted_line.newest or self.wanted_line.origin
        if newest is not None:
            return newest.spec.revision
        return requests.revision(self.wanted, self.container.metadata.generation)

    @cached_property
    def hostnames(self) -> tuple[str, ...]:
        """Host names that spec asks for and that may be served, the public one first."""
        wanted = wanted_hostnames(
            self.container, self.observed.organization, self.settings.containers_domain
        )
        return tuple(each for each in wanted if self.is_served(each))

    def is_custom(self, hostname: str) -> bool:
        """Tell whether a host name is a custom domain, not a generated one.

        Parameters
        ----------
        hostname
            A host name of spec or of an Enclave.
        """
        return not hostname.endswith(f".{self.settings.containers_domain}")

    def is_served(self, hostname: str) -> bool:
        """Tell whether requests for a host name are let in: a custom one's Domain has a say.

        Parameters
        ----------
        hostname
            A host name of spec or of an Enclave.
        """
        domain = domain_named(hostname, self.observed.domains)
        return not self.is_custom(hostname) or may_serve(
            domain, now=self.now, grace=self.settings.domain_grace
        )

    @property
    def is_staging(self) -> bool:
        """Whether updates wait for promotion: what spec says, else the Deployment's default."""
        deployment = self.observed.deployment
        asked = self.container.spec.staging
        if asked is not None:
            return asked
        return deployment is not None and deployment.spec.default_staging

    @property
    def preview(self) -> str:
        """Host name at which an update that is made now can be tried; empty = it will not wait."""
        organization = self.observed.organization
        if organization is None or not self.is_staging or self.served_line is None:
            return ""
        return preview_hostname(
            self.container.display_name,
            organization=organization.metadata.name,
            debug=self.container.spec.debug,
            containers_domain=self.settings.containers_domain,
        )

    @cached_property
    def memory(self) -> Enclave | None:
        """A failed Enclave of an earlier request, kept while its successor is on its way."""
        others = (
            each
            for each in self.mine
            if has_failed(each)
            and not is_transient(each.status.reason)
            and not requests.same(each.spec.request, self.wanted)
        )
        return max(others, key=self._age, default=None)

    @cached_property
    def is_update(self) -> bool:
        """Whether the wanted request follows on another one: what serves, served or failed."""
        if self.served_line is not None or self.memory is not None:
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
        """Whether the Service shows the address of the serving Enclave."""
        return self.serving is not None and self.shows(self.serving)

    def shows(self, enclave: Enclave) -> bool:
        """Tell whether the Service selects an Enclave and its EndpointSlice has the address.

        Parameters
        ----------
        enclave
            The Enclave.
        """
        service = self.observed.service
        return (
            service is not None
            and service.selects == enclave.metadata.name
            and bool(enclave.status.address)
            and enclave.status.address in service.addresses
        )

    def line(self, request: RequestRecord) -> Line:
        """Answer the attempts of a request.

        Parameters
        ----------
        request
            The request.
        """
        active = self.active
        found = [
            each
            for each in self.mine
            if requests.same(each.spec.request, request)
            and (each is active or not has_retired(each))
        ]
        # Attempts of a revision are counted: the server's clock, which may be set back, is not
        # asked which of them is the newest. `found` has the oldest first.
        began = {each.spec.revision: at for at, each in reversed(tuple(enumerate(found)))}
        found.sort(key=lambda each: (began[each.spec.revision], each.spec.attempt))
        attempts = tuple(found)
        origin = attempts[-1] if attempts else None
        if active is not None and requests.same(active.spec.request, request):
            origin = active
        leaving = origin is not None and _is_leaving(origin)
        return Line(request=request, attempts=attempts, origin=origin, leaving=leaving)

    def next_attempt(self, revision: str) -> int:
        """Answer the number of the next attempt: one more than the highest that exists.

        Ended ones and those of an earlier Container of the same name count too, since names are
        made from the number.

        Parameters
        ----------
        revision
            Name of the request.
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
