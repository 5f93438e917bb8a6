"""What differs between two releases: what was released, requested, written and measured.

Pure: ``cloister config diff``, the API and the dashboard get the same changes from the same two
sides. Whatever is in a side is compared, so that a field that a later release adds to the file or
to the measurement document is compared without a change here.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from cloister_crds.config.model import ServiceConfig

__all__ = [
    "MAX_CHANGES",
    "Difference",
    "FieldChange",
    "Side",
    "compare",
    "file_tree",
    "markdown",
    "text",
]

MAX_CHANGES: Final = 1000
"""Most changes that a difference lists."""
ORDER: Final = "order"
"""Name of the change of a list whose named entries are the same, in another order."""
ABSENT: Final = object()


@dataclass(frozen=True, slots=True)
class Side:
    """One of two releases; an empty part is not known, and is not compared."""

    release: Mapping[str, Any] = field(default_factory=dict)
    """release: where the file is from, such as repo, tag, commit and configDigest."""
    request: Mapping[str, Any] = field(default_factory=dict)
    """request: deploy fields, as of `cloister_crds.kinds.request.RequestRecord`."""
    file: Mapping[str, Any] = field(default_factory=dict)
    """file: the configuration file with its defaults, by `file_tree`."""
    measurement: Mapping[str, Any] = field(default_factory=dict)
    """measurement: the measurement document."""


PARTS: Final = ("release", "request", "file", "measurement")
"""Parts of a side, in the order of a difference."""
TITLES: Final = {
    "release": "Release",
    "request": "Deploy settings",
    "file": "Configuration file",
    "measurement": "Measurement",
}


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field whose value differs."""

    part: str
    """Part of the sides, of `PARTS`."""
    field: str
    """Path in it, such as ``containers[web].image``."""
    before: str | None
    """The value as JSON; None if the field is new."""
    after: str | None
    """The value as JSON; None if the field is gone."""


@dataclass(frozen=True, slots=True)
class Difference:
    """What differs between two sides."""

    changes: tuple[FieldChange, ...]
    """The changes, at most `MAX_CHANGES`, by part and in the order of the fields."""
    more: int
    """Further changes, which are not listed."""
    not_compared: tuple[str, ...]
    """Parts that one side or both do not have."""


def file_tree(config: ServiceConfig) -> dict[str, Any]:
    """Return a configuration file as the part `Side.file`: the defaults of the format filled in."""
    tree: dict[str, Any] = config.model_dump(mode="json")
    return tree


def compare(before: Side, after: Side) -> Difference:
    """Return what differs between two sides."""
    changes: list[FieldChange] = []
    not_compared, more = [], 0
    for part in PARTS:
        old, new = getattr(before, part), getattr(after, part)
        if not old or not new:
            not_compared.append(part)
            continue
        found = _changes(part, "", old, new)
        changes += islice(found, MAX_CHANGES - len(changes))
        more += sum(1 for _ in found)
    return Difference(tuple(changes), more, tuple(not_compared))


def _changes(part: str, path: str, old: Any, new: Any) -> Iterator[FieldChange]:
    """Yield the changes below a path; a difference of any kind yields one at least."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in (*old, *(each for each in new if each not in old)):
            below = f"{path}.{key}" if path else str(key)
            yield from _changes(part, below, old.get(key, ABSENT), new.get(key, ABSENT))
        return
    olds, news = _by_name(old), _by_name(new)
    if olds is not None and news is not None:
        for key in (*olds, *(each for each in news if each not in olds)):
            below = f"{path}[{key}]"
            yield from _changes(part, below, olds.get(key, ABSENT), news.get(key, ABSENT))
        if olds.keys() == news.keys() and [*olds] != [*news]:
            yield FieldChange(part, f"{path}.{ORDER}", _written([*olds]), _written([*news]))
        return
    before, after = _written(old), _written(new)
    if before != after:
        yield FieldChange(part, path, before, after)


def _by_name(value: Any) -> dict[str, Any] | None:
    """Return the entries of a list by their names; None if it is not a list of them."""
    if not isinstance(value, (list, tuple)):
        return None
    if not all(isinstance(each, Mapping) and isinstance(each.get("name"), str) for each in value):
        return None
    named = {each["name"]: each for each in value}
    return named if len(named) == len(value) else None


def _written(value: Any) -> str | None:
    """Return a value as JSON in one line; None where there is none."""
    if value is ABSENT:
        return None
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def text(difference: Difference) -> str:
    """Return a difference as lines for a terminal, which no value can add to or color."""
    lines = []
    for part in PARTS:
        found = [each for each in difference.changes if each.part == part]
        if found:
            lines.append(f"{TITLES[part]}:")
            lines += [f"  {_sign(each)} {_plain(_sentence(each))}" for each in found]
    return "\n".join([*(lines or ["Nothing differs."]), *_remarks(difference)])


def markdown(difference: Difference) -> str:
    """Return a difference as Markdown, such as for a pull request."""
    blocks = []
    for part in PARTS:
        found = [each for each in difference.changes if each.part == part]
        if found:
            rows = [
                f"| {_cell(each.field)} | {_cell(each.before)} | {_cell(each.after)} |"
                for each in found
            ]
            head = f"### {TITLES[part]}\n\n| field | before | after |\n|---|---|---|\n"
            blocks.append(head + "\n".join(rows))
    return "\n\n".join([*(blocks or ["Nothing differs."]), *_remarks(difference)])


def _remarks(difference: Difference) -> Iterator[str]:
    """Yield what a difference does not show."""
    if difference.more:
        yield f"{difference.more} further changes are not listed."
    if difference.not_compared:
        names = ", ".join(TITLES[each].lower() for each in difference.not_compared)
        yield f"Not compared, as one side does not have it: {names}."


def _sign(change: FieldChange) -> str:
    if change.before is None:
        return "+"
    return "-" if change.after is None else "~"


def _sentence(change: FieldChange) -> str:
    values = [each for each in (change.before, change.after) if each is not None]
    return f"{change.field}: {' -> '.join(values)}"


def _plain(words: str) -> str:
    """Return words without characters that a terminal or a reader's eyes act on."""
    return "".join(each if each.isprintable() else f"\\U{ord(each):08x}" for each in words)


_ESCAPED: Final = {ord(each): f"&#{ord(each)};" for each in "&<>\\`*_[]|~$@"}
"""Entities of the characters that Markdown or HTML acts on."""


def _cell(words: str | None) -> str:
    """Return words as code in a cell of a table, whatever characters they have."""
    return "-" if words is None else f"<code>{_plain(words).translate(_ESCAPED)}</code>"
