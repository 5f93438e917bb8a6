"""GitHub and Gitea: the providers against stand-ins of the two interfaces on a socket."""

import json
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cloister_clients.sources import (
    ConfigFileNotFound,
    ConfigFileNotRegular,
    FileTooLarge,
    NameInvalid,
    RateLimited,
    ReleaseNotPublished,
    RepositoryNotFound,
    SourceProvider,
    SourceRefused,
    SourceSettings,
    SourceUnauthorized,
    SourceUnavailable,
    TagMoved,
    TagNotFound,
)
from cloister_clients.sources.forges import GiteaProvider, GitHubProvider
from tests.support.servers.git import Repositories, Repository
from tests.support.stand_ins.forges import ForgeStandIn, GiteaStandIn, GitHubStandIn, forge
from tests.support.stand_ins.http_server import Reply

FILE = b"cvm-version: 0.10.0\n"
REPO = "acme/app"
NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


class FakeClock:
    """A clock that is until it is moved."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        """Return the present time."""
        return self.now


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repositories(tmp_path / "repositories").create(REPO)


@pytest.fixture(params=["github", "gitea"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ForgeStandIn]:
    root = tmp_path / "repositories"
    stand_in = GitHubStandIn(root) if request.param == "github" else GiteaStandIn(root)
    with forge(stand_in) as running:
        yield running


def settings_for(server: ForgeStandIn, **more: Any) -> SourceSettings:
    """Write settings that let the stand-in be called."""
    assert server.served is not None
    host = server.served.host
    data = {"base": server.base, "allow_private": (host,), "plain_http": (host,), **more}
    kind = "github" if isinstance(server, GitHubStandIn) else "gitea"
    return SourceSettings.model_validate({"kind": kind, **data})


def provider_for(server: ForgeStandIn, clock: FakeClock, **more: Any) -> SourceProvider:
    """Build the provider of the stand-in's kind."""
    settings = settings_for(server, **more)
    if isinstance(server, GitHubStandIn):
        return GitHubProvider(settings, clock=clock)
    return GiteaProvider(settings, clock=clock)


@pytest.fixture
async def provider(server: ForgeStandIn, clock: FakeClock) -> AsyncIterator[SourceProvider]:
    provider = provider_for(server, clock)
    yield provider
    await provider.aclose()


@pytest.mark.spec("40.1")
async def test_the_file_of_a_published_release_is_read(
    server: ForgeStandIn, provider: SourceProvider, repository: Repository
) -> None:
    commit = repository.release("v1", FILE)
    server.publish(REPO, "v1", "2026-01-02T03:04:05+02:00")
    release = await provider.resolve(REPO, "v1")
    assert (release.repo, release.tag, release.commit) == (REPO, "v1", commit)
    assert (release.file_name, release.file) == ("service-config.yml", FILE)
    assert release.published == datetime(2026, 1, 2, 1, 4, 5, tzinfo=UTC)


async def test_annotated_tags_and_slashes_lead_to_the_commit(
    server: ForgeStandIn, provider: SourceProvider, repository: Repository
) -> None:
    commit = repository.release("light", FILE)
    repository.tag("inner", commit, annotated=True)
    repository.tag("rel/1", "refs/tags/inner", annotated=True)
    server.publish(REPO, "rel/1")
    assert (await provider.resolve(REPO, "rel/1", commit=commit)).commit == commit


@pytest.mark.spec("40.2")
async def test_missing_repository_tag_release_and_file_are_distinguished(
    server: ForgeStandIn, provider: SourceProvider, repository: Repository
) -> None:
    repository.release("unpublished", FILE)
    repository.release("draft", FILE)
    repository.tag("empty", repository.commit({"README": b"x"}))
    server.publish(REPO, "draft", draft=True)
    server.publish(REPO, "empty")
    server.publish(REPO, "gone")
    with pytest.raises(RepositoryNotFound, match="acme/other does not exist or is private"):
        await provider.resolve("acme/other", "v1")
    with pytest.raises(TagNotFound, match="has no tag v9"):
        await provider.resolve(REPO, "v9")
    with pytest.raises(TagNotFound, match="has no tag gone"):
        await provider.resolve(REPO, "gone")
    with pytest.raises(ReleaseNotPublished, match="has no published release; publish a release"):
        await provider.resolve(REPO, "unpublished")
    with pytest.raises(ReleaseNotPublished, match="only a draft"):
        await provider.resolve(REPO, "draft")
    with pytest.raises(ConfigFileNotFound, match=r"no service-config\.yml") as caught:
        await provider.resolve(REPO, "empty")
    assert caught.value.names == ("service-config.yml",)


