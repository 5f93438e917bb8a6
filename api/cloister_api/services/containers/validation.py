"""Checks that change nothing.

Validate a release with an excerpt of its file, validate a name, list hosts.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from cloister_api.auth.authenticator import Principal
from cloister_api.cache import CachedContainer
from cloister_api.records.container import host_record, timestamp
from cloister_api.schemas.container_responses import (
    DeadlinesResponse,
    FileResponse,
    HostResponse,
    NamedSecretResponse,
    NameVerdictResponse,
    ReleaseProblem,
    ReleaseResponse,
    ReleaseVerdictResponse,
)
from cloister_api.schemas.containers import ValidateNameRequest, ValidateReleaseRequest
from cloister_api.services.containers.creator import HostnameClaims, holder_of
from cloister_api.services.containers.reader import ContainerReader
from cloister_api.services.containers.refusals import facts_of_change, facts_of_create, to_wire
from cloister_api.services.containers.replacements import Replacements
from cloister_api.services.containers.resolution import FIELDS, ReleaseResolver, refusal_of_source
from cloister_api.services.containers.specs import SpecRefusedError, changed_spec
from cloister_api.services.infrastructure import Infrastructure
from cloister_clients.sources import ListedRelease, SourceError
from cloister_crds.config import ServiceConfig
from cloister_crds.config.effective import boot_allowance
from cloister_crds.kinds.container import NAME_PATTERN, ContainerSpec
from cloister_crds.lifecycle.admission.host_selection import pick_host
from cloister_crds.lifecycle.admission.secrets import secret_owners
from cloister_crds.lifecycle.admission.validation import RequestFacts, validate_for_organization
from cloister_crds.lifecycle.names.domains import find_domain
from cloister_crds.lifecycle.state.observed import ReleaseFacts
from cloister_crds.names import generated_hostname, object_name
from cloister_crds.problems import Problem, Severity

AROUND = 3
"""Lines that are shown before a problem's line, and after it."""
LONGEST_LINE = 400
"""Characters of a line that are shown."""
_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
"""Line breaks as the parser counts them (YAML 1.1, 5.4)."""


def excerpt(file: bytes, problems: Iterable[Problem]) -> dict[str, str]:
    """Return the lines around problems by their numbers, in order.

    Parameters
    ----------
    file
        The file; bytes that are not UTF-8 are replaced.
    problems
        Problems; those without a place in the file have no lines.
    """
    lines = _BREAK.split(file.decode("utf-8", "replace"))
    wanted = {
        number
        for problem in problems
        if problem.line is not None
        for number in range(problem.line - AROUND, problem.line + AROUND + 1)
    }
    return {
        str(number): lines[number - 1][:LONGEST_LINE]
        for number in sorted(wanted)
        if 1 <= number <= len(lines)
    }


NAME = re.compile(NAME_PATTERN)
ANY_SPEC = ContainerSpec(repo="any/any", tag="any")
"""A spec without options, whose repo and tag are replaced."""
ANY_NAME = "new"
"""Name of a container that has none yet."""
NAME_LIMIT = 64


