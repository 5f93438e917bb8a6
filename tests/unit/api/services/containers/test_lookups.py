"""Lists of releases are asked for once in a minute, and each organization waits in its lane."""

from datetime import UTC, datetime, timedelta
from typing import cast

import pytest

from cloister_api.errors import ApiError
from cloister_api.services.containers.resolution import Lookups
from cloister_api.settings import LookupSettings
from cloister_clients.lanes.outside import OutsideLanes
from cloister_clients.registry import Platform, RegistryClient
from cloister_clients.sources import (
    ListedRelease,
    RepositoryNotFound,
    SourceProvider,
    SourceSettings,
    SourceUnavailable,
)

AT = datetime(2026, 11, 22, 12, tzinfo=UTC)


class Source:
    """A source of one repository that counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.silent = False

    async def releases(self, repo: str, limit: int) -> tuple[ListedRelease, ...]:
        """Return as many releases as it was asked for."""
        self.asked += 1
        if self.silent:
            raise SourceUnavailable("the forge did not respond")
        if repo != "acme/app":
            raise RepositoryNotFound(repo)
        return tuple(ListedRelease(f"v{number}", AT) for number in range(limit))


class Clock:
    """A clock that is until it is moved."""

    def __init__(self) -> None:
        self.now = AT

    def __call__(self) -> datetime:
        """Return the present time."""
        return self.now


def lookups_of(source: Source, clock: Clock, settings: LookupSettings) -> Lookups:
    """Build lookups of a source."""
    sources = SourceSettings.model_validate({"kind": "git", "base": "/srv/git"})
    lanes = OutsideLanes(total=4, per_organization=2, sources=sources, clock=clock)
    return Lookups(
        cast("SourceProvider", source),
        cast("RegistryClient", None),
        lanes=lanes,
        platform=Platform.parse("linux/amd64"),
        settings=settings,
        clock=clock,
    )


async def test_a_list_of_releases_is_asked_for_once_in_a_minute() -> None:
    source, clock = Source(), Clock()
    lookups = lookups_of(source, clock, LookupSettings())
    first = await lookups.releases("acme/app", 2, "acme")
    assert [each.tag for each in first] == ["v0", "v1"]
    clock.now += timedelta(seconds=59)
    assert await lookups.releases("acme/app", 2, "globex") == first
    assert source.asked == 1
    assert len(await lookups.releases("acme/app", 3, "acme")) == 3
    clock.now += timedelta(seconds=1)
    assert await lookups.releases("acme/app", 2, "acme") == first
    assert source.asked == 3


async def test_errors_are_not_kept() -> None:
    source, clock = Source(), Clock()
    lookups = lookups_of(source, clock, LookupSettings())
    for _ in range(2):
        with pytest.raises(RepositoryNotFound):
            await lookups.releases("acme/other", 2, "acme")
    assert source.asked == 2
    source.silent = True
    for _ in range(2):
        with pytest.raises(SourceUnavailable):
            await lookups.releases("acme/app", 2, "acme")
    assert source.asked == 4


async def test_lists_count_among_the_lookups_of_an_organization() -> None:
    source, clock = Source(), Clock()
    lookups = lookups_of(source, clock, LookupSettings(requests_per_organization=1))
    with lookups.request("acme"), pytest.raises(ApiError) as refused:
        await lookups.releases("acme/app", 2, "acme")
    assert refused.value.status == 429
    assert source.asked == 0