async def test_a_prerelease_is_deployed_by_its_tag_and_not_the_latest(
    server: ForgeStandIn, provider: SourceProvider, repository: Repository, clock: FakeClock
) -> None:
    assert await provider.latest(REPO) is None
    commit = repository.release("v1", FILE)
    repository.release("v2-rc", b"new\n")
    server.publish(REPO, "v1", "2026-01-01T00:00:00Z")
    server.publish(REPO, "v2-rc", "2026-02-01T00:00:00Z", prerelease=True)
    server.publish(REPO, "v3", "2026-03-01T00:00:00Z", draft=True)
    assert (await provider.resolve(REPO, "v2-rc")).file == b"new\n"
    latest = await provider.latest(REPO)
    assert latest is not None
    assert (latest.tag, latest.commit) == ("v1", commit)
    assert latest.published == datetime(2026, 1, 1, tzinfo=UTC)
    eager = provider_for(server, clock, prereleases=True)
    newest = await eager.latest(REPO)
    assert newest is not None
    assert newest.tag == "v2-rc"
    await eager.aclose()


async def test_the_latest_of_no_repository_is_an_error(
    server: ForgeStandIn, provider: SourceProvider
) -> None:
    with pytest.raises(RepositoryNotFound):
        await provider.latest("acme/other")


async def test_the_newest_releases_are_listed_with_prereleases_and_without_drafts(
    server: ForgeStandIn, provider: SourceProvider, repository: Repository
) -> None:
    repository.release("v1", FILE)
    assert await provider.releases(REPO, 5) == ()
    server.publish(REPO, "v1", "2026-01-01T00:00:00Z")
    server.publish(REPO, "v2-rc", "2026-02-01T00:00:00Z", prerelease=True)
    server.publish(REPO, "v3", draft=True)
    server.publish(REPO, "a..b", "2026-04-01T00:00:00Z")
    server.publish(REPO, "v0", "2025-12-31T23:59:59+02:00")
    listed = await provider.releases(REPO, 2)
    assert [(each.tag, each.prerelease, each.commit) for each in listed] == [
        ("v2-rc", True, None),
        ("v1", False, None),
    ]
    assert listed[0].published == datetime(2026, 2, 1, tzinfo=UTC)
    assert [each.tag for each in await provider.releases(REPO, 9)] == ["v2-rc", "v1", "v0"]
    with pytest.raises(RepositoryNotFound):
        await provider.releases("acme/other", 5)
    with pytest.raises(NameInvalid):
        await provider.releases("../other", 5)


async def test_a_tag_that_moved_from_its_pin_is_refused(
    server: ForgeStandIn, provider: SourceProvider, repository: Repository
) -> None:
    old = repository.release("v1", FILE)
    server.publish(REPO, "v1")
    assert (await provider.resolve(REPO, "v1", commit=old)).file == FILE
    repository.release("v1", b"other\n")
    with pytest.raises(TagMoved, match=old):
        await provider.resolve(REPO, "v1", commit=old)
    assert (await provider.resolve(REPO, "v1")).file == b"other\n"


async def test_a_kept_commit_is_read_after_the_tag_has_left_it(
    server: ForgeStandIn, provider: SourceProvider, repository: Repository
) -> None:
    old = repository.release("v1", FILE)
    server.publish(REPO, "v1")
    new = repository.release("v1", b"other\n")
    kept = await provider.resolve(REPO, "v1", commit=old, kept=True)
    assert (kept.commit, kept.tag_commit, kept.file) == (old, new, FILE)
    with pytest.raises(TagMoved, match=new):
        await provider.resolve(REPO, "v1", commit="a" * 40, kept=True)


