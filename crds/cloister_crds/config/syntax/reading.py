"""The one way in which rules look at nodes: a place, what is there, and what is wrong.

A `Spot` is a node with its path. Its methods read a value of a type or report why it is not one;
None then means "nothing to go on with", so that one mistake is reported once. A `Table` lists
the keys of one map, each with how it is read and what editors show about it.
"""

import difflib
import re
from collections.abc import Callable
from collections.abc import Mapping as MappingOf
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from cloister_crds.config.limits import MAX_PROBLEMS, Rules
from cloister_crds.config.syntax.document import Mapping, Node, Scalar, Sequence, join
from cloister_crds.config.syntax.scalars import ScalarKind, kind_of
from cloister_crds.problems import Problem, Severity

__all__ = ["Field", "ProblemReport", "Section", "Spot", "Table", "read_section", "show"]

MAX_SHOWN: Final = 60
"""Characters of a value that a message shows."""
MAX_GUESSED: Final = 40
"""Characters of an unknown key for which a likely one is searched."""
MAX_GUESSES: Final = 100
"""Unknown words of one file for which likely ones are searched."""
PREDICATES: Final = (
    "is ",
    "has ",
    "needs ",
    "names ",
    "requests ",
    "shares ",
    "adds ",
    "begins ",
    "does ",
)
"""Beginnings of messages that need the field's name in front."""
LAST = re.compile(r"[^.\[]+(?:\[[^\]]*\])*$|[^.]+$")
NUMBER = re.compile(r"(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,18})?")
INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")


