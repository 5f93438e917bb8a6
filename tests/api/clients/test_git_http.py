"""Plain git over HTTP: git's own server behind a small one in Python."""

import asyncio
import os
import random
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cloister_clients.address_guard import Guard
from cloister_clients.sources import (
    ConfigFileNotRegular,
    FileTooLarge,
    NameInvalid,
    RateLimited,
    RepositoryNotFound,
    SourceKind,
    SourceRefused,
    SourceSettings,
    SourceUnauthorized,
    SourceUnavailable,
    TagNotFound,
)
from cloister_clients.sources.git.provider import GitProvider
from tests.support.builders.certificates import certificate
from tests.support.servers.git import GitServer, Repositories, Repository, git_server
from tests.support.stand_ins.http_server import Reply, Request, serve
from tests.support.waiting import until

FILE = b"cvm-version: 0.10.0\n"
REPO = "acme/app"
PAGE = b"<!doctype html>\n<html>\n<body>\n<p>hello</p>\n</body>\n</html>\n"


@pytest.fixture
def repositories(tmp_path: Path) -> Repositories:
    return Repositories(tmp_path / "repositories")


@pytest.fixture
def repository(repositories: Repositories) -> Repository:
    return repositories.create(REPO)


@pytest.fixture
def server(repositories: Repositories, repository: Repository) -> Iterator[GitServer]:
    with git_server(repositories.path) as running:
        yield running


def over_http(server: GitServer, **more: object) -> SourceSettings:
    """Write settings that let the server on the loopback be called."""
    host = server.base.partition("//")[2]
    return SourceSettings.model_validate(
        {
            "kind": "git",
            "base": server.base,
            "allow_private": (host,),
            "plain_http": (host,),
            **more,
        }
    )


async def test_a_release_is_read_from_a_server(server: GitServer, repository: Repository) -> None:
    commit = repository.release("v1", FILE)
    repository.tag("v2", commit, annotated=True, when=1_700_000_010)
    repository.tag("link", repository.commit({"x": b"1"}, links={"service-config.yml": "x"}))
    repository.release("far", b"x" * 3_000_000)
    provider = GitProvider(over_http(server))
    release = await provider.resolve(REPO, "v2", commit=commit)
    assert (release.commit, release.file) == (commit, FILE)
    assert release.published == datetime.fromtimestamp(1_700_000_010, tz=UTC)
    with pytest.raises(TagNotFound):
        await provider.resolve(REPO, "v9")
    with pytest.raises(RepositoryNotFound):
        await provider.resolve("acme/other", "v1")
    with pytest.raises(ConfigFileNotRegular):
        await provider.resolve(REPO, "link")
    with pytest.raises(FileTooLarge):
        await provider.resolve(REPO, "far")
    repository.git("config", "uploadpack.allowFilter", "false")
    assert (await provider.resolve(REPO, "v1")).file == FILE
    with pytest.raises(FileTooLarge):
        await provider.resolve(REPO, "far")


@pytest.mark.spec("40.1")
async def test_the_first_of_several_names_counts(server: GitServer, repository: Repository) -> None:
    repository.tag("both", repository.commit({"a.yml": b"a", "b.yml": b"b"}))
    repository.tag("second", repository.commit({"b.yml": b"b"}))
    provider = GitProvider(over_http(server, file_names=("a.yml", "b.yml")))
    assert (await provider.resolve(REPO, "both")).file_name == "a.yml"
    assert (await provider.resolve(REPO, "second")).file_name == "b.yml"


@pytest.mark.parametrize("repo", ["acme", "acme/../app", "-o/app", "acme/app.git", "a/b/c", "/app"])
async def test_an_invalid_repository_name_sends_no_request(server: GitServer, repo: str) -> None:
    provider = GitProvider(over_http(server))
    with pytest.raises(NameInvalid, match="owner/name"):
        await provider.resolve(repo, "v1")
    with pytest.raises(NameInvalid):
        await provider.latest(repo)
    assert server.requests == []


async def test_names_of_tags_and_commits_are_checked_first(server: GitServer) -> None:
    provider = GitProvider(over_http(server))
    with pytest.raises(NameInvalid, match="not a tag name"):
        await provider.resolve(REPO, "--upload-pack=x")
    with pytest.raises(NameInvalid, match="40 hexadecimal digits"):
        await provider.resolve(REPO, "v1", commit="HEAD")
    assert server.requests == []