async def test_what_is_no_regular_file_or_too_large_is_not_read(
    server: ForgeStandIn, provider: SourceProvider, repository: Repository
) -> None:
    name = "service-config.yml"
    commit = repository.release("large", b"x" * 262145)
    repository.tag("link", repository.commit({"x": b"1"}, links={name: "x"}))
    repository.tag("module", repository.commit({"x": b"1"}, submodules={name: commit}))
    for tag in ("large", "link", "module"):
        server.publish(REPO, tag)
    with pytest.raises(FileTooLarge, match="larger than 262144 bytes"):
        await provider.resolve(REPO, "large")
    with pytest.raises(ConfigFileNotRegular, match="symbolic link"):
        await provider.resolve(REPO, "link")
    with pytest.raises(ConfigFileNotRegular, match="submodule"):
        await provider.resolve(REPO, "module")


async def test_a_cached_response_is_requested_conditionally_by_etag(
    server: ForgeStandIn, provider: SourceProvider, repository: Repository
) -> None:
    repository.release("v1", FILE)
    server.publish(REPO, "v1")
    first = await provider.resolve(REPO, "v1")
    asked = len(server.requests)
    assert await provider.resolve(REPO, "v1") == first
    again = server.requests[asked:]
    assert again
    assert all("if-none-match" in request.headers for request in again)
    assert all("if-none-match" not in request.headers for request in server.requests[:asked])


async def test_the_token_is_sent_and_read_again(
    server: ForgeStandIn, repository: Repository, clock: FakeClock, tmp_path: Path
) -> None:
    repository.release("v1", FILE)
    server.publish(REPO, "v1")
    server.token = "secret-token"
    token = tmp_path / "token"
    token.write_text("old-token\n")
    provider = provider_for(server, clock, token_file=token)
    with pytest.raises(SourceUnauthorized, match="must renew it") as caught:
        await provider.resolve(REPO, "v1")
    assert caught.value.transient
    assert "old-token" not in str(caught.value)
    token.write_text("secret-token\n")
    assert (await provider.resolve(REPO, "v1")).file == FILE
    token.unlink()
    with pytest.raises(SourceUnauthorized, match="could not be read"):
        await provider.resolve(REPO, "v1")
    await provider.aclose()


RESET = str(int((NOW + timedelta(seconds=90)).timestamp()))


@pytest.mark.parametrize(
    ("reply", "wait"),
    [
        (Reply(403, headers={"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": RESET}), 90),
        (Reply(429, headers={"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": RESET}), 90),
        (Reply(403, headers={"Retry-After": "30"}), 30),
        (Reply(429, headers={"Retry-After": "Sun, 22 Nov 2026 12:00:45 GMT"}), 45),
        (Reply(403, b'{"message": "You have exceeded a secondary rate limit."}'), 60),
        (Reply(429), 60),
        (Reply(429, headers={"Retry-After": "99999999999999"}), 86400),
    ],
)
async def test_a_limit_silences_the_provider_until_it_ends(
    server: ForgeStandIn,
    provider: SourceProvider,
    repository: Repository,
    clock: FakeClock,
    reply: Reply,
    wait: float,
) -> None:
    repository.release("v1", FILE)
    server.publish(REPO, "v1")
    server.fault = reply
    with pytest.raises(RateLimited) as caught:
        await provider.resolve(REPO, "v1")
    assert caught.value.retry_after == pytest.approx(wait)
    assert caught.value.transient
    server.fault = None
    asked = len(server.requests)
    clock.now += timedelta(seconds=wait - 1)
    with pytest.raises(RateLimited) as again:
        await provider.latest(REPO)
    assert again.value.retry_after == pytest.approx(1)
    assert len(server.requests) == asked
    clock.now += timedelta(seconds=2)
    assert (await provider.resolve(REPO, "v1")).file == FILE


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Reply(403, b'{"message": "forbidden"}'), RepositoryNotFound),
        (Reply(451), RepositoryNotFound),
        (Reply(401), SourceUnauthorized),  # without a token: the forge shows itself to nobody
        (Reply(500), SourceUnavailable),
        (Reply(503, headers={"Retry-After": "7"}), SourceUnavailable),
        (Reply(200, b"<html>"), SourceUnavailable),
        (Reply(200, b"[]"), SourceUnavailable),
        (Reply(200, b"{}"), (SourceUnavailable, ReleaseNotPublished)),
        (Reply(200, b"[" * 100_000), SourceUnavailable),
        (Reply(200, b" " * (8 * 1024**2 + 1)), SourceRefused),
        (Reply(302, headers={"Location": "http://169.254.169.254/latest"}), SourceRefused),
        (Reply(302, headers={"Location": "/again"}), SourceUnavailable),
    ],
)
async def test_each_response_of_a_forge_has_its_error(
    server: ForgeStandIn,
    provider: SourceProvider,
    reply: Reply,
    error: type[Exception] | tuple[type[Exception], ...],
) -> None:
    server.fault = reply
    with pytest.raises(error) as caught:
        await provider.resolve(REPO, "v1")
    if reply.status == 503:
        assert isinstance(caught.value, SourceUnavailable)
        assert caught.value.retry_after == 7


