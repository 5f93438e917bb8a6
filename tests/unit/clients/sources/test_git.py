"""Plain git: a real git server over HTTP, and a directory of repositories."""

import asyncio
import os
import random
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cloister_clients.guard import Guard
from cloister_clients.sources import (
    ConfigFileNotFound,
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
    TagMoved,
    TagNotFound,
)
from cloister_clients.sources.git import GitProvider
from tests.support.git_server import GitServer, Repositories, Repository, git_server

FILE = b"cvm-version: 0.10.0\n"
REPO = "acme/app"


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
    """Settings that let the server on the loopback be called."""
    host = server.base.removeprefix("http://")
    return SourceSettings.model_validate(
        {
            "kind": "git",
            "base": server.base,
            "allow_private": (host,),
            "plain_http": (host,),
            **more,
        }
    )


@pytest.fixture(params=["http", "directory"])
async def provider(
    request: pytest.FixtureRequest, server: GitServer, repositories: Repositories
) -> AsyncIterator[GitProvider]:
    settings = (
        over_http(server)
        if request.param == "http"
        else SourceSettings(kind=SourceKind.GIT, base=str(repositories.path))
    )
    provider = GitProvider(settings)
    yield provider
    await provider.aclose()


async def test_the_file_is_read_at_the_commit_of_a_light_tag(
    provider: GitProvider, repository: Repository
) -> None:
    commit = repository.release("v1", FILE, when=1_700_000_005)
    repository.release("v2", b"other\n")
    release = await provider.resolve(REPO, "v1")
    assert (release.repo, release.tag, release.commit) == (REPO, "v1", commit)
    assert (release.file_name, release.file) == ("service-config.yml", FILE)
    assert release.published == datetime.fromtimestamp(1_700_000_005, tz=UTC)


async def test_an_annotated_tag_of_a_tag_leads_to_its_commit_and_its_own_date(
    provider: GitProvider, repository: Repository
) -> None:
    commit = repository.release("light", FILE, when=1_700_000_000)
    repository.tag("inner", commit, annotated=True, when=1_700_000_010)
    repository.tag("outer", "refs/tags/inner", annotated=True, when=1_700_000_020)
    release = await provider.resolve(REPO, "outer", commit=commit)
    assert (release.commit, release.file) == (commit, FILE)
    assert release.published == datetime.fromtimestamp(1_700_000_020, tz=UTC)


async def test_a_tag_with_slashes_is_a_tag(provider: GitProvider, repository: Repository) -> None:
    commit = repository.release("rel/2026/1", FILE)
    assert (await provider.resolve(REPO, "rel/2026/1")).commit == commit


async def test_a_pinned_commit_that_the_tag_left_is_refused(
    provider: GitProvider, repository: Repository
) -> None:
    old = repository.release("v1", FILE)
    new = repository.release("v1", b"other\n", when=1_700_000_001)
    with pytest.raises(TagMoved, match="check who moved it") as caught:
        await provider.resolve(REPO, "v1", commit=old)
    assert (caught.value.pinned, caught.value.actual) == (old, new)
    assert caught.value.reason == "TagMoved"


async def test_what_is_missing_is_named(provider: GitProvider, repository: Repository) -> None:
    repository.tag("empty", repository.commit({"README": b"x"}))
    with pytest.raises(RepositoryNotFound, match="acme/other does not exist or is private"):
        await provider.resolve("acme/other", "v1")
    with pytest.raises(TagNotFound, match="acme/app has no tag v9"):
        await provider.resolve(REPO, "v9")
    with pytest.raises(ConfigFileNotFound, match=r"no service-config\.yml .* at the tag empty"):
        await provider.resolve(REPO, "empty")


async def test_a_tag_of_something_else_than_a_commit_is_none(
    provider: GitProvider, repository: Repository
) -> None:
    repository.tag("content", repository.blob(b"x"))
    with pytest.raises(TagNotFound, match="points to no commit; tag a commit"):
        await provider.resolve(REPO, "content")


async def test_links_directories_and_submodules_are_not_read(
    provider: GitProvider, repository: Repository
) -> None:
    name = "service-config.yml"
    commit = repository.release("v1", FILE)
    repository.tag("link", repository.commit({"x": b"1"}, links={name: "/etc/passwd"}))
    repository.tag("module", repository.commit({"x": b"1"}, submodules={name: commit}))
    tree = repository.git("rev-parse", f"{commit}^{{tree}}")
    above = repository.git("mktree", data=f"040000 tree {tree}\t{name}\n".encode())
    repository.tag("folder", repository.git("commit-tree", "-m", "m", above))
    for tag, kind in (("link", "symbolic link"), ("module", "submodule"), ("folder", "directory")):
        with pytest.raises(ConfigFileNotRegular, match=f"at the tag {tag} is a {kind}"):
            await provider.resolve(REPO, tag)


