"""Storages of kopf that hold nothing: what it would write into objects, it does not even compute.

By default kopf copies each object of each event several times, to compare it with what it stored
in the object's annotations. Our event handlers need no such state, so it is always empty, and
nothing may ever be written for it.
"""

from collections.abc import Iterable
from typing import Any

import kopf
from typing_extensions import override

__all__ = ["NullDiffBaseStorage", "NullProgressStorage"]


class NullDiffBaseStorage(kopf.DiffBaseStorage):
    """A diff base under which all objects are equal."""

    @override
    def build(
        self, *, body: kopf.Body, extra_fields: Iterable[Any] | None = None
    ) -> kopf.BodyEssence:
        """Return the part of an object that is compared: nothing."""
        return kopf.BodyEssence()

    @override
    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        """Return what was stored: nothing."""
        return None

    @override
    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Store nothing."""


class NullProgressStorage(kopf.ProgressStorage):
    """A progress storage without content: handlers for events have no progress."""

    @override
    def fetch(self, *, key: Any, body: kopf.Body) -> Any:
        """Return what was stored: nothing."""
        return None

    @override
    def store(self, *, key: Any, record: Any, body: kopf.Body, patch: kopf.Patch) -> None:
        """Store nothing."""

    @override
    def purge(self, *, key: Any, body: kopf.Body, patch: kopf.Patch) -> None:
        """Remove nothing."""

    @override
    def touch(self, *, body: kopf.Body, patch: kopf.Patch, value: str | None) -> None:
        """Change nothing."""

    @override
    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        """Return the compared part unchanged."""
        return essence