async def test_a_redirect_to_the_new_name_of_a_repository_is_followed(
    server: ForgeStandIn, provider: SourceProvider, repository: Repository
) -> None:
    repository.release("v1", FILE)
    server.publish(REPO, "v1")
    route = server.route

    def moved(request: Any) -> Reply:
        if "/old/name" in request.path:
            path = request.path.replace("/old/name", f"/{REPO}")
            return Reply(301, headers={"Location": f"{path}?{request.query}"})
        return route(request)

    server.route = moved  # type: ignore[method-assign]  # this server knows two names
    release = await provider.resolve("old/name", "v1")
    assert (release.repo, release.file) == ("old/name", FILE)


async def test_the_guard_keeps_the_provider_from_private_addresses(
    server: ForgeStandIn, clock: FakeClock
) -> None:
    for key, name in (("allow_private", "allowPrivate"), ("plain_http", "plainHttp")):
        provider = provider_for(server, clock, **{key: ()})
        with pytest.raises(SourceRefused, match=f"setting {name}"):
            await provider.resolve(REPO, "v1")
        await provider.aclose()
    assert server.requests == []


async def test_a_forge_that_is_not_there_is_transient() -> None:
    local = ("127.0.0.1",)
    data = {"base": "http://127.0.0.1:1", "allow_private": local, "plain_http": local}
    provider = GitHubProvider(SourceSettings.model_validate({"kind": "github", **data}))
    with pytest.raises(SourceUnavailable, match="did not respond for acme/app") as caught:
        await provider.resolve(REPO, "v1")
    assert caught.value.transient
    await provider.aclose()


async def test_names_are_validated_before_any_request(
    server: ForgeStandIn, provider: SourceProvider
) -> None:
    with pytest.raises(NameInvalid):
        await provider.resolve("acme/..", "v1")
    with pytest.raises(NameInvalid):
        await provider.resolve(REPO, "a..b")
    with pytest.raises(NameInvalid):
        await provider.latest("acme")
    assert server.requests == []


async def test_content_that_is_not_what_was_listed_is_refused(
    server: ForgeStandIn, provider: SourceProvider, repository: Repository
) -> None:
    repository.release("v1", FILE)
    server.publish(REPO, "v1")
    route = server.route

    def changed(request: Any) -> Reply:
        reply = route(request)
        if "/git/blobs/" in request.path:
            return Reply(200, reply.body + b"more")
        if "/contents/" in request.path:
            return Reply(200, json.dumps({**json.loads(reply.body), "size": 1}).encode())
        return reply

    server.route = changed  # type: ignore[method-assign]  # this server sends other content
    with pytest.raises(SourceUnavailable, match="did not send"):
        await provider.resolve(REPO, "v1")


@pytest.mark.parametrize("body", [b"[" * 1_000_000, b'{"a":' * 100_000, b'[{"a":1}]' * 50_000])
async def test_a_response_that_would_fill_memory_or_stack_is_refused(
    server: ForgeStandIn, provider: SourceProvider, body: bytes
) -> None:
    server.fault = Reply(200, body)
    with pytest.raises((SourceRefused, SourceUnavailable), match=r"at most|not read as JSON"):
        await provider.resolve(REPO, "v1")
