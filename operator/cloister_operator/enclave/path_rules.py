"""Path rules of the shim (spec 29.1 to 29.5) as regular expressions over the request target.

Matching the target as it was sent, and not a decoded path, leaves nothing between what was checked
and what is forwarded: the upstream gets exactly the text that matched. The expressions are in the
syntax that RE2 and Python share.

Two checks of a target err on opposite sides. Whether it is listed is strict (`path_pattern`): what
is spelled otherwise is not found. Whether it needs a key is lenient (`reaching_pattern`,
`AMBIGUOUS`): what some server might take for the path needs one too.
"""

import re
from collections.abc import Iterator

ALL_PATHS = "/*"
"""The rule that every path matches."""

_SLASH = r"(?:/|\\|%2[fF]|%5[cC])"
_DOT = r"(?:\.|%2[eE])"

DOT_SEGMENTS = rf"^[^?]*{_SLASH}{_DOT}{_DOT}?(?:{_SLASH}|;|%3[bB]|\?|$)"
"""Targets with a segment ``.`` or ``..`` in any spelling, such as ``%2e%2E%5c`` or ``..;``: a
server behind the shim might leave the listed path through it (RFC 3986, "Remove Dot Segments").
"""

AMBIGUOUS = rf"{DOT_SEGMENTS}|^[^?]*%(?:25|[cC][01])"
"""Targets that different servers may take for different paths: dot segments, an encoded percent
sign, first bytes of overlong UTF-8 (RFC 3629, section 3)."""

_RESERVED = "/?#%"
"""Characters that mean something else when they are not encoded."""
_REST_OF_SEGMENTS = r"(?:/[^?]*)?"
_REST = r"[^?]*"
_QUERY = r"(?:\?.*)?"
_ENCODED = re.compile(rb"%[0-9A-Fa-f]{2}|.", re.DOTALL)

_PARAMETERS = r"(?:;|%3b)[^?]*"
_SLASHES = rf"(?:(?:{_PARAMETERS})?{_SLASH})+"
_STOP = r"(?:[.;?#]|%(?:2e|3b|3f|23|20|7f|[01][0-9a-f]))"
_END = rf"(?:{_SLASH})*(?:{_STOP}.*)?"


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
        as it is in the rule: ``%2F`` is part of a segment (RFC 3986, "Percent-Encoding"). The
        query string is ignored.

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


def reaching_pattern(rule: str) -> str:
    """Write a rule as a regular expression over all targets that might reach what it names.

    Parameters
    ----------
    rule
        An entry of ``shim.authenticated-endpoints``, in the grammar of ``shim.paths``.

    Returns
    -------
    str
        The expression: every target of `path_pattern`, and those that differ in case, in the
        number or spelling of slashes, in slashes at the end, in parameters after a semicolon, in
        an extension (``.json``) or in a control character or space at the end. `AMBIGUOUS`
        targets are not in it.
    """
    wild = rule.endswith("*")
    segments = [each for each in re.split(_SLASH, rule[:-1] if wild else rule) if each]
    stem = "".join(_SLASHES + _text(each, folded=True) for each in segments)
    below = rf"|{_SLASHES}.*" if wild else ""
    return f"(?is)^{stem}(?:{_END}{below})$"


def _text(text: str, *, folded: bool = False) -> str:
    """Write literal text in every spelling that means the same, or (folded) but for its case."""
    written = []
    for byte, encoded in _bytes(text):
        cases = {byte}
        if folded and chr(byte).isascii():
            cases = {ord(chr(byte).lower()), ord(chr(byte).upper())}
        each = [_character(one, encoded=encoded) for one in sorted(cases)]
        written.append(each[0] if len(each) == 1 else f"(?:{'|'.join(each)})")
    return "".join(written)


def _bytes(text: str) -> Iterator[tuple[int, bool]]:
    """Yield the bytes that a text means, and whether each is percent-encoded in it."""
    for found in _ENCODED.findall(text.encode()):
        if len(found) > 1:
            yield int(found[1:], 16), True
        else:
            yield found[0], False


def _character(byte: int, *, encoded: bool) -> str:
    """Write one byte as itself or percent-encoded with either case of its digits."""
    character = chr(byte)
    if character == "/" and not encoded:
        return "/"
    digits = "%" + "".join(
        digit if digit.isdecimal() else f"[{digit.lower()}{digit}]" for digit in f"{byte:02X}"
    )
    if not character.isascii() or (encoded and character in _RESERVED):
        return digits
    plain = character if character.isalnum() else f"[{_in_class(character)}]"
    return f"(?:{plain}|{digits})"


def _in_class(character: str) -> str:
    """Write a character as the only one of a class, without a meaning of its own."""
    return f"\\{character}" if character in "\\]^-[" else character
