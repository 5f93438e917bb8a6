"""From a Container to its record in the API (spec, "Container"; client contract, section 1).

Pure: the answer follows from the objects alone. "Absent" means that the key is missing.
"""

import json
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from cloister_api.cache import CachedContainer
from cloister_clients.clock import utc_text
from cloister_crds.config import ServiceConfig
from cloister_crds.kinds import Container, Deployment, Host, Organization
from cloister_crds.kinds.container import (
    ContainerPhase,
    ContainerResources,
    ContainerStatus,
    DesiredState,
    UpdatePhase,
    UpdateType,
)
from cloister_crds.kinds.meta import GROUP
from cloister_crds.names import generated_hostname

__all__ = [
    "ASKED_ANNOTATION",
    "Standing",
    "Update",
    "asked_resources",
    "host_record",
    "record",
    "standing",
    "update_record",
]

ASKED_ANNOTATION = f"{GROUP}/asked-resources"
"""Resources of the file as the create read it, for the record until the operator tells them."""


@dataclass(frozen=True, slots=True)
class Update:
    """An update as the API shows it."""

    id: str
    """Identifier of the candidate; empty while there is none."""
    tag: str
    """Tag that it brings."""
    status: UpdatePhase
    """How far it is."""
    type: UpdateType
    """How it takes over."""
    message: str = ""
    """Why it failed; empty otherwise."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a Container stands, in the words of the API."""

    phase: ContainerPhase
    """The status word."""
    update: Update | None
    """The update in progress or failed; None = none."""

    @property
    def updating(self) -> bool:
        """Whether an update is in progress (a failed one is not)."""
        return self.update is not None and self.update.status is not UpdatePhase.FAILED


def standing(container: Container) -> Standing:
    """Answer where a Container stands.

    The operator's status is about the generation that it has seen. Between a write of spec and the
    operator's next look the words follow from both, so that nobody takes the state before a
    relaunch for the state after it.
    """
    status = container.status
    phase = status.phase or ContainerPhase.DEPLOYING
    seen = status.observed_generation >= container.metadata.generation
    promoted = status.update is not None and container.spec.promote == status.update.revision
    if seen or promoted:
        return Standing(phase, told_update(status))
    resting = phase in {ContainerPhase.STOPPED, ContainerPhase.STOPPING}
    if container.spec.state is DesiredState.STOPPED:
        return Standing(phase if resting else ContainerPhase.STOPPING, None)
    if resting:
        return Standing(ContainerPhase.DEPLOYING, None)
    if phase not in {ContainerPhase.READY, ContainerPhase.FAILED}:
        return Standing(phase, told_update(status))
    # With more than one GPU what serves ends first (client contract, section 1).
    several = status.resources is not None and status.resources.gpus > 1
    serves = phase is ContainerPhase.READY and not several
    asked = Update(
        id="",
        tag=container.spec.tag,
        status=UpdatePhase.PENDING if serves else UpdatePhase.DEPLOYING,
        type=UpdateType.BLUE_GREEN if serves else UpdateType.REPLACE,
    )
    return Standing(phase, asked)


def told_update(status: ContainerStatus) -> Update | None:
    """Answer the update that the operator tells of; None = none."""
    told = status.update
    if told is None:
        return None
    return Update(told.uid, told.tag, told.status, told.type, told.message)


def record(
    held: CachedContainer,
    organization: Organization,
    deployment: Deployment | None,
    *,
    containers_domain: str,
) -> dict[str, Any]:
    """Answer the record of a Container.

    Parameters
    ----------
    held
        The Container.
    organization
        The Organization that owns its namespace.
    deployment
        The Deployment of its repository; None = not seen yet.
    containers_domain
        Domain under which generated host names stand.
    """
    container = held.container
    spec, status = container.spec, container.status
    where = standing(container)
    internal = status.internal_domain or generated_hostname(
        container.display_name,
        organization=organization.metadata.name,
        debug=spec.debug,
        containers_domain=containers_domain,
    )
    resources = status.resources or told_at_create(container)
    defaults = deployment.spec.default_staging if deployment is not None else False
    created = container.metadata.creation_timestamp
    answer: dict[str, Any] = {
        "id": held.id,
        "deployment_id": deployment.metadata.identifier if deployment is not None else "",
        "name": container.display_name,
        "repo": spec.repo,
        "status": where.phase.value,
        "domain": spec.custom_domain or internal,
        "internal_domain": internal,
        "current_tag": status.current_tag or spec.tag,
        "cpus": resources.cpus,
        "gpus": resources.gpus,
        "memory_mb": resources.memory_mb,
        "debug": spec.debug,
        "variables": {variable.name: variable.value for variable in spec.variables},
        "secrets": list(spec.secrets),
        "ssh_keys": list(spec.ssh_keys),
        "staging": spec.staging if spec.staging is not None else defaults,
        "disable_cc_mode": spec.disable_confidential,
        "github_app_connected": spec.github_connected,
        "auto_update": spec.auto_update,
        "created_at": utc_text(created) if created else None,
        "updated_at": held.updated_at,
    }
    answer.update(when_available(status, where))
    return answer


def asked_resources(config: ServiceConfig | None) -> str:
    """Answer the value of `ASKED_ANNOTATION` for a file."""
    if config is None:
        return ""
    return json.dumps({"cpus": config.cpus, "memoryMB": config.memory, "gpus": config.gpus})


def told_at_create(container: Container) -> ContainerResources:
    """Answer the resources that the create read in the file; zeros where nothing is known."""
    try:
        text = container.metadata.annotations[ASKED_ANNOTATION]
        return ContainerResources.model_validate_json(text)
    except (KeyError, ValidationError):
        return ContainerResources(gpus=container.spec.gpus or 0)


def when_available(status: ContainerStatus, where: Standing) -> dict[str, Any]:
    """Answer the fields that are absent where there is nothing to say."""
    fields: dict[str, Any] = {}
    if status.ssh_port is not None:
        fields["ssh_port"] = status.ssh_port
    if status.host is not None:
        given = {
            "host_name": status.host.name,
            "host_gpu_type": status.host.gpu_type,
            "host_cpu_type": status.host.cpu_type,
        }
        fields.update({key: value for key, value in given.items() if value})
    message = status.message
    if where.update is not None:
        fields["update_tag"] = where.update.tag
        fields["update_status"] = where.update.status.value
        fields["update_type"] = where.update.type.value
        if status.update is not None and status.update.preview:
            fields["preview_domain"] = status.update.preview
        message = message or where.update.message
    if message:
        fields["error_message"] = message
    return fields


def update_record(container: Container) -> dict[str, Any]:
    """Answer the update of a Container (spec, "Update status")."""
    update = standing(container).update
    if update is None:
        return {"has_update": False}
    return {
        "has_update": True,
        "update_deployment_id": update.id,
        "update_tag": update.tag,
        "update_status": update.status.value,
    }


def host_record(host: Host, *, default: bool) -> dict[str, Any]:
    """Answer the record of a Host (spec, "Host").

    Parameters
    ----------
    host
        The Host.
    default
        Whether Containers that name none run on it.
    """
    return {
        "name": host.metadata.name,
        "is_default": default,
        "available_gpu_values": sorted(host.spec.gpu.counts) if host.spec.gpu else [],
    }