class Validation:
    """Checks of what could be created."""

    def __init__(
        self,
        base: Infrastructure,
        reader: ContainerReader,
        resolver: ReleaseResolver,
        claims: HostnameClaims,
        replacements: Replacements,
    ) -> None:
        self._cache = base.cache
        self._reader = reader
        self._resolver = resolver
        self._claims = claims
        self._replacements = replacements
        self._installation = base.installation
        self._domain = base.installation.containers_domain

    def hosts(self) -> list[HostResponse]:
        """Return the Hosts by name."""
        hosts = self._cache.host_list()
        default = pick_host(None, hosts)
        return [host_record(host, default=host is default) for host in hosts]

    async def releases(self, principal: Principal, repo: str, limit: int) -> list[ReleaseResponse]:
        """Return the newest releases of a repository, newest first.

        Raises
        ------
        ApiError
            400 when there is no such repository, 429 and 503 as in `Lookups.releases`.
        """
        try:
            found = await self._resolver.listed(repo, limit, principal.organization)
        except SourceError as error:
            raise refusal_of_source(error) from error
        return [listed_record(each) for each in found]

    async def release(
        self, principal: Principal, body: ValidateReleaseRequest
    ) -> ReleaseVerdictResponse:
        """Validate a release as a create would, and return its parsed file.

        Parameters
        ----------
        body
            The request body; a container's identifier disables the limit. What it does not say of
            a relaunch is as it is, of a create as the create's default.

        Raises
        ------
        ApiError
            404 when the organization has no such container, 503 when the source or a registry does
            not respond and nothing else is wrong.
        KubeError
            When the cluster does not respond.
        """
        held = await self._named(principal, body.container_id)
        replaced = await self._named(principal, body.replace_container_id)
        present = held.container.spec if held is not None else ANY_SPEC
        moved = present.model_copy(update={"repo": body.repo, "commit": None})
        try:
            spec = changed_spec(moved, body)
        except SpecRefusedError as refused:
            return verdict(refused.problems)
        if held is not None:
            facts = facts_of_change(self._cache, principal, held.container, spec)
        else:
            facts = facts_of_create(self._cache, principal, ANY_NAME, spec, replaced)
        facts = replace(
            facts,
            name=body.instance_name or facts.name,
            rank=None if replaced is not None else facts.rank,
            binds_are_final=body.secrets is not None,
        )
        taken = await self._taken(principal, body, facts, held or replaced)
        if replaced is not None:
            taken += self._not_replaceable(principal, replaced)
        try:
            found = await self._resolver.find(body.repo, body.tag, principal.organization)
        except SourceError as error:
            if error.transient:
                raise refusal_of_source(error) from error
            field = FIELDS.get(error.reason, "tag")
            missing = Problem(field, error.reason, error.message)
            return verdict((*taken, *validate_for_organization(facts), missing))
        config = found.release.config
        problems = validate_for_organization(found.added_to(facts))
        unanswered = found.unanswered((*taken, *problems))
        if unanswered is not None:
            raise unanswered
        shown = config.model_dump(mode="json") if config is not None else None
        judged = verdict((*taken, *problems), shown, self._deadlines(config))
        named = body.instance_name is not None or held is not None
        details = {
            **release_details(found.release, facts, problems),
            "hostname": self._public_name(principal, facts) if named else None,
        }
        return judged.model_copy(update=details)

    def _public_name(self, principal: Principal, facts: RequestFacts) -> str | None:
        """Return the public host name of a request; None if its name is invalid."""
        if facts.spec.custom_domain:
            return facts.spec.custom_domain
        if not is_name(facts.name):
            return None
        return self._hostname(principal, facts.name, debug=facts.spec.debug)

    def _deadlines(self, config: ServiceConfig | None) -> DeadlinesResponse | None:
        """Return how long an enclave of a file may take to start; None if there is no file."""
        if config is None:
            return None
        return DeadlinesResponse(
            pull_seconds=self._installation.pull_deadline_seconds,
            boot_seconds=self._installation.boot_seconds(boot_allowance(config)),
        )

    async def _named(self, principal: Principal, given: str | None) -> CachedContainer | None:
        """Return the container that a body names; None if it names none."""
        return None if given is None else await self._reader.get(principal, given, None)

    async def _taken(
        self,
        principal: Principal,
        body: ValidateReleaseRequest,
        facts: RequestFacts,
        keeper: CachedContainer | None,
    ) -> tuple[Problem, ...]:
        """Return what others have of the names that a request needs; a create would be 409."""
        problems = []
        named = body.instance_name or body.container_id
        if named and is_name(facts.name):
            debug = facts.spec.debug
            reason = await self._reason_against(principal, facts.name, keeper, debug=debug)
            if reason is not None:
                problems.append(Problem("spec.name", "NameTaken", reason))
        domain = facts.spec.custom_domain
        if domain is not None and (reason := await self._reason_of_holder(domain, keeper)):
            problems.append(Problem("spec.customDomain", "HostnameTaken", reason))
        return tuple(problems)

    def _not_replaceable(
        self, principal: Principal, replaced: CachedContainer
    ) -> tuple[Problem, ...]:
        """Return the problem that a container cannot be replaced."""
        others = self._cache.containers_of(principal.namespace)
        obstacle = self._replacements.obstacle(replaced, others)
        if obstacle is None:
            return ()
        return (Problem("replace_container_id", "NotReplaceable", obstacle),)

    async def name(self, principal: Principal, body: ValidateNameRequest) -> NameVerdictResponse:
        """Return whether a name is available.

        Raises
        ------
        ApiError
            404 when the organization has no such container.
        KubeError
            When the cluster does not respond.
        """
        keeper = await self._named(principal, body.container_id)
        if not is_name(body.name):
            return NameVerdictResponse(
                available=False,
                name=body.name,
                reason=f"a name has 1 to {NAME_LIMIT} lowercase letters, digits and hyphens, with "
                "no hyphen at its ends",
            )
        reason = await self._reason_against(principal, body.name, keeper, debug=body.debug)
        if reason is None and body.custom_domain:
            reason = await self._reason_against_domain(principal, body.custom_domain, keeper)
        hostname = self._hostname(principal, body.name, debug=body.debug)
        return NameVerdictResponse(
            available=reason is None, name=body.name, internal_domain=hostname, reason=reason
        )

    def _hostname(self, principal: Principal, name: str, *, debug: bool) -> str:
        """Return the generated host name of a new container."""
        return generated_hostname(
            name, organization=principal.slug, debug=debug, containers_domain=self._domain
        )

    async def _reason_against(
        self, principal: Principal, name: str, keeper: CachedContainer | None, *, debug: bool
    ) -> str | None:
        """Return why a container cannot have a name; None if it can, or has it already."""
        own = keeper.container.metadata.uid if keeper is not None else ""
        others = [held.container for held in self._cache.containers_of(principal.namespace)]
        for one in others:
            if one.display_name == name and one.spec.debug is debug:
                return None if one.metadata.uid == own else "another container has this name"
        hostname = self._hostname(principal, name, debug=debug)
        holder = await self._claims.holder(hostname)
        if holder == holder_of(keeper) and keeper is not None:
            return None
        if holder is not None and holder.namespace != principal.namespace:
            return "the host name is taken"
        left = self._cache.enclaves.in_namespace(principal.namespace).values()
        next_name = object_name(name, debug=debug, taken={one.metadata.name for one in others})
        if holder is not None or any(one.value.container == next_name for one in left):
            return "an earlier container of this name is still being torn down"
        return None

    async def _reason_against_domain(
        self, principal: Principal, host: str, keeper: CachedContainer | None
    ) -> str | None:
        """Return why a container cannot have a custom domain; None if it can."""
        domain = find_domain(host, self._cache.domains_of(principal.namespace))
        if domain is None:
            return f"the organization has no domain {host}; add it and create its DNS records"
        if not domain.status.verified:
            return f"the domain {host} is not verified"
        return await self._reason_of_holder(host, keeper)

    async def _reason_of_holder(self, host: str, keeper: CachedContainer | None) -> str | None:
        """Return that another container has a custom domain; None if none has it."""
        holder = await self._claims.holder(host)
        if holder is not None and holder != holder_of(keeper):
            return f"another container has the domain {host}"
        return None


