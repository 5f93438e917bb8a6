"""Lookups for requests outside of the cluster: the release and the images of a Container."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeVar

from cachetools import TTLCache

from cloister_api.errors import ApiError, bad_request, problems_of_file, unavailable
from cloister_api.services.containers.refusals import denial, refused_change, to_wire
from cloister_api.services.infrastructure import Infrastructure
from cloister_api.settings import LookupSettings
from cloister_clients.clock import Clock
from cloister_clients.lanes.lane import HostLeftAlone
from cloister_clients.lanes.outside import OutsideLanes, in_turn, registry_of
from cloister_clients.registry import Platform, RegistryClient, RegistryError
from cloister_clients.registry.client import (
    StoredCredentials,
    fitting_credentials,
    stored_credentials,
)
from cloister_clients.sources import (
    ListedRelease,
    PublishedRelease,
    SourceError,
    SourceProvider,
    TagMoved,
)
from cloister_crds.config import Rules, parse
from cloister_crds.installation import InstallationSettings
from cloister_crds.kinds import Organization
from cloister_crds.lifecycle.admission.limits import ImageSize
from cloister_crds.lifecycle.admission.secrets import pull_credentials
from cloister_crds.lifecycle.admission.validation import RequestFacts, file_problems, spec_problems
from cloister_crds.lifecycle.state.observed import Failed, ReleaseFacts, Tiers
from cloister_crds.lifecycle.state.reasons import is_transient
from cloister_crds.problems import Problem, Severity

T = TypeVar("T")

LookupDeadline = float
"""Time of the event loop until which a request may look things up, in seconds."""
LIST_SECONDS = 60.0
"""For how long the list of a repository's releases is kept."""
MAX_LISTS = 1024
"""How many of these lists are kept."""


class Lookups:
    """Looks releases up at the source of repositories, and images at registries."""

    def __init__(
        self,
        source: SourceProvider,
        registry: RegistryClient,
        *,
        lanes: OutsideLanes,
        platform: Platform,
        settings: LookupSettings,
        clock: Clock,
    ) -> None:
        self._source = source
        self._registry = registry
        self._lanes = lanes
        self._platform = platform
        self._settings = settings
        self._clock = clock
        self._requests: dict[str, int] = {}
        self._lists: TTLCache[tuple[str, int], tuple[ListedRelease, ...]] = TTLCache(
            MAX_LISTS, LIST_SECONDS, timer=lambda: clock().timestamp()
        )

    async def aclose(self) -> None:
        """Close connections."""
        await self._source.aclose()
        await self._registry.aclose()

    @contextmanager
    def request(self, organization: str) -> Iterator[LookupDeadline]:
        """Count a request of an organization while it looks things up, and give its deadline.

        Raises
        ------
        ApiError
            429 when the organization has too many of them.
        """
        running = self._requests.get(organization, 0)
        if running >= self._settings.requests_per_organization:
            raise crowded(running)
        self._requests[organization] = running + 1
        try:
            yield asyncio.get_running_loop().time() + self._settings.request_seconds
        finally:
            left = self._requests[organization] - 1
            if left:
                self._requests[organization] = left
            else:
                del self._requests[organization]

    async def release(
        self,
        repo: str,
        tag: str,
        organization: str,
        until: LookupDeadline,
        *,
        commit: str | None = None,
        kept: bool = False,
    ) -> PublishedRelease:
        """Read a release, of a commit as `SourceProvider.resolve` has it.

        Raises
        ------
        ApiError
            503 when its source is not queried at present, or not in time.
        SourceError
            When there is no such release, or the source does not respond.
        """
        return await self._of_source(
            lambda: self._source.resolve(repo, tag, commit=commit, kept=kept), organization, until
        )

    async def releases(self, repo: str, limit: int, organization: str) -> tuple[ListedRelease, ...]:
        """Return the newest releases of a repository, as they were in the last minute.

        Parameters
        ----------
        repo
            ``owner/name``.
        limit
            Releases at most.
        organization
            Slug of the organization that asks, in whose lane the lookup waits.

        Raises
        ------
        ApiError
            429 when the organization has too many concurrent lookups, 503 when the source is not
            queried at present or not in time.
        SourceError
            When there is no such repository, or the source does not respond.
        """
        known = self._lists.get((repo, limit))
        if known is not None:
            return known
        with self.request(organization) as until:
            found = await self._of_source(
                lambda: self._source.releases(repo, limit), organization, until
            )
        self._lists[repo, limit] = found
        return found

    async def _of_source(
        self, ask: Callable[[], Awaitable[T]], organization: str, until: LookupDeadline
    ) -> T:
        """Query the source of repositories when it is the organization's turn."""
        lanes = self._lanes
        try:
            async with asyncio.timeout_at(until):
                return await in_turn(lanes.sources, organization, lanes.source_host, ask)
        except HostLeftAlone as left:
            seconds = (left.until - self._clock()).total_seconds()
            raise unavailable(left_alone(left), retry_after=seconds) from left
        except TimeoutError as error:
            raise unavailable(self._too_long("the source of repositories")) from error

    async def image(
        self,
        image: str,
        organization: str,
        stored: tuple[StoredCredentials, ...],
        until: LookupDeadline,
    ) -> Failed | ImageSize:
        """Look an image up; return what is wrong with it, or how large it is."""
        registry = registry_of(image)

        async def resolve() -> ImageSize:
            chosen = fitting_credentials(image, stored)
            credentials = chosen.credentials if chosen is not None else None
            found = await self._registry.resolve(
                image, platform=self._platform, credentials=credentials
            )
            return ImageSize(found.runtime_size, found.size)

        try:
            async with asyncio.timeout_at(until):
                return await in_turn(self._lanes.registries, organization, registry, resolve)
        except RegistryError as error:
            return Failed(error.reason, error.message, error.transient, self._clock())
        except HostLeftAlone as left:
            return self._no_response(left_alone(left), left.until)
        except TimeoutError:
            return self._no_response(self._too_long(registry))

    def _no_response(self, message: str, retry_at: datetime | None = None) -> Failed:
        """Return why an image was not looked up."""
        return Failed("RegistryUnavailable", message, True, self._clock(), retry_at)

    def _too_long(self, host: str) -> str:
        """Return a sentence: the request had no time left."""
        return (
            f"{host} did not respond within the {self._settings.request_seconds:g} seconds that "
            "all lookups of a request may take; try again"
        )


