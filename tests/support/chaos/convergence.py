"""Checks that a cluster has converged to its Containers' specs and holds no orphans."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cloister_clients.kube.kinds import POD, SERVICE, of
from cloister_crds.kinds import Container, Deployment, Enclave, HostnameClaim, Organization
from cloister_crds.kinds.container import ContainerPhase, DesiredState
from cloister_crds.lifecycle.names.hostnames import (
    container_named_in,
    is_held_by,
    wanted_hostnames,
)
from cloister_crds.lifecycle.replacement import has_taken_over, successor
from cloister_crds.lifecycle.request import record
from cloister_crds.names import preview_service_name, service_name, shells_service_name
from tests.support.chaos.plan import is_broken
from tests.support.cluster.direct_client import DirectClient
from tests.support.programs.operator import CONTAINERS_DOMAIN, Installation
from tests.support.stand_ins.gateway_controller import ROUTE

__all__ = ["OrganizationSnapshot", "orphans", "unfulfilled"]


@dataclass(frozen=True)
class OrganizationSnapshot:
    """The objects of an organization at one time."""

    namespace: str
    """Its namespace."""
    system: str
    """Namespace of the operator, where the routes are."""
    organization: Organization
    """The Organization."""
    containers: list[Container]
    """Its Containers."""
    enclaves: list[Enclave]
    """Its Enclaves."""
    claims: dict[str, HostnameClaim]
    """All claims by host name."""
    newest: Mapping[str, str]
    """Repository -> its newest release."""

    @classmethod
    def read(
        cls, direct: DirectClient, installation: Installation, *, newest: Mapping[str, str]
    ) -> "OrganizationSnapshot":
        """Read the current objects."""
        namespace = installation.namespace
        claims = [HostnameClaim.read(each) for each in direct.list_objects(of(HostnameClaim))]
        organization = direct.get(of(Organization), installation.slug)
        assert organization is not None
        return cls(
            namespace=namespace,
            system=installation.system,
            organization=Organization.read(organization),
            containers=[
                Container.read(each) for each in direct.list_objects(of(Container), namespace)
            ],
            enclaves=[Enclave.read(each) for each in direct.list_objects(of(Enclave), namespace)],
            claims={each.metadata.name: each for each in claims},
            newest=newest,
        )

    def hostnames(self, container: Container) -> tuple[str, ...]:
        """Return the host names that a Container asks for."""
        return wanted_hostnames(container, self.organization, CONTAINERS_DOMAIN)

    def holds(self, container: Container, hostname: str) -> bool:
        """Return whether a Container has a host name, by a claim or by its own name."""
        claim = self.claims.get(hostname)
        if claim is not None:
            return is_held_by(claim, container)
        named = container_named_in(
            hostname,
            organization=self.organization.metadata.name,
            containers_domain=CONTAINERS_DOMAIN,
        )
        return named is not None and named.is_it(container)


def unfulfilled(container: Container, end: OrganizationSnapshot) -> str:
    """Return how a Container differs from its spec; empty = it has converged.

    Parameters
    ----------
    end
        The observed objects. For a release that cannot start, a missing secret, and a host name
        that another Container holds, the status must report.
    """
    spec, status = container.spec, container.status
    found = {each.type: each for each in status.conditions}
    if status.observed_generation != container.metadata.generation or "Ready" not in found:
        return "its spec was not reconciled"
    ready = found["Ready"]
    heir = successor(container, end.containers)
    replaced = heir is not None and has_taken_over(heir)
    if spec.state is DesiredState.STOPPED or replaced:
        return _still_there(container, end, "Replaced" if replaced else "Stopped")
    stalled = found.get("Stalled")
    failed = ready.status == "False" and stalled is not None and stalled.status == "True"
    if "TOKEN" not in spec.secrets or _is_taken(container, end):
        return "" if failed else f"cannot run: {ready.reason} {ready.message}"
    if is_broken(_tag(container, end)):
        return "" if failed else f"a release that cannot start: {ready.reason} {ready.message}"
    if ready.status != "True":
        return f"not ready: {ready.reason} {ready.message}"
    return _mismatch(container, end)


def _still_there(container: Container, end: OrganizationSnapshot, reason: str) -> str:
    """Return what exists of a Container that should have nothing."""
    mine = [each for each in end.enclaves if _is_of(each, container)]
    ready = next(each for each in container.status.conditions if each.type == "Ready")
    phase = container.status.phase
    if phase is ContainerPhase.STOPPED and ready.reason == reason and not mine:
        return ""
    return f"{phase} {ready.reason} with {len(mine)} Enclaves instead of stopped, {reason}"


def _is_taken(container: Container, end: OrganizationSnapshot) -> bool:
    """Return whether another Container that requests or serves a host name holds it."""
    return any(
        end.holds(other, host) and (host in end.hostnames(other) or _serves_at(other, host, end))
        for host in end.hostnames(container)
        for other in end.containers
        if other is not container
    )


def _serves_at(container: Container, host: str, end: OrganizationSnapshot) -> bool:
    return any(_is_of(each, container) and host in each.spec.hostnames for each in end.enclaves)


def _tag(container: Container, end: OrganizationSnapshot) -> str:
    """Return the tag that a Container should serve."""
    spec = container.spec
    return end.newest[spec.repo] if spec.auto_update else spec.tag


def _mismatch(container: Container, end: OrganizationSnapshot) -> str:
    """Return how a ready Container does not serve its spec; empty = it does."""
    status = container.status
    tag = _tag(container, end)
    wanted = status.update.enclave if status.update is not None else status.active_enclave
    one = next((each for each in end.enclaves if each.metadata.name == wanted), None)
    followed = tag if tag != container.spec.tag else None
    if one is None or one.spec.request != record(container.spec, followed_tag=followed):
        return f"ready with {wanted}, which was made from another request"
    hosts = end.hostnames(container)
    missing = [each for each in hosts if not end.holds(container, each)]
    if missing or (status.update is None and status.domain != hosts[0]):
        return f"ready at {status.domain} instead of {hosts}; not held: {missing}"
    return ""


def orphans(direct: DirectClient, end: OrganizationSnapshot) -> list[str]:
    """Return the objects that belong to no Container's spec."""
    namespace, containers = end.namespace, end.containers
    known = {name for each in containers for name in _enclaves_of(each, end)}
    left = [
        f"Enclave {each.metadata.name}" for each in end.enclaves if each.metadata.name not in known
    ]
    left += [
        f"Pod {name}" for name in _names(direct.list_objects(POD, namespace)) if name not in known
    ]
    services = {name for each in containers for name in _services_of(each)}
    found = _names(direct.list_objects(SERVICE, namespace))
    left += [f"Service {name}" for name in found if name not in services]
    repos = {each.spec.repo for each in containers}
    for body in direct.list_objects(of(Deployment), namespace):
        if body["spec"]["repo"] not in repos:
            left.append(f"Deployment {body['metadata']['name']}")
    return left + _orphaned_hostnames(direct, end)


