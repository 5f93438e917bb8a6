"""Path rules of the shim as regular expressions over the request target as it was sent.

Matching the bytes on the wire, and not a decoded path, leaves nothing between what was checked
and what is forwarded: the upstream gets exactly the text that matched. The expressions are in the
syntax that RE2 and Python share.
"""

__all__ = ["ALL_PATHS", "DOT_SEGMENTS", "path_pattern"]

ALL_PATHS = "/*"
"""The rule that every path fits."""

_SLASH = r"(?:/|\\|%2[fF]|%5[cC])"
_DOT = r"(?:\.|%2[eE])"

DOT_SEGMENTS = rf"^[^?]*{_SLASH}{_DOT}{_DOT}?(?:{_SLASH}|;|%3[bB]|\?|$)"
"""Targets with a segment ``.`` or ``..`` in any spelling, such as ``%2e%2E%5c`` or ``..;``: a
server behind the shim might leave the listed path through it (RFC 3986, "Remove Dot Segments").
"""

_REST_OF_SEGMENTS = r"(?:/[^?]*)?"
_REST = r"[^?]*"
_QUERY = r"(?:\?.*)?"


def path_pattern(rule: str) -> str:
    r"""Write a rule as a regular expression over path and query.

    Parameters
    ----------
    rule
        An entry of ``shim.paths``. Without ``*`` at its end it is exact; ``/*`` at its end is a
        prefix; any other ``*`` at its end must meet the end of a segment.

    Returns
    -------
    str
        The expression. Each character is matched as itself or percent-encoded, but a slash only
        as itself: ``%2F`` is part of a segment (RFC 3986, "Percent-Encoding"). The query string
        takes no part.

    Examples
    --------
    >>> path_pattern("/v1/*")
    '(?s)^/(?:v|%76)(?:1|%31)/[^?]*(?:\\?.*)?$'
    """
    if not rule.endswith("*"):
        return f"(?s)^{_text(rule)}{_QUERY}$"
    stem = rule[:-1]
    rest = _REST if stem.endswith("/") else _REST_OF_SEGMENTS
    return f"(?s)^{_text(stem)}{rest}{_QUERY}$"


def _text(text: str) -> str:
    """Write literal text in every spelling that means the same."""
    return "".join(_character(byte) for byte in text.encode())


def _character(byte: int) -> str:
    """Write one byte as itself or percent-encoded with either case of its digits."""
    character = chr(byte)
    if character == "/":
        return "/"
    encoded = "%" + "".join(
        digit if digit.isdecimal() else f"[{digit.lower()}{digit}]" for digit in f"{byte:02X}"
    )
    if not character.isascii():
        return encoded
    plain = character if character.isalnum() else f"[{_in_class(character)}]"
    return f"(?:{plain}|{encoded})"


def _in_class(character: str) -> str:
    """Write a character as the only one of a class, without a meaning of its own."""
    return f"\\{character}" if character in "\\]^-[" else character
