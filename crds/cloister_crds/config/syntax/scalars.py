"""What a scalar without quotes means, and whether every reader of YAML agrees about it.

Readers of YAML 1.1 and 1.2 take some words differently (`on`, `010`, `1_000`, `12:30`). Files
are read by more programs than this one, and are measured: such words are refused where they
would count, never guessed. Sources: YAML 1.2.2, section 10.3 (core schema); the YAML 1.1 type
repository (bool, int, float).
"""

import re
from enum import StrEnum

from cloister_crds.config.syntax.document import Scalar

__all__ = ["ScalarKind", "kind_of"]

NULL = re.compile(r"|~|null|Null|NULL")
BOOL = re.compile(r"true|false")
INTEGER = re.compile(r"0|-?[1-9][0-9]*")
FLOAT = re.compile(r"-?(?:0|[1-9][0-9]*)\.(?:[0-9]*[1-9]|0)")
"""Decimal fractions as every program prints them back."""

SURPRISES = re.compile(
    r"""
      (?:[Tt]rue|TRUE|[Ff]alse|FALSE)              # truth in other letters
    | (?:[Yy]es|YES|[Nn]o|NO|[Oo]n|ON|[Oo]ff|OFF)  # truth in 1.1 only
    | [-+]?0[0-9_]+                                # 1.1: octal
    | [-+]?0[xX][0-9a-fA-F_]+ | 0o[0-7]+ | [-+]?0b[01_]+
    | [-+]?[0-9][0-9_]*                            # signs and underscores
    | [-+]?[1-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?  # 1.1: base 60
    | [-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*
    | [-+]?(?:\.[0-9][0-9_]*|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?
    | [-+]?\.(?:inf|Inf|INF) | \.(?:nan|NaN|NAN)
    """,
    re.VERBOSE,
)
"""Words that some reader in use takes for a number or a truth value, or prints back differently.

The single letters y and n of YAML 1.1 are left out: no reader in use takes them for truth."""


class ScalarKind(StrEnum):
    """What a scalar is."""

    TEXT = "text"
    NULL = "no value"
    BOOL = "true or false"
    INTEGER = "an integer"
    FLOAT = "a number"
    AMBIGUOUS = "an ambiguous word"


def kind_of(scalar: Scalar) -> ScalarKind:
    """Return what a scalar is.

    Parameters
    ----------
    scalar
        Any scalar; one in quotes or of a block is text always.

    Returns
    -------
    ScalarKind
        `ScalarKind.AMBIGUOUS` when readers of YAML disagree, or when its value printed back would
        not be its text, so that a string made of it may differ (``1.10``, ``0x1F``, ``True``).
    """
    text = scalar.text
    if not scalar.plain:
        return ScalarKind.TEXT
    for kind, pattern in (
        (ScalarKind.NULL, NULL),
        (ScalarKind.BOOL, BOOL),
        (ScalarKind.INTEGER, INTEGER),
        (ScalarKind.FLOAT, FLOAT),
        (ScalarKind.AMBIGUOUS, SURPRISES),
    ):
        if pattern.fullmatch(text):
            return kind
    return ScalarKind.TEXT