async def test_a_file_of_the_largest_size_is_read_and_one_byte_more_is_not(
    provider: GitProvider, repository: Repository
) -> None:
    repository.release("fits", b"x" * 262144)
    repository.release("beyond", b"x" * 262145)
    repository.release("far", b"x" * 3_000_000)
    assert len((await provider.resolve(REPO, "fits")).file) == 262144
    for tag in ("beyond", "far"):
        with pytest.raises(FileTooLarge, match="larger than 262144 bytes"):
            await provider.resolve(REPO, tag)


async def test_a_server_without_filters_is_read_all_the_same(
    provider: GitProvider, repository: Repository
) -> None:
    repository.git("config", "uploadpack.allowFilter", "false")
    repository.release("v1", FILE)
    repository.release("far", b"x" * 3_000_000)
    assert (await provider.resolve(REPO, "v1")).file == FILE
    with pytest.raises(FileTooLarge):
        await provider.resolve(REPO, "far")
    latest = await provider.latest(REPO)
    assert latest is not None


async def test_the_first_of_several_names_counts(server: GitServer, repository: Repository) -> None:
    repository.tag("both", repository.commit({"a.yml": b"a", "b.yml": b"b"}))
    repository.tag("second", repository.commit({"b.yml": b"b"}))
    provider = GitProvider(over_http(server, file_names=("a.yml", "b.yml")))
    assert (await provider.resolve(REPO, "both")).file_name == "a.yml"
    assert (await provider.resolve(REPO, "second")).file_name == "b.yml"


