"""Chooses the provider that the settings name, and checks that it can work here.

The programs call both once, at their start.
"""

import shutil
from typing import assert_never

import httpx

from cloister_clients.settings import SettingsError, require_file
from cloister_clients.sources.forges import GiteaProvider, GitHubProvider
from cloister_clients.sources.git.provider import GitProvider
from cloister_clients.sources.release import SourceProvider
from cloister_clients.sources.settings import SourceKind, SourceSettings

__all__ = ["check_prerequisites", "provider_from"]

GIT_PROGRAMS = {"git": "git", "prlimit": "util-linux"}
"""Program that git sources need -> package of most systems that has it."""
SSH_PROGRAM = {"ssh": "openssh-client"}


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


def check_prerequisites(settings: SourceSettings) -> None:
    """Check that the programs and files of a source are there.

    Without them the first lookup would fail, and blame the release that it was for.

    Raises
    ------
    SettingsError
        When one is missing; names it and the setting that needs it.
    """
    for program, package in _programs(settings).items():
        if shutil.which(program) is None:
            raise SettingsError(
                f"sources.kind is git and sources.base is {settings.base}, which need the program "
                f"{program}: install the package {package} next to Cloister, or use its image"
            )
    require_file("sources.tokenFile", settings.token_file)
    require_file("sources.sshKeyFile", settings.ssh_key_file)
    require_file("sources.knownHostsFile", settings.known_hosts_file)
    require_file("sources.caFile", settings.ca_file)


def _programs(settings: SourceSettings) -> dict[str, str]:
    if settings.kind is not SourceKind.GIT:
        return {}
    over_ssh = httpx.URL(settings.address).scheme == "ssh"
    return GIT_PROGRAMS | (SSH_PROGRAM if over_ssh else {})
