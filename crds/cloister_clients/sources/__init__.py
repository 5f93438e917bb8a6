"""Releases: from a repository's name and a tag to the bytes of its configuration file.

The rest of Cloister uses the names below; which provider is used is a setting.
"""

from cloister_clients.sources.errors import (
    ConfigFileNotFound,
    ConfigFileNotRegular,
    FileTooLarge,
    NameInvalid,
    RateLimited,
    ReleaseNotPublished,
    RepositoryNotFound,
    SourceError,
    SourceRefused,
    SourceUnauthorized,
    SourceUnavailable,
    TagMoved,
    TagNotFound,
)
from cloister_clients.sources.provider import check_prerequisites, provider_from
from cloister_clients.sources.release import (
    ListedRelease,
    PublishedRelease,
    PublishedTag,
    SourceProvider,
)
from cloister_clients.sources.settings import SourceKind, SourceSettings

__all__ = [
    "ConfigFileNotFound",
    "ConfigFileNotRegular",
    "FileTooLarge",
    "ListedRelease",
    "NameInvalid",
    "PublishedRelease",
    "PublishedTag",
    "RateLimited",
    "ReleaseNotPublished",
    "RepositoryNotFound",
    "SourceError",
    "SourceKind",
    "SourceProvider",
    "SourceRefused",
    "SourceSettings",
    "SourceUnauthorized",
    "SourceUnavailable",
    "TagMoved",
    "TagNotFound",
    "check_prerequisites",
    "provider_from",
]