async def test_nothing_of_a_hostile_repository_is_run_or_followed(
    provider: GitProvider, repository: Repository, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    files = {
        "service-config.yml": FILE,
        ".gitmodules": b'[submodule "a"]\n\tpath = a\n\turl = ext::sh -c "touch /x"\n',
        ".gitattributes": b"* filter=evil diff=evil\n",
    }
    repository.tag("v1", repository.commit(files))
    repository.git("config", "core.fsmonitor", f"touch {mark}")
    repository.git("config", "uploadpack.packObjectsHook", f"touch {mark}; false")
    hooks = repository.path / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("post-checkout", "reference-transaction", "post-index-change"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {mark}\n")
        (hooks / name).chmod(0o755)
    assert (await provider.resolve(REPO, "v1")).file == FILE
    assert not mark.exists()


async def test_the_environment_does_not_reach_git(
    provider: GitProvider, repository: Repository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    commit = repository.release("v1", FILE)
    (tmp_path / ".gitconfig").write_text("[core]\n\tabbrev = nonsense\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_DIR", "/nonexistent")
    monkeypatch.setenv("GIT_CONFIG_COUNT", "nonsense")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert (await provider.resolve(REPO, "v1")).commit == commit


@pytest.mark.parametrize("repo", ["acme", "acme/../app", "-o/app", "acme/app.git", "a/b/c", "/app"])
async def test_a_name_that_is_no_repository_asks_nobody(server: GitServer, repo: str) -> None:
    provider = GitProvider(over_http(server))
    with pytest.raises(NameInvalid, match="owner/name"):
        await provider.resolve(repo, "v1")
    with pytest.raises(NameInvalid):
        await provider.latest(repo)
    assert server.requests == []


async def test_names_of_tags_and_commits_are_checked_first(server: GitServer) -> None:
    provider = GitProvider(over_http(server))
    with pytest.raises(NameInvalid, match="no name of a tag"):
        await provider.resolve(REPO, "--upload-pack=x")
    with pytest.raises(NameInvalid, match="40 hexadecimal digits"):
        await provider.resolve(REPO, "v1", commit="HEAD")
    assert server.requests == []


async def test_the_latest_release_is_the_tag_with_the_last_date(
    provider: GitProvider, repository: Repository
) -> None:
    assert await provider.latest(REPO) is None
    repository.release("v1.9", FILE, when=1_700_000_100)
    commit = repository.release("v1.10", FILE, when=1_700_000_000)
    latest = await provider.latest(REPO)
    assert latest is not None
    assert latest.tag == "v1.9"
    repository.tag("v2", commit, annotated=True, when=1_700_000_200)
    latest = await provider.latest(REPO)
    assert latest is not None
    assert (latest.tag, latest.commit) == ("v2", commit)
    assert latest.published == datetime.fromtimestamp(1_700_000_200, tz=UTC)


async def test_of_two_tags_of_one_moment_the_higher_version_is_the_latest(
    provider: GitProvider, repository: Repository
) -> None:
    for tag in ("v1.9", "v1.10", "v1.2"):
        repository.release(tag, FILE)
    latest = await provider.latest(REPO)
    assert latest is not None
    assert latest.tag == "v1.10"


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
    host = server.base.removeprefix("http://")
    repository.release("v1", FILE)
    with pytest.raises(SourceRefused, match="setting allow_private"):
        await GitProvider(over_http(server, allow_private=())).resolve(REPO, "v1")
    with pytest.raises(SourceRefused, match="setting plain_http"):
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
    with pytest.raises(SourceUnauthorized, match="has to renew it") as caught:
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
async def test_what_a_server_answers_has_its_meaning(
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
    with pytest.raises(SourceUnavailable, match="did not answer for acme/app") as caught:
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
    while not server.requests:
        await asyncio.sleep(0)
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
    with pytest.raises(SourceRefused, match="raise max_fetch_bytes"):
        await provider.resolve(REPO, "v1")


async def test_a_repository_with_other_object_ids_is_refused(
    provider: GitProvider, repositories: Repositories
) -> None:
    other = repositories.create("acme/sha256", "--object-format=sha256")
    other.release("v1", FILE)
    with pytest.raises(SourceRefused, match="SHA-256 objects"):
        await provider.resolve("acme/sha256", "v1")


async def test_a_directory_does_not_lead_out_of_its_base(
    repositories: Repositories, tmp_path: Path
) -> None:
    outside = Repositories(tmp_path / "outside").create("x/app")
    outside.release("v1", FILE)
    (repositories.path / "acme").mkdir(parents=True)
    (repositories.path / "acme" / "app.git").symlink_to(outside.path)
    provider = GitProvider(SourceSettings(kind=SourceKind.GIT, base=str(repositories.path)))
    with pytest.raises(SourceRefused, match="leads out of the directory"):
        await provider.resolve(REPO, "v1")


async def test_a_working_copy_in_the_directory_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "base" / "acme" / "app"
    path.mkdir(parents=True)
    repository = Repository(path)
    repository.git("init", "--quiet")
    repository.release("v1", FILE)
    provider = GitProvider(SourceSettings(kind=SourceKind.GIT, base=str(tmp_path / "base")))
    assert (await provider.resolve(REPO, "v1")).file == FILE


async def test_ssh_calls_the_checked_address_and_reads_no_configuration(
    repositories: Repositories,
    repository: Repository,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stand-in of the program ssh notes its arguments and starts git's server here."""
    commit = repository.release("v1", FILE)
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    ssh = bin_ / "ssh"
    ssh.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/arguments\n'
        f'cd {repositories.path} && eval "git-upload-pack .$(printf %s "$2" >/dev/null; '
        'for last; do :; done; printf %s "$last" | sed "s/^git-upload-pack //")"\n'
    )
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_}:{os.environ['PATH']}")

    async def resolver(host: str) -> tuple[str, ...]:
        return ("203.0.113.7",)

    hosts = tmp_path / "known_hosts"
    settings = SourceSettings(
        kind=SourceKind.GIT,
        base="ssh://git@git.example.test:2222",
        known_hosts_file=hosts,
        ssh_key_file=tmp_path / "key",
    )
    guard = Guard(allow_private=frozenset({"git.example.test"}), resolver=resolver)
    release = await GitProvider(settings, guard=guard).resolve(REPO, "v1")
    assert release.commit == commit
    arguments = (tmp_path / "arguments").read_text().splitlines()
    assert arguments[:4] == ["-F", "/dev/null", "-a", "-x"]
    assert "HostName=203.0.113.7" in arguments
    assert "HostKeyAlias=[git.example.test]:2222" in arguments
    assert "StrictHostKeyChecking=yes" in arguments
    assert f"UserKnownHostsFile={hosts}" in arguments
    assert f"IdentityFile={tmp_path / 'key'}" in arguments
    with pytest.raises(SourceRefused, match="setting allow_private"):
        await GitProvider(settings, guard=Guard(resolver=resolver)).resolve(REPO, "v1")
