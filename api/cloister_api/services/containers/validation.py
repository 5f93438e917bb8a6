"""Checks that change nothing: validate a release, validate a name, list hosts."""

import re
from typing import Any

from cloister_api.auth.authenticator import Principal
from cloister_api.cache import CachedContainer, ClusterCache
from cloister_api.records.container import host_record
from cloister_api.schemas.container_responses import (
    HostResponse,
    NameVerdictResponse,
    ReleaseProblem,
    ReleaseVerdictResponse,
)
from cloister_api.schemas.containers import ValidateNameRequest, ValidateReleaseRequest
from cloister_api.services.claims import HostnameClaims
from cloister_api.services.containers.reader import ContainerReader
from cloister_api.services.containers.refusals import to_wire
from cloister_api.services.containers.resolution import FIELDS, ReleaseResolver, refusal_of_source
from cloister_clients.sources import SourceError
from cloister_crds.kinds import Container
from cloister_crds.kinds.container import NAME_PATTERN, ContainerSpec
from cloister_crds.lifecycle.admission.host_selection import pick_host
from cloister_crds.lifecycle.admission.limits import counted
from cloister_crds.lifecycle.admission.validation import RequestFacts, validate_for_organization
from cloister_crds.lifecycle.names.domains import find_domain
from cloister_crds.names import generated_hostname
from cloister_crds.problems import Problem, Severity

__all__ = ["Validation"]

NAME = re.compile(NAME_PATTERN)
ANY_SPEC = ContainerSpec(repo="any/any", tag="any")
"""A spec without options, whose repo and tag are replaced."""
NAME_LIMIT = 64


class Validation:
    """Checks of what could be created."""

    def __init__(
        self,
        *,
        cache: ClusterCache,
        reader: ContainerReader,
        resolver: ReleaseResolver,
        claims: HostnameClaims,
        containers_domain: str,
    ) -> None:
        self._cache = cache
        self._reader = reader
        self._resolver = resolver
        self._claims = claims
        self._domain = containers_domain

    def hosts(self) -> list[HostResponse]:
        """Return the Hosts by name."""
        hosts = self._cache.host_list()
        default = pick_host(None, hosts)
        return [host_record(host, default=host is default) for host in hosts]

    async def release(
        self, principal: Principal, body: ValidateReleaseRequest
    ) -> ReleaseVerdictResponse:
        """Validate a release as a create would, and return its parsed file.

        Parameters
        ----------
        principal
            Who sends the request.
        body
            The request body; a container's identifier disables the limit.

        Raises
        ------
        ApiError
            404 when the organization has no such container, 503 when the source does not respond.
        KubeError
            When the cluster does not respond.
        """
        given = [each for each in (body.container_id, body.replace_container_id) if each]
        known = [await self._reader.get(principal, each, None) for each in given]
        held = known[0] if known else None
        facts = self._facts(principal, body, held)
        try:
            found = await self._resolver.find(body.repo, body.tag, principal.organization)
        except SourceError as error:
            if error.transient:
                raise refusal_of_source(error) from error
            field = FIELDS.get(error.reason, "tag")
            missing = Problem(field, error.reason, error.message)
            problems = (*validate_for_organization(facts), missing)
            return verdict(problems, None)
        facts = found.added_to(facts)
        config = found.release.config
        shown = config.model_dump(mode="json") if config is not None else None
        return verdict(validate_for_organization(facts), shown)

    def _facts(
        self, principal: Principal, body: ValidateReleaseRequest, held: CachedContainer | None
    ) -> RequestFacts:
        # The tag is validated by its lookup; an invalid tag is a problem like others.
        spec = ANY_SPEC.model_copy(update={"repo": body.repo, "tag": body.tag})
        name = body.instance_name or "new"
        if held is not None and body.container_id is not None:
            spec = held.container.spec.model_copy(
                update={"repo": body.repo, "tag": body.tag, "commit": None}
            )
            name = held.container.display_name
        others = self._cache.containers_of(principal.namespace)
        running = self._cache.running_of(principal.namespace)
        counting = counted((one.container for one in others), running)
        return RequestFacts(
            name=name,
            spec=spec,
            organization=principal.organization,
            hosts=self._cache.host_list(),
            secrets=self._cache.secrets_of(principal.namespace),
            ssh_keys=self._cache.ssh_keys_of(principal.namespace),
            domains=self._cache.domains_of(principal.namespace),
            rank=None if held is not None else len(counting),
        )

    async def name(self, principal: Principal, body: ValidateNameRequest) -> NameVerdictResponse:
        """Return whether a name is available.

        Raises
        ------
        ApiError
            404 when the organization has no such container.
        KubeError
            When the cluster does not respond.
        """
        keeper = None
        if body.container_id is not None:
            keeper = (await self._reader.get(principal, body.container_id, None)).container
        reason = await self._reason_against(principal, body, keeper.metadata.uid if keeper else "")
        if reason is None and body.custom_domain:
            reason = await self._reason_against_domain(principal, body.custom_domain, keeper)
        return NameVerdictResponse(available=reason is None, name=body.name, reason=reason)

    async def _reason_against(
        self, principal: Principal, body: ValidateNameRequest, keeper: str
    ) -> str | None:
        if len(body.name) > NAME_LIMIT or not NAME.fullmatch(body.name):
            return (
                f"a name has 1 to {NAME_LIMIT} lowercase letters, digits and hyphens, with no "
                "hyphen at its ends"
            )
        for held in self._cache.containers_of(principal.namespace):
            one = held.container
            if one.display_name == body.name and one.spec.debug is body.debug:
                return None if one.metadata.uid == keeper else "another container has this name"
        hostname = generated_hostname(
            body.name,
            organization=principal.slug,
            debug=body.debug,
            containers_domain=self._domain,
        )
        holder = await self._claims.holder(hostname)
        if holder is not None and holder.namespace != principal.namespace:
            return "the host name is taken"
        if holder is not None:
            return "an earlier container of this name is still being torn down"
        return None

    async def _reason_against_domain(
        self, principal: Principal, host: str, keeper: Container | None
    ) -> str | None:
        """Return why a container cannot have a custom domain; None = it can."""
        domain = find_domain(host, self._cache.domains_of(principal.namespace))
        if domain is None:
            return f"the organization has no domain {host}; add it and create its DNS records"
        if not domain.status.verified:
            return f"the domain {host} is not verified"
        holder = await self._claims.holder(host)
        kept = keeper.metadata.name if keeper is not None else ""
        if holder is not None and (holder.namespace, holder.name) != (principal.namespace, kept):
            return f"another container has the domain {host}"
        return None


def verdict(problems: tuple[Problem, ...], config: dict[str, Any] | None) -> ReleaseVerdictResponse:
    """Return a verdict; warnings are listed apart, they do not make a release invalid."""
    listed: dict[Severity, list[ReleaseProblem]] = {Severity.ERROR: [], Severity.WARNING: []}
    for problem in map(to_wire, problems):
        listed[problem.severity].append(
            ReleaseProblem(
                field=problem.field,
                code=problem.code,
                message=problem.message,
                line=problem.line,
                column=problem.column,
            )
        )
    errors, warnings = listed[Severity.ERROR], listed[Severity.WARNING]
    return ReleaseVerdictResponse(valid=not errors, errors=errors, warnings=warnings, config=config)