def _orphaned_hostnames(direct: DirectClient, end: OrganizationSnapshot) -> list[str]:
    """Return the claims and routes that no Container requests or serves."""
    served = {each for enclave in end.enclaves for each in enclave.spec.hostnames}
    holders = {(end.namespace, each.metadata.name) for each in end.containers}
    requested = {host for each in end.containers for host in end.hostnames(each)}
    left = [
        f"HostnameClaim {name}"
        for name, claim in end.claims.items()
        if claim.spec.holder.namespace == end.namespace
        and (
            (end.namespace, claim.spec.holder.name) not in holders or name not in requested | served
        )
    ]
    previews = {each.spec.preview for each in end.enclaves}
    routes = _names(direct.list_objects(ROUTE, end.system))
    return left + [f"TLSRoute {name}" for name in routes if name not in served | previews]


def _is_of(enclave: Enclave, container: Container) -> bool:
    return enclave.spec.container.name == container.metadata.name


def _names(bodies: list[dict[str, Any]]) -> list[str]:
    return [each["metadata"]["name"] for each in bodies]


def _enclaves_of(container: Container, end: OrganizationSnapshot) -> set[str]:
    """Return the Enclaves that a Container may have: of failed ones only the last."""
    status = container.status
    update = status.update.enclave if status.update is not None else ""
    mine = [each for each in end.enclaves if _is_of(each, container)]
    last = max(mine, key=_age, default=None) if status.phase is ContainerPhase.FAILED else None
    return {status.active_enclave, status.candidate, update, last.metadata.name if last else ""}


def _age(enclave: Enclave) -> tuple[str, int]:
    return str(enclave.metadata.creation_timestamp), enclave.spec.attempt


def _services_of(container: Container) -> set[str]:
    """Return the Services that a Container may have now."""
    name, status = container.metadata.name, container.status
    staged = {preview_service_name(name)} if status.update is not None else set()
    shells = {shells_service_name(name)} if container.spec.debug else set()
    return {service_name(name), *staged, *shells}
