"""The file as a tree of nodes with their places, before any rule of the format.

`parse` calls it. It takes plain YAML only: what can mean two things (duplicate keys), repeat or
merge parts (anchors, aliases, merge keys), change types (tags) or grow without bounds is a
problem. It reads events instead of composing, so that a hostile file is left at the first event
that is too much. Source: YAML 1.2.2, chapter 3 (representation graph and its streams).
"""

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import yaml

from cloister_crds.problems import Problem

__all__ = [
    "MAX_DEPTH",
    "MAX_NODES",
    "Document",
    "Mapping",
    "Node",
    "Scalar",
    "Sequence",
    "join",
    "read_document",
]

MAX_DEPTH: Final = 64
"""Most collections within each other."""
MAX_NODES: Final = 16_384
"""Most nodes of a file, keys included."""
MAX_SHOWN: Final = 64
"""Characters of a key that a path shows."""

LOADER: Final[Any] = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
"""The event parser; the one in C is some forty times as fast."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value, not yet of a type."""

    text: str
    plain: bool
    """Whether it is without quotes and not a block, so that its text decides its type."""
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list."""

    items: "list[Node]"
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Mapping:
    """A map; each key is a scalar and is unique."""

    entries: "list[tuple[Scalar, Node]]"
    line: int
    column: int


Node: TypeAlias = Scalar | Sequence | Mapping


@dataclass(frozen=True, slots=True)
class Document:
    """What was read."""

    root: Node | None
    """The value of the document; None when it cannot be validated further."""
    problems: tuple[Problem, ...]


@dataclass(slots=True)
class Frame:
    """A collection that is being filled."""

    node: Sequence | Mapping
    path: str
    key: Scalar | None = None
    """The key that waits for its value (maps)."""
    dropped: bool = False
    """Whether the next value is left out, its key being a problem already."""
    seen: dict[str, int] = field(default_factory=dict)
    """Keys so far, with their lines."""


class Unreadable(Exception):  # noqa: N818 - a way out of the reading, caught in this module
    """The rest of the document cannot be read."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def read_document(raw: bytes, *, max_bytes: int) -> Document:
    """Read a file into nodes.

    Parameters
    ----------
    raw
        The bytes of the file, whatever they are.
    max_bytes
        Most bytes that are read.

    Returns
    -------
    Document
        The tree and the problems of the text itself. It never raises.
    """
    builder = Builder()
    try:
        text = _decode(raw, max_bytes)
        with closing(_events(text)) as events:
            for event in events:
                builder.take(event)
    except Unreadable as end:
        return Document(None, (*builder.problems, end.problem))
    except yaml.YAMLError as error:
        return Document(None, (*builder.problems, _syntax_problem(error, raw)))
    if builder.root is None:
        message = "the file is empty: write at least cvm-version, cpus, memory, containers, shim"
        builder.problems.append(Problem("", "EmptyDocument", message, 1, 1))
    return Document(builder.root, tuple(builder.problems))


def join(path: str, key: str) -> str:
    """Extend a path by a key of a map.

    Parameters
    ----------
    path
        The path of the map, empty for the document.
    key
        The key; one that is not a plain word is quoted, a long one cut.

    Returns
    -------
    str
        Such as ``shim.paths`` or ``containers[0].tmpfs["/tmp"]``.
    """
    shown = key if len(key) <= MAX_SHOWN else key[:MAX_SHOWN] + "…"
    if shown.replace("-", "_").isidentifier() and shown.isascii():
        return f"{path}.{shown}" if path else shown
    quoted = shown.encode("unicode_escape").decode("ascii").replace('"', '\\"')
    return f'{path}["{quoted}"]'


def _decode(raw: bytes, max_bytes: int) -> str:
    if len(raw) > max_bytes:
        message = f"the file has more than {max_bytes} bytes, no more are read: shorten it"
        raise Unreadable(Problem("", "FileTooLarge", message, 1, 1))
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line, column = _place_of(raw, error.start)
        message = "the file is not UTF-8 here: save it as UTF-8"
        raise Unreadable(Problem("", "NotUtf8", message, line, column)) from error


def _place_of(raw: bytes, position: int) -> tuple[int, int]:
    before = raw[:position]
    start = before.rfind(b"\n") + 1
    return before.count(b"\n") + 1, len(before[start:].decode("utf-8", "replace")) + 1


def _events(text: str) -> Generator[Any, None, None]:
    loader = LOADER(text)
    try:
        while loader.check_event():
            yield loader.get_event()
    finally:
        loader.dispose()


