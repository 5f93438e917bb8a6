"""Plain git: a directory of repositories, and what holds for each kind of server."""

import os
import shutil
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cloister_clients.address_guard import Guard
from cloister_clients.sources import (
    ConfigFileNotFound,
    ConfigFileNotRegular,
    FileTooLarge,
    RepositoryNotFound,
    SourceKind,
    SourceRefused,
    SourceSettings,
    TagMoved,
    TagNotFound,
)
from cloister_clients.sources.git.provider import GitProvider
from tests.support.servers.git import Repositories, Repository

pytestmark = pytest.mark.skipif(
    shutil.which("prlimit") is None, reason="git runs under limits of prlimit, of Linux"
)

FILE = b"cvm-version: 0.10.0\n"
REPO = "acme/app"


@pytest.fixture
def repositories(tmp_path: Path) -> Repositories:
    return Repositories(tmp_path / "repositories")


@pytest.fixture
def repository(repositories: Repositories) -> Repository:
    return repositories.create(REPO)


@pytest.fixture
async def provider(repositories: Repositories) -> AsyncIterator[GitProvider]:
    provider = GitProvider(SourceSettings(kind=SourceKind.GIT, base=str(repositories.path)))
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
    with pytest.raises(TagMoved, match="check who moved the tag") as caught:
        await provider.resolve(REPO, "v1", commit=old)
    assert (caught.value.pinned, caught.value.actual) == (old, new)
    assert caught.value.reason == "TagMoved"


@pytest.mark.parametrize("annotated", [False, True])
async def test_a_kept_commit_is_read_after_the_tag_has_left_it(
    provider: GitProvider, repository: Repository, *, annotated: bool
) -> None:
    old = repository.release("v1", FILE, when=1_700_000_001)
    still = await provider.resolve(REPO, "v1", commit=old, kept=True)
    assert (still.commit, still.tag_commit, still.file) == (old, old, FILE)
    new = repository.release("moved", b"other\n", when=1_700_000_009)
    repository.tag("v1", new, annotated=annotated)
    kept = await provider.resolve(REPO, "v1", commit=old, kept=True)
    assert (kept.commit, kept.tag_commit, kept.file) == (old, new, FILE)
    assert kept.published == datetime.fromtimestamp(1_700_000_001, tz=UTC)


async def test_a_kept_commit_that_is_gone_is_a_tag_that_moved(
    provider: GitProvider, repository: Repository
) -> None:
    new = repository.release("v1", FILE)
    with pytest.raises(TagMoved) as caught:
        await provider.resolve(REPO, "v1", commit="a" * 40, kept=True)
    assert (caught.value.pinned, caught.value.actual) == ("a" * 40, new)
    with pytest.raises(TagNotFound):
        await provider.resolve(REPO, "v9", commit=new, kept=True)


async def test_what_is_missing_is_named(provider: GitProvider, repository: Repository) -> None:
    repository.tag("empty", repository.commit({"README": b"x"}))
    with pytest.raises(RepositoryNotFound, match="acme/other does not exist or is private"):
        await provider.resolve("acme/other", "v1")
    with pytest.raises(TagNotFound, match="acme/app has no tag v9"):
        await provider.resolve(REPO, "v9")
    with pytest.raises(ConfigFileNotFound, match=r"no service-config\.yml .* at the tag empty"):
        await provider.resolve(REPO, "empty")


async def test_a_tag_of_something_else_than_a_commit_is_not_found(
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


async def test_the_newest_tags_are_listed_with_their_commits(
    provider: GitProvider, repository: Repository
) -> None:
    assert await provider.releases(REPO, 3) == ()
    old = repository.release("v1", FILE, when=1_700_000_000)
    new = repository.release("v2", FILE + b"\n", when=1_700_000_100)
    repository.tag("again", old, annotated=True, when=1_700_000_200)
    repository.tag("twice", "refs/tags/again", annotated=True, when=1_700_000_300)
    listed = await provider.releases(REPO, 9)
    assert [(each.tag, each.commit) for each in listed] == [
        ("twice", old),
        ("again", old),
        ("v2", new),
        ("v1", old),
    ]
    assert not any(each.prerelease for each in listed)
    assert listed[2].published == datetime.fromtimestamp(1_700_000_100, tz=UTC)
    assert [each.tag for each in await provider.releases(REPO, 1)] == ["twice"]
    with pytest.raises(RepositoryNotFound):
        await provider.releases("acme/other", 3)


async def test_of_two_tags_of_one_moment_the_higher_version_is_the_latest(
    provider: GitProvider, repository: Repository
) -> None:
    for tag in ("v1.9", "v1.10", "v1.2"):
        repository.release(tag, FILE)
    latest = await provider.latest(REPO)
    assert latest is not None
    assert latest.tag == "v1.10"


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
    with pytest.raises(SourceRefused, match="setting allowPrivate"):
        await GitProvider(settings, guard=Guard(resolver=resolver)).resolve(REPO, "v1")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
async def test_a_repository_of_another_user_is_read(
    provider: GitProvider, repository: Repository
) -> None:
    commit = repository.release("v1", FILE)
    for path in (repository.path, *repository.path.rglob("*")):
        os.chown(path, 12345, 12345)
    assert (await provider.resolve(REPO, "v1")).commit == commit


async def test_a_tag_without_a_date_has_that_of_its_commit(
    provider: GitProvider, repository: Repository
) -> None:
    commit = repository.release("light", FILE, when=1_700_000_007)
    text = f"object {commit}\ntype commit\ntag old\n\nold\n".encode()
    made = repository.git("hash-object", "-t", "tag", "-w", "--stdin", "--literally", data=text)
    repository.tag("old", made)
    release = await provider.resolve(REPO, "old")
    assert release.published == datetime.fromtimestamp(1_700_000_007, tz=UTC)


async def test_a_date_beyond_all_dates_is_the_last_one(
    provider: GitProvider, repository: Repository
) -> None:
    commit = repository.release("light", FILE)
    text = repository.git("cat-file", "commit", commit).replace("1700000000", "99999999999999")
    data = text.encode() + b"\n"
    made = repository.git("hash-object", "-t", "commit", "-w", "--stdin", "--literally", data=data)
    repository.tag("far", made)
    release = await provider.resolve(REPO, "far")
    assert release.published.year == 9999
    latest = await provider.latest(REPO)
    assert latest is not None
    assert latest.tag == "far"


async def test_a_list_of_tags_beyond_all_measure_is_refused(
    provider: GitProvider, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.release("v1", FILE)
    monkeypatch.setattr("cloister_clients.sources.git.provider.MAX_LISTING_BYTES", 20)
    with pytest.raises(SourceRefused, match="list of tags of acme/app is beyond 20 bytes"):
        await provider.latest(REPO)