async def test_the_latest_of_very_many_tags_is_found(
    server: GitServer, repository: Repository
) -> None:
    commit = repository.release("v0", FILE)
    newest = repository.commit({"service-config.yml": FILE}, when=1_700_000_900)
    lines = [f"create refs/tags/v1.{number} {commit}" for number in range(150)]
    lines.append(f"create refs/tags/v1.150 {newest}")
    repository.git("update-ref", "--stdin", data="\n".join(lines).encode() + b"\n")
    latest = await GitProvider(over_http(server)).latest(REPO)
    assert latest is not None
    assert (latest.tag, latest.commit) == ("v1.150", newest)


async def test_an_unchanged_list_of_tags_is_not_fetched_again(
    server: GitServer, repository: Repository
) -> None:
    repository.release("v1", FILE)
    provider = GitProvider(over_http(server))
    first = await provider.latest(REPO)
    asked = len(server.requests)
    assert await provider.latest(REPO) == first
    again = server.requests[asked:]
    assert all(b"command=fetch" not in request.body for request in again)
    assert any(b"command=fetch" in request.body for request in server.requests[:asked])


async def test_the_guard_keeps_git_from_private_addresses(
    server: GitServer, repository: Repository
) -> None:
    host = server.base.partition("//")[2]
    repository.release("v1", FILE)
    with pytest.raises(SourceRefused, match="setting allowPrivate"):
        await GitProvider(over_http(server, allow_private=())).resolve(REPO, "v1")
    with pytest.raises(SourceRefused, match="setting plainHttp"):
        await GitProvider(over_http(server, plain_http=())).resolve(REPO, "v1")
    assert server.requests == []
    assert host.startswith("127.0.0.1:")


async def test_git_calls_the_address_that_was_checked(
    server: GitServer, repository: Repository
) -> None:
    """The name resolves nowhere but in the guard: git cannot have looked it up itself."""
    commit = repository.release("v1", FILE)
    asked: list[str] = []

    async def resolver(host: str) -> tuple[str, ...]:
        asked.append(host)
        return ("127.0.0.1",)

    base = server.base.replace("127.0.0.1", "git.example.test")
    settings = over_http(server, base=base)
    guard = Guard(
        allow_private=frozenset({"git.example.test"}),
        plain_http=frozenset({"git.example.test"}),
        resolver=resolver,
    )
    release = await GitProvider(settings, guard=guard).resolve(REPO, "v1")
    assert release.commit == commit
    assert asked == ["git.example.test"]
    assert server.requests[0].headers["host"].startswith("git.example.test:")


async def test_redirects_are_not_followed(server: GitServer, repository: Repository) -> None:
    repository.release("v1", FILE)
    server.location = "http://127.0.0.1:1"
    with pytest.raises(SourceRefused, match="redirect, which is not followed"):
        await GitProvider(over_http(server)).resolve(REPO, "v1")


async def test_the_token_goes_along_and_is_in_no_message(
    server: GitServer, repository: Repository, tmp_path: Path
) -> None:
    repository.release("v1", FILE)
    server.password = "secret-token"
    with pytest.raises(RepositoryNotFound):
        await GitProvider(over_http(server)).resolve(REPO, "v1")
    token = tmp_path / "token"
    token.write_text("secret-token\n")
    provider = GitProvider(over_http(server, token_file=token))
    assert (await provider.resolve(REPO, "v1")).file == FILE
    token.write_text("expired-token\n")
    with pytest.raises(SourceUnauthorized, match="must renew it") as caught:
        await provider.resolve(REPO, "v1")
    assert "expired-token" not in str(caught.value)
    assert caught.value.transient
    token.unlink()
    with pytest.raises(SourceUnavailable, match="token of the git server could not be read"):
        await provider.resolve(REPO, "v1")


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, RepositoryNotFound),
        (403, RepositoryNotFound),
        (404, RepositoryNotFound),
        (429, RateLimited),
        (500, SourceUnavailable),
        (503, SourceUnavailable),
    ],
)
async def test_each_response_of_a_git_server_has_its_error(
    server: GitServer, status: int, error: type[Exception]
) -> None:
    server.status = status
    provider = GitProvider(over_http(server))
    with pytest.raises(error) as caught:
        await provider.resolve(REPO, "v1")
    assert type(caught.value) is error
    with pytest.raises(error):
        await provider.latest(REPO)


async def test_a_server_that_is_not_there_is_transient(tmp_path: Path) -> None:
    settings = SourceSettings(
        kind=SourceKind.GIT,
        base="http://127.0.0.1:1",
        allow_private=("127.0.0.1",),
        plain_http=("127.0.0.1",),
    )
    with pytest.raises(SourceUnavailable, match="did not respond for acme/app") as caught:
        await GitProvider(settings).resolve(REPO, "v1")
    assert caught.value.transient


