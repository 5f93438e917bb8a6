"""The text of a file: what YAML is accepted at all."""

import hashlib

import pytest

from cloister_crds.config import Rules, parse
from cloister_crds.config.syntax.document import MAX_DEPTH, MAX_NODES, join

VALID = b"""cvm-version: 0.14.8
cpus: 2
memory: 8192
containers:
  - name: app
    image: app@sha256:%s
shim: {upstream-port: 80, paths: [/]}
""" % (b"a" * 64)


def found(raw: bytes, **settings: int) -> list[tuple[str, str, int | None, int | None]]:
    """Provide field, code and place of all problems."""
    parsed = parse(raw, rules=Rules(**settings))  # type: ignore[arg-type]  # integers only here
    return [(one.field, one.code, one.line, one.column) for one in parsed.problems]


@pytest.mark.spec("40.5")
@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b"", ("", "EmptyDocument", 1, 1)),
        (b"# nothing\n", ("", "EmptyDocument", 1, 1)),
        (b"a: 1\nb: \xff\n", ("", "NotUtf8", 2, 4)),
        ("ä: ü\n".encode("utf-16"), ("", "NotUtf8", 1, 1)),
        (b"a: [1\nb: 2\n", ("", "InvalidYaml", 2, 2)),
        (b"a: \x00\n", ("", "InvalidYaml", 1, 4)),
        ("é: \x07\n".encode(), ("", "InvalidYaml", 1, 4)),
        (b"a\n---\nb\n", ("", "SeveralDocuments", 2, 1)),
        (b"a: b: c\n", ("", "InvalidYaml", 1, 5)),
        (b"\tcpus: 2\n", ("", "InvalidYaml", 1, 1)),
        (b"just text\n", ("", "WrongType", 1, 1)),
        (b"- cpus\n", ("", "WrongType", 1, 1)),
    ],
)
def test_text_that_is_not_a_configuration_file(
    raw: bytes, problem: tuple[str, str, int, int]
) -> None:
    assert found(raw) == [problem]


@pytest.mark.spec("40.5")
@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("cpus: 4", ("cpus", "DuplicateKey", 8, 1)),
        ("cvm-network: {a: 1, b: 2, a: 3}", ("cvm-network.a", "DuplicateKey", 8, 27)),
        ("cvm-network: &here {}", ("cvm-network", "AnchorNotAllowed", 8, 14)),
        ("cvm-network: *here", ("cvm-network", "AliasNotAllowed", 8, 14)),
        ("cvm-network: {<<: {}}", ('cvm-network["<<"]', "MergeKeyNotAllowed", 8, 15)),
        ("cvm-network: !!str 1", ("cvm-network", "TagNotAllowed", 8, 14)),
        ("cvm-network: ! text", ("cvm-network", "TagNotAllowed", 8, 14)),
        ("cvm-network: !!python/object:os.system {}", ("cvm-network", "TagNotAllowed", 8, 14)),
        ("cvm-network: {[a]: b}", ("cvm-network", "KeyNotText", 8, 15)),
        ("? {a: b}\n: c", ("", "KeyNotText", 8, 3)),
    ],
)
def test_yaml_that_can_mean_two_things(line: str, problem: tuple[str, str, int, int]) -> None:
    assert problem in found(VALID + line.encode() + b"\n")
    assert not parse(VALID + line.encode() + b"\n").valid


@pytest.mark.spec("40.7")
def test_problems_of_the_text_do_not_hide_those_of_the_rules() -> None:
    codes = [code for _, code, _, _ in found(b"cpus: &a 3\ncpus: *a\nmemory: 1\n")]
    assert codes[:5] == ["RequiredField"] * 3 + ["AnchorNotAllowed", "NotOffered"]
    assert "DuplicateKey" in codes
    assert "AliasNotAllowed" in codes


@pytest.mark.spec("40.5")
def test_depth_is_bounded() -> None:
    deep = b"cvm-network: " + b"[" * (MAX_DEPTH - 1) + b"]" * (MAX_DEPTH - 1)
    assert parse(VALID + deep).valid
    deeper = b"cvm-network: " + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    assert ("TooDeep", 8) in {(code, line) for _, code, line, _ in found(VALID + deeper)}


@pytest.mark.spec("40.5")
def test_nodes_are_bounded() -> None:
    # The list itself and what is before it have 23 nodes.
    count = MAX_NODES - 23
    assert parse(VALID + b"cvm-network: [" + b"a," * count + b"]").valid
    more = VALID + b"cvm-network: [" + b"a," * (count + 1) + b"]"
    assert "TooManyNodes" in {code for _, code, _, _ in found(more)}


@pytest.mark.spec("40.4")
def test_bytes_are_bounded() -> None:
    filled = VALID + b"#" * (2000 - len(VALID))
    assert parse(filled, rules=Rules(max_bytes=2000)).valid
    assert found(filled + b"#", max_bytes=2000) == [("", "FileTooLarge", 1, 1)]


@pytest.mark.spec("40.4")
def test_a_file_too_long_to_be_deployed_is_reported() -> None:
    filled = VALID + b"#" * 400_000
    assert parse(filled).valid
    assert [one.code for one in parse(filled).warnings] == ["FileNotDeployable"]
    released = parse(filled, rules=Rules(release=True))
    assert [one.code for one in released.warnings] == ["FileNotDeployable"]
    assert "sources.maxFileBytes" in released.warnings[0].message
    allowed = parse(filled, rules=Rules(release=True, deployable_bytes=400_000 + len(VALID)))
    assert allowed.warnings == ()


@pytest.mark.spec("40.3")
def test_bytes_are_kept_and_hashed() -> None:
    raw = b"\xef\xbb\xbf" + VALID.replace(b"\n", b"\r\n")
    parsed = parse(raw)
    assert parsed.valid
    assert parsed.raw == raw
    assert parsed.digest == "sha256:" + hashlib.sha256(raw).hexdigest()


def test_json_is_yaml() -> None:
    text = (
        '{"cvm-version": "0.14.8", "cpus": 2, "memory": 8192, "containers": [{"name": "app", '
        f'"image": "app@sha256:{"a" * 64}"}}], "shim": {{"upstream-port": 80, "paths": ["/"]}}}}'
    )
    assert parse(text.encode()).valid


@pytest.mark.parametrize(
    ("path", "key", "joined"),
    [
        ("", "shim", "shim"),
        ("shim", "upstream-port", "shim.upstream-port"),
        ("containers[0].tmpfs", "/tmp", 'containers[0].tmpfs["/tmp"]'),
        ("", 'a"\x1b\n', '["a\\"\\x1b\\n"]'),
        ("", "k" * 70, '["' + "k" * 64 + '\\u2026"]'),
    ],
)
def test_paths(path: str, key: str, joined: str) -> None:
    assert join(path, key) == joined


def test_too_many_problems_are_cut() -> None:
    keys = b"".join(b"key%d: 1\n" % number for number in range(4000))
    parsed = parse(VALID + keys)
    assert len(parsed.problems) == 1001
    assert parsed.problems[0].code == "TooManyProblems"
