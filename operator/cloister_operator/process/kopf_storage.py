"""A framework that keeps no notes: what it would write into objects, it does not even work out.

By its own means the framework copies each object of each event several times, to compare it with
what it noted in the object before. Our handlers take events as they come and note nothing, so the
notes are always empty, and nothing may ever be written for them.
"""

from collections.abc import Iterable
from typing import Any

import kopf
from typing_extensions import override

__all__ = ["NullDiffBaseStorage", "NullProgressStorage"]


class NullDiffBaseStorage(kopf.DiffBaseStorage):
    """Takes all objects for equal."""

    @override
    def build(
        self, *, body: kopf.Body, extra_fields: Iterable[Any] | None = None
    ) -> kopf.BodyEssence:
        """Answer what of an object is compared: nothing."""
        return kopf.BodyEssence()

    @override
    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        """Answer what was noted: nothing."""
        return None

    @override
    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Note nothing."""


class NullProgressStorage(kopf.ProgressStorage):
    """Keeps no progress of handlers: those for events have none."""

    @override
    def fetch(self, *, key: Any, body: kopf.Body) -> Any:
        """Answer what was noted: nothing."""
        return None

    @override
    def store(self, *, key: Any, record: Any, body: kopf.Body, patch: kopf.Patch) -> None:
        """Note nothing."""

    @override
    def purge(self, *, key: Any, body: kopf.Body, patch: kopf.Patch) -> None:
        """Remove nothing."""

    @override
    def touch(self, *, body: kopf.Body, patch: kopf.Patch, value: str | None) -> None:
        """Change nothing."""

    @override
    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        """Answer what of an object is compared as it is."""
        return essence
