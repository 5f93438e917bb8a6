"""Chooses the provider that the settings name; the programs call it once, at their start."""

from typing import assert_never

from cloister_clients.sources.git.provider import GitProvider
from cloister_clients.sources.gitea import GiteaProvider
from cloister_clients.sources.github import GitHubProvider
from cloister_clients.sources.release import SourceProvider
from cloister_clients.sources.settings import SourceKind, SourceSettings

__all__ = ["provider_from"]


def provider_from(settings: SourceSettings) -> SourceProvider:
    """Build the provider of these settings.

    Raises
    ------
    OSError
        When the file of certificate authorities cannot be read.
    """
    match settings.kind:
        case SourceKind.GIT:
            return GitProvider(settings)
        case SourceKind.GITHUB:
            return GitHubProvider(settings)
        case SourceKind.GITEA:
            return GiteaProvider(settings)
        case _:
            assert_never(settings.kind)
