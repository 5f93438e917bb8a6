"""JSON texts in the shapes that cost most: a parser, or what walks the result of one.

Each was an attack, or is the largest of its kind that a body may be. Texts that are not parsed are
among them: to refuse them must not cost more than to read them.
"""

from collections.abc import Iterator

__all__ = ["hostile_json"]


def hostile_json(size: int, *, values: int = 4000) -> dict[str, bytes]:
    """Return texts of almost a size in bytes, by what they are made of.

    Parameters
    ----------
    values
        How many values those have that are within the bounds of a body.
    """
    texts = {**dict(malformed(size)), **dict(long(size)), **dict(wide(size, values))}
    assert all(len(text) <= size for text in texts.values())
    return texts


def filled(begin: bytes, unit: bytes, end: bytes, size: int) -> bytes:
    """Return a text with as many units in its middle as there is room for."""
    return begin + unit * ((size - len(begin) - len(end)) // len(unit)) + end


def members(form: bytes, most: int, size: int) -> bytes:
    """Return an object of as many numbered members as there is room for, and at most so many."""
    count = min(most, size // (len(form) + 5))
    return b"{" + b",".join(form % number for number in range(count)) + b"}"


def malformed(size: int) -> Iterator[tuple[str, bytes]]:
    """Yield texts that do not end, or are nested too deeply."""
    yield "unfinished string of quotation marks", filled(b"[" * 65 + b'"', rb"\"", b"", size)
    yield "unfinished string of backslashes", filled(b"[" * 65 + b'"', b"\\", b"", size)
    yield "unfinished name", filled(b"[" * 65 + b'{"', rb"\"", b"", size)
    yield "unfinished arrays", b"[" * size
    yield "unfinished objects", filled(b"", b'{"a":', b"", size)
    yield "deep arrays", b"[" * (size // 2) + b"]" * (size // 2)
    yield (
        "deep arrays after a string",
        filled(b'{"a":"' + rb"[\"{" * 999 + b'","b":', b"[", b"", size),
    )
    yield "deep arrays in UTF-16", ("[" + "∢[" * (size // 4 - 2)).encode("utf-16")
    yield "quotation marks", filled(b"[", b'"', b"", size)


def long(size: int) -> Iterator[tuple[str, bytes]]:
    """Yield texts of one long value, or of few."""
    for name, unit in (
        ("text", b"-"),
        ("text of escapes", rb"\u00e4"),
        ("text of halves of characters", rb"\ud800"),
        ("text of quotation marks", rb"\""),
        ("text of UTF-8", "😀".encode()),
        ("text of brackets", b"[{,"),
    ):
        yield f"long {name}", filled(b'{"name":"', unit, b'"}', size)
    yield "long name", filled(b'{"', b"a", b'":1}', size)
    yield "white space", filled(b"{", b" \r\n\t", b"}", size)
    yield "long number", filled(b'{"gpus":', b"1", b"}", size)
    yield "long fraction", filled(b'{"gpus":0.', b"1", b"}", size)
    yield "long numbers", filled(b'{"a":[', b"1" * 4300 + b",", b"1]}", size)
    yield "numbers of 390 digits", filled(b'{"a":[', b"1" * 390 + b",", b"1]}", size)


def wide(size: int, values: int) -> Iterator[tuple[str, bytes]]:
    """Yield texts of many values, beyond the bounds of a body and within them."""
    yield "numbers", filled(b"[", b"1,", b"1]", size)
    yield "empty strings", filled(b"[", b'"",', b'""]', size)
    yield "empty objects", filled(b"[", b"{},", b"{}]", size)
    yield "deep and wide", filled(b"[" * 60, b"[" + b"{}," * 40 + b"0],", b"0" + b"]" * 60, size)
    yield "unknown fields", members(b'"%d":0', size, size)
    yield "repeated names", filled(b"{", b'"a":1,', b'"a":1}', size)
    yield "fractions", filled(b'{"a":[', (b"1." + b"1" * 240 + b"e-300,") * 10, b"1]}", size)
    yield "long unknown fields", members(b'"%d' + b"a" * 240 + b'":0', values, size)
    yield "unknown fields of objects", members(b'"%d":{"a":[{}]}', values // 4, size)
    name = b'{"a":1,"a":2,"' + b"x" * (size - 6 * values - 64) + b'":{'
    yield "members below a long name", name + b'"b":1,' * values + b'"b":1}}'
    chain = b"".join(b'{"a":0,"a":0,"' + b"y" * 240 + b'":' for _ in range(60))
    inner = b'{"z":1,"z":1},' * (values // 5)
    yield "repeated names at a depth", chain + b"[" + inner + b"0]" + b"}" * 60
    value = b"x" * (size // 256 - 20)
    yield "variables", b'{"variables":%s}' % members(b'"A%d":"' + value + b'"', 256, size)
    yield "wrong variables", b'{"variables":%s}' % members(b'"%d-":[]', values // 2, size)
    yield "metadata", b'{"metadata":%s}' % members(b'"%d":{"a":[1,1]}', values // 5, size)
    for field in ("secrets", "ssh_keys", "instance_ids"):
        items = b",".join(b'"%d/%s"' % (number, b"a" * 240) for number in range(values))
        yield f"wrong {field}", b'{"%s":[%s]}' % (field.encode(), items)