class ProblemReport:
    """Collects the problems of one file; holds the rules that it is validated by."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.problems: list[Problem] = []
        self.version: tuple[int, int, int] | None = None
        """Version of the file; None while or when it cannot be read."""
        self.memory: int | None = None
        """Memory of the enclave in bytes; None while or when it cannot be read."""
        self.guesses = 0
        """Unknown words for which a likely one was searched; each takes its time."""
        self.spots: dict[str, tuple[int, int]] = {}
        """Places of all paths that were read, for problems that are found later."""

    def add(self, spot: "Spot", code: str, message: str, severity: Severity) -> None:
        """Add a problem; after the last that fits, nothing.

        A message that begins with a verb is about the field, whose name is put in front.
        """
        line, column = spot.node.line, spot.node.column
        if message.startswith(PREDICATES):
            message = f"{spot.label} {message}"
        self.keep(Problem(spot.path, code, message, line, column, severity))

    def keep(self, problem: Problem) -> None:
        """Keep a problem; instead of the first that is too many, one that says so."""
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(problem)
        elif len(self.problems) == MAX_PROBLEMS:
            text = f"the file has more than {MAX_PROBLEMS} problems: correct these first"
            self.problems.append(Problem("", "TooManyProblems", text, 1, 1))

    def guess(self, word: str, words: tuple[str, ...]) -> str | None:
        """Find the word that was probably meant, for the first mistakes of a file."""
        self.guesses += 1
        return _near(word, words) if self.guesses <= MAX_GUESSES else None

    def since(self, version: tuple[int, int, int]) -> bool | None:
        """Return whether the file is of that version or newer; None when its own is unreadable."""
        return None if self.version is None else self.version >= version


@dataclass(frozen=True, slots=True)
class Spot:
    """A node at its path."""

    node: Node
    path: str
    report: ProblemReport

    def __post_init__(self) -> None:
        self.report.spots[self.path] = (self.node.line, self.node.column)

    @property
    def label(self) -> str:
        """The last word of the path, such as ``networks[0]``."""
        return LAST.findall(self.path)[-1] if self.path else "the file"

    @property
    def kind(self) -> ScalarKind | None:
        """What kind of scalar is here; None for a list or map."""
        return kind_of(self.node) if isinstance(self.node, Scalar) else None

    @property
    def raw(self) -> str:
        """The text of a scalar as written; empty for a list or map."""
        return self.node.text if isinstance(self.node, Scalar) else ""

    def error(self, code: str, message: str) -> None:
        """Report what forbids a deployment."""
        self.report.add(self, code, message, Severity.ERROR)

    def warn(self, code: str, message: str) -> None:
        """Report a warning."""
        self.report.add(self, code, message, Severity.WARNING)

    def strict(self, message: str) -> None:
        """Report what strict rules refuse: an error from the version on that is set."""
        first = self.report.rules.strict_from
        numbers = tuple(int(part) for part in first.split(".")) if first else None
        version = self.report.version
        if numbers is not None and version is not None and version >= numbers:
            self.error("RefusedByStrictRules", f"{message}; refused from version {first} on")
        else:
            self.warn("RefusedByStrictRules", f"{message}; strict rules refuse it")

    def child(self, key: Scalar, node: Node) -> "Spot":
        """Return the value of a key."""
        return Spot(node, join(self.path, key.text), self.report)

    def _wrong(self, wanted: str) -> None:
        node = self.node
        match node:
            case Sequence():
                found = "is a list"
            case Mapping():
                found = "is a map"
            case Scalar() if kind_of(node) is ScalarKind.NULL:
                found = "has no value"
            case Scalar():
                found = f"is {show(node.text)}"
        self.error("WrongType", f"{found}: write {wanted}")

    def text(self, wanted: str = "text") -> str | None:
        """Read text, empty text included."""
        node = self.node
        if not isinstance(node, Scalar):
            self._wrong(wanted)
            return None
        kind = kind_of(node)
        if kind is ScalarKind.AMBIGUOUS:
            self._ambiguous(node.text)
        elif kind is ScalarKind.NULL:
            self._wrong(wanted)
        elif kind is not ScalarKind.TEXT:
            quoted = f'"{node.text}"'
            self.error("WrongType", f"is {kind} where text belongs: write {quoted} in quotes")
        else:
            return node.text
        return None

    def word(self, words: tuple[str, ...]) -> str | None:
        """Read one of some words; one that only reads like a truth value needs no quotes."""
        node = self.node
        wanted = words[0] if len(words) == 1 else f"one of {', '.join(words)}"
        if not isinstance(node, Scalar) or kind_of(node) is ScalarKind.NULL:
            self._wrong(wanted)
            return None
        if node.text in words:
            return node.text
        near = self.report.guess(node.text, words)
        hint = f"; did you mean {near}?" if near else ""
        self.error("InvalidValue", f"is {show(node.text)}: write {wanted}{hint}")
        return None

    def integer(self, low: int, high: int | None = None) -> int | None:
        """Read an integer within bounds.

        Parameters
        ----------
        high
            Greatest value; None for none but what fits 63 bits.
        """
        node = self.node
        span = f"an integer of at least {low}" if high is None else f"an integer, {low} to {high}"
        if not isinstance(node, Scalar):
            self._wrong(span)
        elif not node.plain and INTEGER.fullmatch(node.text):
            self.error("WrongType", f"is text: write {node.text} without quotes")
        elif not node.plain or not INTEGER.fullmatch(node.text):
            self._no_number(node, span)
        elif int(node.text) < low or (high is not None and int(node.text) > high):
            self.error("OutOfRange", f"is {node.text}: write {span}")
        else:
            return int(node.text)
        return None

    def number(self) -> float | None:
        """Read a number greater than 0, with or without a fraction."""
        node = self.node
        span = "a number greater than 0, such as 0.5"
        if not isinstance(node, Scalar):
            self._wrong(span)
        elif not node.plain and NUMBER.fullmatch(node.text):
            self.error("WrongType", f"is text: write {node.text} without quotes")
        elif not node.plain or not NUMBER.fullmatch(node.text):
            self._no_number(node, span)
        elif float(node.text) <= 0:
            self.error("OutOfRange", f"is {node.text}: write {span}")
        else:
            return float(node.text)
        return None

    def _no_number(self, node: Scalar, wanted: str) -> None:
        if kind_of(node) is ScalarKind.AMBIGUOUS:
            text = f"{show(node.text)} is not the same number to every reader: write {wanted}"
            self.error("AmbiguousScalar", text)
        else:
            self._wrong(wanted)

    def _ambiguous(self, text: str) -> None:
        quoted = f'"{text}"'
        message = (
            f"{show(text)} without quotes is not the same to every reader of YAML: write "
            f"{quoted} in quotes where text is meant, else true, false or a plain decimal number"
        )
        self.error("AmbiguousScalar", message)

    def boolean(self) -> bool | None:
        """Read true or false."""
        node = self.node
        if isinstance(node, Scalar) and kind_of(node) is ScalarKind.BOOL:
            return node.text == "true"
        if isinstance(node, Scalar) and kind_of(node) is ScalarKind.AMBIGUOUS:
            text = f"{show(node.text)} is not the same to every reader of YAML: write true or false"
            self.error("AmbiguousScalar", text)
        else:
            self._wrong("true or false, without quotes")
        return None

    def items(self, most: int | None, what: str = "a list") -> "list[Spot] | None":
        """Read a list.

        Parameters
        ----------
        most
            Most entries; the rest is not read.
        """
        node = self.node
        if not isinstance(node, Sequence):
            self._wrong(what)
            return None
        if most is not None and len(node.items) > most:
            message = f"has {len(node.items)} entries: at most {most} are allowed, remove some"
            self.error("TooManyEntries", message)
        shown = node.items[:most]
        return [Spot(item, f"{self.path}[{n}]", self.report) for n, item in enumerate(shown)]

    def texts(self, most: int | None, wanted: str = "a list of texts") -> tuple[str, ...] | None:
        """Read a list of texts; other entries are reported and left out."""
        items = self.items(most, wanted)
        if items is None:
            return None
        read = [item.text() for item in items]
        return tuple(text for text in read if text is not None)

    def entries(self, most: int | None, what: str = "a map") -> "list[tuple[Spot, Spot]] | None":
        """Read a map with free keys: pairs of the key (with the path of its value) and value."""
        node = self.node
        if not isinstance(node, Mapping):
            self._wrong(what)
            return None
        if most is not None and len(node.entries) > most:
            message = f"has {len(node.entries)} entries: at most {most} are allowed, remove some"
            self.error("TooManyEntries", message)
        pairs = []
        for key, value in node.entries[:most]:
            path = join(self.path, key.text)
            pairs.append((Spot(key, path, self.report), Spot(value, path, self.report)))
        return pairs


@dataclass(frozen=True, slots=True)
class Field:
    """A key of a map of the format."""

    key: str
    read: Callable[[Spot], Any]
    """Returns the normalised value; None when there is nothing to go on with."""
    schema: MappingOf[str, Any]
    """What JSON Schema says about its value."""
    about: str
    """A sentence for editors and manuals."""
    required: bool = False
    missing: str = ""
    """What to write when it is required and not there."""


@dataclass(frozen=True, slots=True)
class Table:
    """The keys of one map of the format."""

    noun: str
    """What the map is, for messages."""
    fields: tuple[Field, ...]
    refused: MappingOf[str, tuple[str, str]] = field(default_factory=dict)
    """Keys that are known and refused: code and message."""
    ignored: MappingOf[str, str] = field(default_factory=dict)
    """Keys that are accepted with a warning that says what they do."""
    hints: MappingOf[str, str] = field(default_factory=dict)
    """What to write instead of keys of related formats."""
    unknown: Severity = Severity.ERROR
    """How much a key weighs that is not known."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that do something."""
        return tuple(entry.key for entry in self.fields)