async def test_a_server_that_does_not_end_is_left_in_time(server: GitServer) -> None:
    server.hold = threading.Event()
    provider = GitProvider(over_http(server, timeout_seconds=0.3))
    with pytest.raises(SourceUnavailable, match=r"longer than 0\.3 seconds"):
        await provider.resolve(REPO, "v1")


async def test_a_cancelled_question_ends_its_processes(
    server: GitServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[asyncio.subprocess.Process] = []
    create = asyncio.create_subprocess_exec

    async def remembered(*arguments: str, **more: object) -> asyncio.subprocess.Process:
        process = await create(*arguments, **more)  # type: ignore[arg-type]  # passed on
        started.append(process)
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", remembered)
    server.hold = threading.Event()
    task = asyncio.create_task(GitProvider(over_http(server)).latest(REPO))

    async def asked() -> bool:
        return bool(server.requests)

    await until(asked, every=0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert started
    assert all(process.returncode is not None for process in started)


async def test_a_pack_beyond_the_limit_is_not_written(
    server: GitServer, repository: Repository
) -> None:
    content = random.Random(1).randbytes(3_000_000)
    repository.git("config", "uploadpack.allowFilter", "false")
    repository.tag("v1", repository.commit({"service-config.yml": FILE, "data": content}))
    provider = GitProvider(over_http(server, max_fetch_bytes=1048576))
    with pytest.raises(
        SourceRefused, match=r"more than 1048576 bytes; .* raise sources\.maxFetchBytes"
    ):
        await provider.resolve(REPO, "v1")


async def test_a_server_over_tls_is_trusted_by_its_authority(
    repositories: Repositories, repository: Repository, tmp_path: Path
) -> None:
    commit = repository.release("v1", FILE)
    made = certificate(tmp_path / "tls")
    with git_server(repositories.path, tls=made.server()) as server:
        trusted = over_http(server, plain_http=(), ca_file=made.file)
        assert (await GitProvider(trusted).resolve(REPO, "v1")).commit == commit
        with pytest.raises(SourceUnavailable, match="certificate"):
            await GitProvider(over_http(server, plain_http=())).resolve(REPO, "v1")


async def test_a_git_that_would_look_hosts_up_itself_is_not_used(
    server: GitServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "git"
    old.write_text('#!/bin/sh\necho "git version 2.36.9"\n')
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(SourceUnavailable, match=r"git 2\.36 is installed .* 2\.37 or newer"):
        await GitProvider(over_http(server)).resolve(REPO, "v1")
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(SourceUnavailable, match="is not installed"):
        await GitProvider(over_http(server)).resolve(REPO, "v1")
    assert server.requests == []


async def test_a_mirror_of_files_alone_is_refused(repositories: Repositories) -> None:
    """A server of static files speaks the old protocol, which knows no single tag."""
    repository = repositories.create("acme/static")
    repository.release("v1", FILE)
    repository.git("update-server-info")

    def answer(request: Request) -> Reply:
        path = repositories.path / request.path.lstrip("/")
        return Reply(200, path.read_bytes()) if path.is_file() else Reply(404)

    with serve(answer) as server:
        hosts = (server.host,)
        data = {"kind": "git", "base": server.base, "allow_private": hosts, "plain_http": hosts}
        settings = SourceSettings.model_validate(data)
        with pytest.raises(SourceRefused, match="does not speak a git protocol that is allowed"):
            await GitProvider(settings).resolve("acme/static", "v1")


async def test_a_page_instead_of_a_repository_is_refused() -> None:
    with serve(lambda request: Reply(200, PAGE, {"Content-Type": "text/html"})) as server:
        hosts = (server.host,)
        data = {"kind": "git", "base": server.base, "allow_private": hosts, "plain_http": hosts}
        settings = SourceSettings.model_validate(data)
        with pytest.raises(SourceRefused, match="does not speak a git protocol"):
            await GitProvider(settings).resolve(REPO, "v1")


async def test_many_questions_at_once_are_answered_in_turn(
    server: GitServer, repository: Repository
) -> None:
    commits = {f"v{number}": repository.release(f"v{number}", FILE + b"\n" * number)
               for number in range(6)}  # fmt: skip
    provider = GitProvider(over_http(server, concurrency=2))
    found = await asyncio.gather(*(provider.resolve(REPO, tag) for tag in commits))
    assert {release.tag: release.commit for release in found} == commits