def is_name(text: str) -> bool:
    """Return whether a text can be the name of a container."""
    return len(text) <= NAME_LIMIT and NAME.fullmatch(text) is not None


def release_details(
    release: ReleaseFacts, facts: RequestFacts, problems: Iterable[Problem]
) -> dict[str, Any]:
    """Return the fields of a verdict that say what was judged."""
    config = release.config
    named = (
        secret_owners(
            config, repo=release.repo, secrets=facts.secrets, repositories=facts.repositories
        )
        if config is not None
        else None
    )
    return {
        "commit": release.commit,
        "published_at": timestamp(release.published),
        "file": FileResponse(
            name=release.file_name, digest=release.digest, lines=excerpt(release.raw, problems)
        ),
        "secrets": None
        if named is None
        else [NamedSecretResponse(name=name, found=owner) for name, owner in named.items()],
    }


def listed_record(release: ListedRelease) -> ReleaseResponse:
    """Return the record of a listed release."""
    return ReleaseResponse(
        tag=release.tag,
        commit=release.commit,
        published_at=timestamp(release.published),
        prerelease=release.prerelease,
    )


def verdict(
    problems: tuple[Problem, ...],
    config: dict[str, Any] | None = None,
    deadlines: DeadlinesResponse | None = None,
) -> ReleaseVerdictResponse:
    """Return a verdict; warnings are listed apart, they do not make a release invalid."""
    listed: dict[Severity, list[ReleaseProblem]] = {Severity.ERROR: [], Severity.WARNING: []}
    named = (
        replace(each, field="instance_name") if each.field == "spec.name" else each
        for each in problems
    )
    for problem in map(to_wire, named):
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
    return ReleaseVerdictResponse(
        valid=not errors,
        errors=errors,
        warnings=warnings,
        config=config,
        deadlines=deadlines,
    )
