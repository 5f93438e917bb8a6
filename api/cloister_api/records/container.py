"""From a Container to its record in the API (spec 4, 21), with replacements and managers."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import NAMESPACE_OID, uuid5

from pydantic import ValidationError

from cloister_api.cache import CachedContainer
from cloister_api.schemas.container_responses import (
    ContainerResponse,
    ContainerUpdateResponse,
    HostResponse,
    ManagerResponse,
    ReleaseProblem,
)
from cloister_api.schemas.vocabulary import in_api_words
from cloister_clients.clock import utc_text
from cloister_crds.config import ServiceConfig
from cloister_crds.kinds import Container, Deployment, Host, Organization
from cloister_crds.kinds.container import (
    ContainerPhase,
    ContainerResources,
    ContainerSpec,
    ContainerStatus,
    DesiredState,
    HostFacts,
    UpdatePhase,
    UpdateType,
)
from cloister_crds.kinds.meta import GROUP, ObjectMeta
from cloister_crds.lifecycle.admission.host_selection import not_ready_condition
from cloister_crds.lifecycle.kept_request import release_before, requested, requested_spec
from cloister_crds.lifecycle.replacement import successors
from cloister_crds.lifecycle.state.conditions import condition
from cloister_crds.names import generated_hostname


def timestamp(time: datetime) -> str:
    """Return a time as RFC 3339 in UTC, in whole seconds."""
    return utc_text(time, "seconds")


def optional_timestamp(time: datetime | None) -> str | None:
    """Return a time as `timestamp` does; None stays None."""
    return None if time is None else timestamp(time)


def created_at(meta: ObjectMeta) -> str:
    """Return when an object was created, which the API server has written."""
    assert meta.creation_timestamp is not None
    return timestamp(meta.creation_timestamp)


def moment_text(time: datetime | None) -> str | None:
    """Return a time as the API writes it; None stays None."""
    return None if time is None else utc_text(time)


def manager_records(
    owners: Mapping[str, frozenset[str]],
    gitops_managers: Iterable[str],
    name_of: Callable[[str], str] = str,
) -> list[ManagerResponse]:
    """Return the tools that manage fields, by name.

    Parameters
    ----------
    owners
        Wire names of the fields of spec -> managers that set them.
    name_of
        Name in the API of a field. Default the wire name.
    """
    found = {
        manager: sorted({name_of(field) for field, by in owners.items() if manager in by})
        for manager in sorted(gitops_managers)
    }
    return [
        ManagerResponse(manager=manager, fields=fields)
        for manager, fields in found.items()
        if fields
    ]


@dataclass(frozen=True, slots=True)
class ReplacementLinks:
    """How one container is connected with others."""

    replaces: str | None = None
    """Identifier of the container that it replaces; None if there is none, or that is gone."""
    replaced_by: str | None = None
    """Identifier of the container that replaces it; None if none does."""


NO_LINKS = ReplacementLinks()
"""Neither of the two."""


def replacement_links(containers: Collection[CachedContainer]) -> Mapping[str, ReplacementLinks]:
    """Return the links of those that have any, by uid."""
    # Usually none replaces another: clients poll lists, and this is on their way.
    if all(each.container.spec.replaces is None for each in containers):
        return {}
    by_uid = {each.container.metadata.uid: each for each in containers}
    links: dict[str, ReplacementLinks] = {}
    for old, new in successors(each.container for each in containers).items():
        uid = new.metadata.uid
        links[old] = replace(links.get(old, NO_LINKS), replaced_by=by_uid[uid].id)
        links[uid] = replace(links.get(uid, NO_LINKS), replaces=by_uid[old].id)
    return links


def not_replaced(
    containers: Collection[CachedContainer], links: Mapping[str, ReplacementLinks]
) -> list[CachedContainer]:
    """Return the containers that no other one replaces, in the same order."""
    if not links:
        return list(containers)
    return [
        each
        for each in containers
        if links.get(each.container.metadata.uid, NO_LINKS).replaced_by is None
    ]


ASKED_ANNOTATION = f"{GROUP}/asked-resources"
"""Resources of the file as the create read it, for the record until the operator reports them."""


@dataclass(frozen=True, slots=True)
class RecordSettings:
    """What the administrator set that the records depend on."""

    containers_domain: str
    """Parent domain of generated host names."""
    webhooks: bool
    """Whether the installation accepts release webhooks."""


@dataclass(frozen=True, slots=True)
class ShownUpdate:
    """An update as the API shows it."""

    id: str
    """Identifier of the candidate; empty while there is none."""
    tag: str
    """Tag that it brings."""
    status: UpdatePhase
    """How far it is."""
    type: UpdateType
    """How it is promoted."""
    message: str = ""
    """Why it failed; empty otherwise."""


@dataclass(frozen=True, slots=True)
class ShownState:
    """The state of a Container in the words of the API."""

    phase: ContainerPhase
    """The status word."""
    update: ShownUpdate | None
    """The update in progress or failed; None if there is none."""
    seen: bool = True
    """Whether the operator has seen the request, so that its messages are about it."""

    @property
    def updating(self) -> bool:
        """Whether an update is in progress (a failed one is not)."""
        return self.update is not None and self.update.status is not UpdatePhase.FAILED


def shown_state(container: Container) -> ShownState:
    """Return the state of a Container as the API shows it.

    The operator's status is about the generation that it has observed. Between a write of spec and
    the next reconcile the words follow from both, so that nobody takes the state before a relaunch
    for the state after it.
    """
    status = container.status
    if container.metadata.deletion_timestamp is not None:
        return ShownState(ContainerPhase.STOPPING, None)
    phase = status.phase or ContainerPhase.DEPLOYING
    observed = status.observed_generation >= container.metadata.generation
    if observed or is_only_promoted(container):
        return ShownState(phase, reported_update(status) or failed_start(container))
    resting = phase in {ContainerPhase.STOPPED, ContainerPhase.STOPPING}
    if container.spec.state is DesiredState.STOPPED:
        return ShownState(phase if resting else ContainerPhase.STOPPING, None, seen=False)
    if resting:
        return ShownState(ContainerPhase.DEPLOYING, None, seen=False)
    if phase not in {ContainerPhase.READY, ContainerPhase.FAILED}:
        return ShownState(phase, reported_update(status), seen=False)
    if phase is ContainerPhase.FAILED:
        # What failed before says nothing about the new request.
        phase = ContainerPhase.DEPLOYING
    # With more than one GPU what serves is stopped first (spec 22.4).
    several = status.resources is not None and status.resources.gpus > 1
    serves = phase is ContainerPhase.READY and not several
    update = ShownUpdate(
        id="",
        tag=requested(container).tag,
        status=UpdatePhase.PENDING if serves else UpdatePhase.DEPLOYING,
        type=UpdateType.BLUE_GREEN if serves else UpdateType.REPLACE,
    )
    return ShownState(phase, update, seen=False)


def failed_start(container: Container) -> ShownUpdate | None:
    """Return a failed start with another tag than served last; None if it is not such a start.

    Without it only `requested_tag` would name the release that was tried.
    """
    status, wanted = container.status, requested(container)
    tried = status.phase is ContainerPhase.FAILED and not status.active_enclave
    if not tried or release_before(status, wanted) is None:
        return None
    return ShownUpdate("", wanted.tag, UpdatePhase.FAILED, UpdateType.REPLACE, status.message)


def is_only_promoted(container: Container) -> bool:
    """Return whether the promotion of the reported update is all that the operator has not seen."""
    spec, status = container.spec, container.status
    return (
        status.update is not None
        and spec.promote == status.update.revision
        and spec.state is DesiredState.RUNNING
        and requested(container).tag == status.update.tag
        and status.observed_generation + 1 == container.metadata.generation
    )


def reported_update(status: ContainerStatus) -> ShownUpdate | None:
    """Return the update that the operator reports; None if there is none."""
    update = status.update
    if update is None:
        return None
    return ShownUpdate(update.uid, update.tag, update.status, update.type, update.message)


def container_record(
    cached: CachedContainer,
    organization: Organization,
    deployment: Deployment | None,
    settings: RecordSettings,
    links: ReplacementLinks = NO_LINKS,
) -> ContainerResponse:
    """Return the record of a Container.

    Parameters
    ----------
    deployment
        The Deployment of its repository; None if not seen yet.
    """
    container = cached.container
    spec, status = requested_spec(container), container.status
    state = shown_state(container)
    internal = status.internal_domain or generated_hostname(
        container.display_name,
        organization=organization.metadata.name,
        debug=spec.debug,
        containers_domain=settings.containers_domain,
    )
    resources = status.resources or resources_at_create(container)
    update, host = state.update, shown_host(spec, status, seen=state.seen)
    update_message = update.message if update is not None else ""
    message = (status.message or update_message) if state.seen else ""
    has_served = bool(status.current_commit or status.active_enclave)
    requested_tag = requested(container).tag
    return ContainerResponse(
        id=cached.id,
        deployment_id=deployment.identifier if deployment is not None else None,
        name=container.display_name,
        repo=spec.repo,
        status=state.phase,
        domain=served_domain(container) or spec.custom_domain or internal,
        internal_domain=internal,
        current_tag=status.current_tag if has_served else requested_tag,
        requested_tag=requested_tag,
        cpus=resources.cpus,
        gpus=resources.gpus,
        memory_mb=resources.memory_mb,
        debug=spec.debug,
        variables={variable.name: variable.value for variable in spec.variables},
        secrets=list(spec.secrets),
        ssh_keys=list(spec.ssh_keys),
        staging=is_staging(container, deployment, updating=update is not None),
        disable_confidential=spec.disable_confidential,
        github_connected=spec.github_connected and settings.webhooks,
        auto_update=spec.auto_update,
        created_at=created_at(container.metadata),
        updated_at=cached.updated_at,
        ssh_port=status.ssh_port,
        host_name=(host.name or None) if host is not None else None,
        host_gpu_type=(host.gpu_type or None) if host is not None else None,
        host_cpu_type=(host.cpu_type or None) if host is not None else None,
        update_tag=update.tag if update is not None else None,
        update_status=update.status if update is not None else None,
        update_type=update.type if update is not None else None,
        preview_domain=preview_of(status) if update is not None else None,
        replaces=links.replaces,
        replaced_by=links.replaced_by,
        error_message=in_api_words(message) or None,
        warnings=moved_tag_warnings(cached),
    )


def shown_host(spec: ContainerSpec, status: ContainerStatus, *, seen: bool) -> HostFacts | None:
    """Return the host to show: the requested one until the operator has seen the request.

    Parameters
    ----------
    seen
        Whether that is about the present request.
    """
    reported = status.host
    if reported is not None and (seen or spec.host in {None, reported.name}):
        return reported
    return HostFacts(name=spec.host) if spec.host else None


def moved_tag_warnings(cached: CachedContainer) -> list[ReleaseProblem] | None:
    """Return the warning that the tag of the present release moved; None if it is not known to.

    What an action has just found counts before the condition that the operator will set for it.
    """
    known = condition(cached.container.status.conditions, "TagMoved")
    text = cached.moved_tag or (known.message if known is not None else "")
    if not text:
        return None
    return [ReleaseProblem(field="tag", code="TagMoved", message=in_api_words(text))]


def served_domain(container: Container) -> str:
    """Return the public host name that serves, or would; empty if the operator does not say yet.

    A requested one does not serve while the update to it runs or has failed, nor when its Domain
    was lost.
    """
    status = container.status
    observed = status.observed_generation >= container.metadata.generation
    return status.domain if status.active_enclave or observed else ""


def is_staging(container: Container, deployment: Deployment | None, *, updating: bool) -> bool:
    """Return whether an update waits for accept.

    Parameters
    ----------
    deployment
        The Deployment of its repository, whose default counts until the operator has kept it; None
        = not seen yet.
    updating
        Whether an update is shown, which a relaunch may have made otherwise.
    """
    spec, status = container.spec, container.status
    said = spec.relaunch_staging if updating else None
    said = spec.staging if said is None else said
    if said is not None:
        return said
    default = deployment is not None and deployment.spec.default_staging
    default = default if status.staging is None else status.staging
    # More than one GPU cannot be staged, and a default does not refuse (spec 22.4).
    return default and (status.resources is None or status.resources.gpus <= 1)


def preview_of(status: ContainerStatus) -> str | None:
    """Return the host name at which a staged update can be tried; None if there is none."""
    return (status.update.preview or None) if status.update is not None else None


def asked_resources(config: ServiceConfig | None) -> str:
    """Return the value of `ASKED_ANNOTATION` for a file; empty if the file is not known."""
    if config is None:
        return ""
    return json.dumps({"cpus": config.cpus, "memoryMB": config.memory, "gpus": config.gpus})


def resources_at_create(container: Container) -> ContainerResources:
    """Return the resources that the create read in the file; zeros where nothing is known."""
    try:
        text = container.metadata.annotations[ASKED_ANNOTATION]
        return ContainerResources.model_validate_json(text)
    except (KeyError, ValidationError):
        return ContainerResources(gpus=container.spec.gpus or 0)


def update_record(container: Container) -> ContainerUpdateResponse:
    """Return the update of a Container (spec 4.5)."""
    update = shown_state(container).update
    if update is None:
        return ContainerUpdateResponse(has_update=False)
    return ContainerUpdateResponse(
        has_update=True,
        update_deployment_id=update.id or requested_id(container, update.tag),
        update_tag=update.tag,
        update_status=update.status,
    )


def requested_id(container: Container, tag: str) -> str:
    """Return the identifier of an update whose candidate is not made yet: that of the request."""
    uid, relaunch = container.metadata.uid, container.spec.relaunch
    return str(uuid5(NAMESPACE_OID, f"{uid} {tag} {relaunch or ''}"))


def host_record(host: Host, *, default: bool) -> HostResponse:
    """Return the record of a Host (spec 4.4).

    Parameters
    ----------
    default
        Whether Containers that name none run on it.
    """
    gpu = host.spec.gpu
    return HostResponse(
        name=host.metadata.name,
        is_default=default,
        available_gpu_values=sorted(gpu.counts) if gpu else [],
        tee=host.spec.tee,
        network_isolation=host.spec.network_isolation,
        ready=not_ready_condition(host) is None,
        gpu_type=(gpu.type or None) if gpu else None,
        cpu_type=host.spec.cpu_type or None,
    )