def left_alone(left: HostLeftAlone) -> str:
    """Return a sentence: the host is not queried for a while."""
    return (
        f"{left.host} did not respond in time lately and is not queried until "
        f"{left.until:%H:%M:%S} UTC; try again then"
    )


def crowded(running: int) -> ApiError:
    """429 because of the organization's other requests."""
    return ApiError(
        429,
        "RATE_LIMITED",
        f"{running} requests of the organization are looking up releases and images, as many as "
        "may; wait for some",
        retry_after=5,
    )


FIELDS = {
    "RepositoryNotFound": "repo",
    "NameInvalid": "repo",
    "SourceRefused": "repo",
}
"""Field of the request that a source's error is about, where it is not the tag."""


@dataclass(frozen=True, slots=True)
class ResolvedRelease:
    """A release, and the images of its file that cannot be pulled."""

    release: ReleaseFacts
    """The release with its parsed file."""
    file_limit: int
    """Largest deployable file in bytes."""
    image_limit: int
    """Most bytes of all images of a file as they are pulled."""
    images: Mapping[str, Failed] = field(default_factory=dict)
    """Images that cannot be pulled, by their reference in the file."""
    image_sizes: Mapping[str, ImageSize] = field(default_factory=dict)
    """Sizes of the others, by their reference in the file."""

    def added_to(self, facts: RequestFacts) -> RequestFacts:
        """Return the facts of a request with what was looked up for it."""
        return replace(
            facts,
            release=self.release,
            file_limit=self.file_limit,
            image_limit=self.image_limit,
            images=self.images,
            image_sizes=self.image_sizes,
        )

    def unanswered(self, problems: Iterable[Problem]) -> ApiError | None:
        """Return a 503 where nothing is wrong but that registries do not respond; else None."""
        silent = {each.reason for each in self.images.values() if each.transient}
        errors = [each for each in problems if each.severity is Severity.ERROR]
        return (
            refused_change(errors) if errors and {each.code for each in errors} <= silent else None
        )


class PullCredentials:
    """The credentials of organizations, read when they are needed and never kept."""

    def __init__(self, base: Infrastructure) -> None:
        self._client, self._cache = base.client, base.cache
        self._further = base.settings.registry.private_hosts

    async def of(self, organization: Organization) -> tuple[StoredCredentials, ...]:
        """Read the credentials that an organization may use.

        Raises
        ------
        KubeError
            When the cluster does not respond.
        """
        namespace = organization.spec.namespace
        places = pull_credentials(organization, self._cache.registry_credentials_of(namespace))
        return await stored_credentials(self._client, namespace, places, self._further)


