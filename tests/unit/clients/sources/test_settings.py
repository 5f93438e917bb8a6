"""Settings of sources, and the provider that they name."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from cloister_clients.sources import SourceSettings, provider_from
from cloister_clients.sources.forges import GiteaProvider, GitHubProvider
from cloister_clients.sources.git.provider import GitProvider


@pytest.mark.parametrize(
    ("data", "want"),
    [
        ({"kind": "git", "base": "/srv/git/"}, GitProvider),
        ({"kind": "git", "base": "https://git.example.test/x"}, GitProvider),
        ({"kind": "github"}, GitHubProvider),
        ({"kind": "github", "base": "https://ghe.example.test/api/v3"}, GitHubProvider),
        ({"kind": "gitea", "base": "https://gitea.example.test"}, GiteaProvider),
    ],
)
async def test_the_kind_names_the_provider(data: dict[str, Any], want: type) -> None:
    provider = provider_from(SourceSettings.model_validate(data))
    assert type(provider) is want
    await provider.aclose()


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({"kind": "git"}, "does not fit kind git"),
        ({"kind": "git", "base": "relative/path"}, "does not fit kind git"),
        ({"kind": "git", "base": "ext::sh -c x"}, "does not fit kind git|is not an address"),
        ({"kind": "git", "base": "file:///srv"}, "does not fit kind git"),
        ({"kind": "git", "base": "ssh://git@h"}, "knownHostsFile is needed"),
        ({"kind": "git", "base": "https://u:p@h"}, "put the token into tokenFile"),
        ({"kind": "git", "base": "https://h/?x=1"}, "query or a fragment"),
        ({"kind": "git", "base": "https://h\n"}, "is not an address"),
        ({"kind": "gitea"}, "does not fit kind gitea"),
        ({"kind": "gitea", "base": "/srv/git"}, "does not fit kind gitea"),
        ({"kind": "github", "base": "ssh://h"}, "does not fit kind github"),
        ({"kind": "svn"}, "'git', 'github' or 'gitea'"),
        ({"kind": "github", "file_names": ["../x"]}, "file_names"),
        ({"kind": "github", "file_names": []}, "file_names"),
        ({"kind": "github", "username": "a:b"}, "username"),
        ({"kind": "github", "colour": "red"}, "colour"),
        (
            {"kind": "git", "base": "/srv/git", "max_fetch_bytes": 1073741824},
            "raise it to 2147483648, or lower maxFetchBytes",
        ),
    ],
)
def test_what_does_not_fit_is_named(data: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        SourceSettings.model_validate(data)


def test_the_token_is_read_without_white_space(tmp_path: Path) -> None:
    token = tmp_path / "token"
    settings = SourceSettings.model_validate({"kind": "github", "token_file": token})
    token.write_text("abc\n")
    assert settings.read_token() == "abc"
    token.write_text("\n")
    assert settings.read_token() is None
    assert SourceSettings.model_validate({"kind": "github"}).read_token() is None


@pytest.mark.parametrize(
    ("changes", "at_once"),
    [
        ({}, 8),
        ({"concurrency": 4}, 4),
        ({"max_disk_bytes": 512 * 1024**2}, 4),
        ({"max_fetch_bytes": 512 * 1024**2}, 1),
        ({"concurrency": 64, "max_fetch_bytes": 16 * 1024**2}, 32),
    ],
)
def test_all_lookups_together_write_no_more_than_the_disk_allows(
    changes: dict[str, int], at_once: int
) -> None:
    settings = SourceSettings.model_validate({"kind": "git", "base": "/srv/git", **changes})
    assert settings.fetches_at_once == at_once
    assert settings.max_fetch_bytes * 2 * at_once <= settings.max_disk_bytes