@dataclass(frozen=True, slots=True)
class Section:
    """A map that was read by its table."""

    spot: Spot
    fields: dict[str, Spot]
    """All known keys that are in the file."""
    values: dict[str, Any]
    """The values of those that could be read, under names of Python."""

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value that could be read, else the default."""
        return self.values.get(key.replace("-", "_"), default)

    def settled(self, *keys: str) -> bool:
        """Return whether nothing is wrong with these keys: each is readable or not there."""
        return all(key not in self.fields or key.replace("-", "_") in self.values for key in keys)

    def at(self, key: str) -> Spot:
        """Return the place of a key, that of the map when the key is not there."""
        return self.fields.get(key, self.spot)


def read_section(spot: Spot, table: Table) -> Section | None:
    """Read a map by its table.

    Returns
    -------
    Section | None
        What could be read; None when it is not a map.
    """
    pairs = spot.entries(None, f"a map with the keys of {table.noun}")
    if pairs is None:
        return None
    section = Section(spot, {}, {})
    by_key = {entry.key: entry for entry in table.fields}
    for key, value in pairs:
        name = key.raw
        if name in by_key:
            section.fields[name] = value
            read = by_key[name].read(value)
            if read is not None:
                section.values[name.replace("-", "_")] = read
        else:
            _other_key(name, key, table)
    for entry in table.fields:
        if entry.required and entry.key not in section.fields:
            place = Spot(spot.node, join(spot.path, entry.key), spot.report)
            place.error("RequiredField", f"{entry.key} is missing: {entry.missing}")
    return section


def _other_key(name: str, key: Spot, table: Table) -> None:
    """Report a key that the table does not read."""
    if name in table.refused:
        code, message = table.refused[name]
        key.error(code, message)
        return
    if name in table.ignored:
        key.warn("NoEffect", table.ignored[name])
        return
    hint = table.hints.get(name)
    if hint is None:
        near = key.report.guess(name, table.keys)
        hint = f"did you mean {near}?" if near else "remove it"
    message = f"{show(name)} is not a key of {table.noun}, nothing reads it: {hint}"
    key.report.add(key, "UnknownField", message, table.unknown)


@lru_cache(maxsize=512)
def _near(word: str, words: tuple[str, ...]) -> str | None:
    """Find the word that was probably meant."""
    if len(word) > MAX_GUESSED:
        return None
    plain = word.strip().lower().replace("_", "-").lstrip("-")
    by_shape = {other.replace("_", "-"): other for other in words}
    cutoff = 0.6 if len(plain) <= len("four") else 0.8
    found = difflib.get_close_matches(plain, by_shape, n=1, cutoff=cutoff)
    return by_shape[found[0]] if found else None


def show(text: str) -> str:
    """Return a value for a message: quoted, in one line, cut when long."""
    cut = text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "…"
    return repr(cut)
