"""What an update changes."""

from typing import Literal

from cloister_api.schemas.forms import Count, Omittable, ResponseBody


class ComparedEnclaveResponse(ResponseBody):
    """An enclave of a comparison."""

    enclave: str
    """Its name."""
    tag: str
    """Its tag."""
    commit: str
    """Commit of the tag."""


class ChangeResponse(ResponseBody):
    """A field whose value differs."""

    part: Literal["release", "request", "file", "measurement"]
    """What it is a field of: the release, the deploy settings, the configuration file with its
    defaults, or the measurement document."""
    field: str
    """Path in the part, such as `containers[web].image`."""
    before: Omittable[str] = None
    """The value of what serves, as JSON; absent if the field is new."""
    after: Omittable[str] = None
    """The value of the update, as JSON; absent if the field is gone."""


class UpdateDiffResponse(ResponseBody):
    """What an update changes; without an update only `has_update` is there."""

    has_update: bool
    """Whether there is one, staged, on its way or failed."""
    reason: Omittable[str] = None
    """Why there is nothing to compare; absent where there is."""
    serving: Omittable[ComparedEnclaveResponse] = None
    """What serves; absent if nothing does."""
    candidate: Omittable[ComparedEnclaveResponse] = None
    """The enclave of the update; absent while there is none."""
    changes: Omittable[list[ChangeResponse]] = None
    """The changes, at most 1000; absent without both enclaves."""
    more_changes: Omittable[Count] = None
    """Further changes, which are not listed."""
    not_compared: Omittable[list[str]] = None
    """Parts that one of the two has not published, yet or at all."""
    markdown: Omittable[str] = None
    """The changes as Markdown, such as for a pull request."""
