"""How names of repositories are compared: as the source that has them compares them."""

from dataclasses import dataclass

__all__ = ["RepositoryNames"]


@dataclass(frozen=True, slots=True)
class RepositoryNames:
    """How names of repositories are compared; they are shown as they were written."""

    ignore_case: bool = False
    """Whether ``Acme/web`` and ``acme/web`` are one repository, as at GitHub and Gitea."""

    def key(self, repo: str) -> str:
        """Return what all names of one repository have in common."""
        return repo.lower() if self.ignore_case else repo

    def same(self, one: str, other: str) -> bool:
        """Return whether two names are those of one repository."""
        return self.key(one) == self.key(other)