class ReleaseResolver:
    """Looks releases up at the source of repositories, and their images at registries."""

    def __init__(
        self, lookups: Lookups, *, credentials: PullCredentials, installation: InstallationSettings
    ) -> None:
        self._lookups = lookups
        self._credentials = credentials
        self._rules = Rules(
            deployable_bytes=installation.max_file_bytes,
            service=installation.service,
            strict_from=installation.strict_from,
            release=True,
        )
        self._limits = (installation.max_file_bytes, installation.max_image_bytes)
        self._found: ResolvedRelease | None = None

    async def aclose(self) -> None:
        """Close connections."""
        await self._lookups.aclose()

    async def find(
        self,
        repo: str,
        tag: str,
        organization: Organization,
        *,
        commit: str | None = None,
        kept: bool = False,
    ) -> ResolvedRelease:
        """Read a release, parse its file and look its images up.

        Parameters
        ----------
        repo
            ``owner/name``.
        commit
            Commit that it must be; None means whichever the tag points to.
        kept
            Whether the commit is the present release, which is read even if the tag moved.

        Raises
        ------
        ApiError
            429 when the organization has too many concurrent lookups, 503 when a source is not
            queried at present or not in time.
        SourceError
            When there is no such release, or the source does not respond.
        KubeError
            When the cluster does not respond.
        """
        with self._lookups.request(organization.metadata.name) as until:
            slug = organization.metadata.name
            release = await self._lookups.release(repo, tag, slug, until, commit=commit, kept=kept)
            return await self._judged(release, organization, until)

    async def listed(
        self, repo: str, limit: int, organization: Organization
    ) -> tuple[ListedRelease, ...]:
        """Return the newest releases of a repository, see `Lookups.releases`."""
        return await self._lookups.releases(repo, limit, organization.metadata.name)

    async def _judged(
        self, release: PublishedRelease, organization: Organization, until: LookupDeadline
    ) -> ResolvedRelease:
        """Parse the file of a release and look its images up."""
        slug, tiers = organization.metadata.name, Tiers.of(organization)
        rules = replace(
            self._rules,
            cpu_tiers=tiers.cpus,
            memory_tiers=tiers.memory,
            gpu_counts=tiers.gpus,
        )
        parsed = await asyncio.to_thread(parse, release.file, rules=rules)
        facts = ReleaseFacts(
            repo=release.repo,
            tag=release.tag,
            commit=release.commit,
            published=release.published,
            file_name=release.file_name,
            raw=release.file,
            digest=parsed.digest,
            config=parsed.config,
            problems=parsed.problems,
            tag_commit=release.tag_commit,
        )
        if parsed.config is None:
            return ResolvedRelease(facts, *self._limits)
        images = {container.image for container in parsed.config.containers}
        stored = await self._credentials.of(organization)
        async with asyncio.TaskGroup() as group:
            tasks = {
                image: group.create_task(self._lookups.image(image, slug, stored, until))
                for image in sorted(images)
            }
        found = {image: task.result() for image, task in tasks.items()}
        failed = {image: each for image, each in found.items() if isinstance(each, Failed)}
        sizes = {image: each for image, each in found.items() if isinstance(each, ImageSize)}
        return ResolvedRelease(facts, *self._limits, failed, sizes)

    def of_release(self, found: ResolvedRelease) -> "ReleaseResolver":
        """Return this with a release that is not looked up again, for several requests."""
        of_one = copy(self)
        of_one._found = found  # noqa: SLF001 - a copy of this
        return of_one

    async def approve(
        self, facts: RequestFacts, problems: tuple[Problem, ...], *, kept: bool = False
    ) -> ResolvedRelease:
        """Find the release of a request, and refuse what cannot run.

        All problems of the request, its release, the file and the images are reported together.

        Parameters
        ----------
        facts
            The request and what is known about it, without the release.
        problems
            Its problems, from `admitted_problems`.
        kept
            Whether it is the present release, which is read even if its tag moved.

        Raises
        ------
        ApiError
            400, 402, 403, 429 or 503.
        KubeError
            When the cluster does not respond.
        """
        assert facts.organization is not None
        spec = facts.spec
        try:
            found = self._found or await self.find(
                spec.repo, spec.tag, facts.organization, commit=spec.commit, kept=kept
            )
        except SourceError as error:
            raise refusal_of_source(error, problems) from error
        answered = found.added_to(facts)
        refused = refused_change((*problems, *file_problems(answered)))
        if refused is not None:
            raise refused
        return found


def admitted_problems(facts: RequestFacts) -> tuple[Problem, ...]:
    """Return the problems of a request that the organization is entitled to make.

    Parameters
    ----------
    facts
        The request and what is known about it, without the release.

    Raises
    ------
    ApiError
        402 or 403 when it is not entitled to it.
    """
    problems = tuple(spec_problems(facts))
    denied = denial(problems)
    if denied is not None:
        raise denied
    return problems


def refusal_of_source(error: SourceError, others: Iterable[Problem] = ()) -> ApiError:
    """Translate a source's error: 503 when a retry may help, else 400 naming the field.

    Parameters
    ----------
    error
        The source's error.
    others
        Problems that the rules found before; all of them are reported together.
    """
    field = FIELDS.get(error.reason, "tag")
    message = error.message
    if isinstance(error, TagMoved):
        message = (
            f"the tag points to commit {error.actual}, and this container uses commit "
            f"{error.pinned}, which cannot be deployed now; check who moved the tag, then send the "
            "tag with the request to deploy the other commit, or send the tag of another release"
        )
    wrong = [each for each in others if each.severity is Severity.ERROR]
    if not wrong and error.transient:
        return unavailable(message, retry_after=getattr(error, "retry_after", None))
    if not wrong:
        return bad_request(field, message, code=error.reason)
    if error.transient and not all(is_transient(each.code) for each in wrong):
        return problems_of_file(to_wire(each) for each in wrong)
    refused = refused_change(
        (*wrong, Problem(field, error.reason, message)),
        retry_after=getattr(error, "retry_after", None),
    )
    assert refused is not None
    return refused