def _syntax_problem(error: yaml.YAMLError, raw: bytes) -> Problem:
    """Turn an error of the YAML library into a problem with a place."""
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        what = error.problem or "it is not YAML"
        line, column = (mark.line + 1, mark.column + 1) if mark else (None, None)
    else:
        what = str(getattr(error, "reason", "") or "a character that YAML does not allow")
        line, column = _place_of(raw, int(getattr(error, "position", 0) or 0))
    message = f"the YAML cannot be read from here on: {what}; correct it, then validate again"
    return Problem("", "InvalidYaml", message, line, column)


class Builder:
    """Puts nodes together out of events."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.root: Node | None = None
        self._frames: list[Frame] = []
        self._nodes = 0
        self._documents = 0

    def take(self, event: yaml.Event) -> None:
        """Take the next event.

        Raises
        ------
        Unreadable
            When what follows must not or cannot be read.
        """
        match event:
            case yaml.DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    message = "a second document begins here: a file has exactly one, remove it"
                    raise Unreadable(self._problem(event, "SeveralDocuments", message))
            case yaml.AliasEvent():
                message = f"the alias *{event.anchor} is not allowed: write the value out"
                self.problems.append(self._problem(event, "AliasNotAllowed", message))
                self._place(Scalar("", True, *_place(event)), event)
            case yaml.ScalarEvent():
                self._check_properties(event)
                plain = event.style is None or event.style == ""
                self._place(Scalar(event.value, plain, *_place(event)), event)
            case yaml.SequenceStartEvent():
                self._check_properties(event)
                self._open(Sequence([], *_place(event)), event)
            case yaml.MappingStartEvent():
                self._check_properties(event)
                self._open(Mapping([], *_place(event)), event)
            case yaml.CollectionEndEvent():
                self._frames.pop()
            case _:
                pass  # Begin and end of the stream and of documents carry nothing.

    def _problem(self, event: yaml.Event, code: str, message: str) -> Problem:
        return Problem(self._path(), code, message, *_place(event))

    def _path(self) -> str:
        """Return the path of the node that comes next."""
        if not self._frames:
            return ""
        frame = self._frames[-1]
        if isinstance(frame.node, Sequence):
            return f"{frame.path}[{len(frame.node.items)}]"
        return join(frame.path, frame.key.text) if frame.key else frame.path

    def _check_properties(self, event: Any) -> None:
        if event.anchor is not None:
            message = f"the anchor &{event.anchor} is not allowed: remove it, write values out"
            self.problems.append(self._problem(event, "AnchorNotAllowed", message))
        if event.tag is not None:
            message = f"the tag {event.tag} is not allowed: remove it, quote what should be text"
            self.problems.append(self._problem(event, "TagNotAllowed", message))

    def _open(self, node: Sequence | Mapping, event: yaml.Event) -> None:
        if len(self._frames) >= MAX_DEPTH:
            message = f"more than {MAX_DEPTH} collections are nested: flatten them"
            raise Unreadable(self._problem(event, "TooDeep", message))
        path = self._path()
        self._place(node, event)
        self._frames.append(Frame(node, path))

    def _place(self, node: Node, event: yaml.Event) -> None:
        """Attach a node where it belongs."""
        self._nodes += 1
        if self._nodes > MAX_NODES:
            message = f"the file has more than {MAX_NODES} nodes from here on: shorten it"
            raise Unreadable(self._problem(event, "TooManyNodes", message))
        if not self._frames:
            self.root = node
            return
        frame = self._frames[-1]
        if isinstance(frame.node, Sequence):
            frame.node.items.append(node)
        elif frame.key is None:
            self._take_key(frame, node)
        else:
            if not frame.dropped:
                frame.node.entries.append((frame.key, node))
            frame.key = None

    def _take_key(self, frame: Frame, node: Node) -> None:
        """Remember a key until its value arrives."""
        frame.dropped = True
        if not isinstance(node, Scalar):
            frame.key = Scalar("?", plain=True, line=node.line, column=node.column)
            message = "a key must be a word, not a list or a map: write `name: value`"
            problem = Problem(frame.path, "KeyNotText", message, node.line, node.column)
            self.problems.append(problem)
            return
        frame.key = node
        where = join(frame.path, node.text)
        if node.plain and node.text == "<<":
            message = "merge keys (<<) are not allowed: write the values out"
            problem = Problem(where, "MergeKeyNotAllowed", message, node.line, node.column)
            self.problems.append(problem)
        elif node.text in frame.seen:
            message = (
                f"duplicate key, first defined on line {frame.seen[node.text]}: keep one of them"
            )
            self.problems.append(Problem(where, "DuplicateKey", message, node.line, node.column))
        else:
            frame.seen[node.text] = node.line
            frame.dropped = False


def _place(event: yaml.Event) -> tuple[int, int]:
    """Return line and column of an event, both from 1."""
    mark: Any = event.start_mark
    return mark.line + 1, mark.column + 1
