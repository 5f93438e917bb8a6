"""Containers: names, counts, the process and its end."""

from collections.abc import Callable

import pytest

from cloister_crds.config import ContainerConfig, ParsedConfig, object_name, parse

Verdict = Callable[..., list[str]]
Built = Callable[..., ContainerConfig]
IMAGE = f"app@sha256:{'a' * 64}"


def named(*names: str) -> bytes:
    """Write a file with containers of these names."""
    lines = "".join(f"- {{name: {name!r}, image: '{IMAGE}'}}\n" for name in names)
    return (
        "cvm-version: 0.14.8\ncpus: 2\nmemory: 8192\nshim: {upstream-port: 80, paths: [/]}\n"
        f"containers:\n{lines}"
    ).encode()


def found(raw: bytes) -> list[tuple[str, str]]:
    """Provide field and code of all problems."""
    return [(one.field, one.code) for one in parse(raw).problems]


@pytest.mark.spec("42.1")
def test_names() -> None:
    assert found(named("a", "A-1", "b_2", "c.3", "9", "x" * 63)) == []


@pytest.mark.spec("42.1")
@pytest.mark.parametrize("name", ["", "-a", ".a", "_a", "a b", "ä", "x" * 64, "a/b"])
def test_names_that_are_refused(name: str) -> None:
    assert found(named(name)) == [("containers[0].name", "InvalidName")]


@pytest.mark.spec("42.1")
def test_name_is_required(verdict: Verdict) -> None:
    assert verdict(name="") == ["containers[0].name RequiredField"]


@pytest.mark.spec("42.1")
@pytest.mark.parametrize(("first", "second"), [("a", "a"), ("a.b", "a_b"), ("A", "a"), ("a", "a-")])
def test_names_that_meet(first: str, second: str) -> None:
    assert found(named(first, second)) == [("containers[1].name", "DuplicateName")]


@pytest.mark.spec("42.1")
@pytest.mark.parametrize(
    ("name", "derived"), [("App_1.x", "app-1-x"), ("a-", "a"), ("9", "9"), ("a._-", "a")]
)
def test_names_in_kubernetes(name: str, derived: str) -> None:
    assert object_name(name) == derived


@pytest.mark.spec("40.10", "41.7")
def test_count_of_containers() -> None:
    assert found(named(*(f"c{number}" for number in range(64)))) == []
    assert found(named(*(f"c{number}" for number in range(65)))) == [
        ("containers", "TooManyEntries")
    ]
    assert found(named().replace(b"containers:\n", b"containers: []\n")) == [
        ("containers", "EmptyList")
    ]


@pytest.mark.spec("41.7")
@pytest.mark.parametrize("value", ["app", "{a: b}", "", "[text]"])
def test_containers_must_be_a_list_of_maps(value: str) -> None:
    raw = named().replace(b"containers:\n", f"containers: {value}\n".encode())
    field = "containers[0]" if value == "[text]" else "containers"
    assert found(raw) == [(field, "WrongType")]


@pytest.mark.spec("40.10")
@pytest.mark.parametrize(
    ("key", "entry", "most"),
    [
        ("command", "a", 256),
        ("entrypoint", "a", 256),
        ("env", "A{}", 256),
        ("secrets", "A{}", 256),
        ("devices", "/dev/d{}", 256),
        ("volumes", "a:/v{}", 256),
    ],
)
def test_counts(judged: Callable[..., ParsedConfig], key: str, entry: str, most: int) -> None:
    def line(count: int) -> str:
        return f"{key}: [{', '.join(repr(entry.format(n)) for n in range(count))}]"

    assert judged(line(most)).valid
    problems = judged(line(most + 1)).errors
    assert [(one.field, one.code) for one in problems] == [
        (f"containers[0].{key}", "TooManyEntries")
    ]


@pytest.mark.spec("40.10")
@pytest.mark.parametrize(("key", "entry"), [("networks", "n"), ("cap_add", "IPC_LOCK")])
def test_counts_of_lists_without_repetition(verdict: Verdict, key: str, entry: str) -> None:
    many = ", ".join([entry] * 257)
    assert f"containers[0].{key} TooManyEntries" in verdict(f"{key}: [{many}]")


@pytest.mark.spec("40.10")
def test_count_of_tmpfs(verdict: Verdict) -> None:
    def line(count: int) -> str:
        return f"tmpfs: {{{', '.join(f'/t{n}: size=1m' for n in range(count))}}}"

    assert verdict(line(64)) == []
    assert verdict(line(65)) == ["containers[0].tmpfs TooManyEntries"]


@pytest.mark.spec("42.3", "42.4")
def test_command_and_entrypoint(built: Built) -> None:
    container = built("command: [--port, '80']\nentrypoint: [sh, -c]")
    assert container.command == ("--port", "80")
    assert container.entrypoint == ("sh", "-c")
    assert built().command is None
    assert built().entrypoint is None
    assert built("entrypoint: []").entrypoint == ()


@pytest.mark.spec("42.3", "42.4")
@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("command: serve", "containers[0].command WrongType"),
        ("entrypoint: sh -c", "containers[0].entrypoint WrongType"),
        ("command: [--port, 80]", "containers[0].command[1] WrongType"),
        ("command: [a, [b]]", "containers[0].command[1] WrongType"),
        ("command: [a, ]\nentrypoint: [~]", "containers[0].entrypoint[0] WrongType"),
    ],
)
def test_commands_that_are_refused(verdict: Verdict, line: str, problem: str) -> None:
    assert verdict(line) == [problem]


@pytest.mark.spec("42.5")
def test_working_dir(built: Built, verdict: Verdict) -> None:
    assert built("working_dir: /app").working_dir == "/app"
    assert built().working_dir is None
    for path in ("app", "/a/../b", "''", "/a//b"):
        assert verdict(f"working_dir: {path}") == ["containers[0].working_dir InvalidPath"]


@pytest.mark.spec("42.25")
@pytest.mark.parametrize(
    ("value", "restart", "limit"),
    [
        ("no", "no", None),
        ("'no'", "no", None),
        ("always", "always", None),
        ("unless-stopped", "unless-stopped", None),
        ("on-failure", "on-failure", None),
        ("on-failure:5", "on-failure", 5),
        ("on-failure:0", "on-failure", None),
    ],
)
def test_restart(built: Built, value: str, restart: str, limit: int | None) -> None:
    container = built(f"restart: {value}")
    assert (container.restart, container.restart_limit) == (restart, limit)


@pytest.mark.spec("42.25")
@pytest.mark.parametrize("value", ["never", "on-failure:x", "false", "always:3", "No"])
def test_restarts_that_are_refused(verdict: Verdict, value: str) -> None:
    assert verdict(f"restart: {value}") == ["containers[0].restart InvalidValue"]


@pytest.mark.spec("42.25")
def test_restart_default(built: Built) -> None:
    assert built().restart == "no"


@pytest.mark.spec("42.26", "42.27")
@pytest.mark.parametrize(
    ("value", "signal"),
    [
        ("SIGTERM", "SIGTERM"),
        ("TERM", "SIGTERM"),
        ("15", "SIGTERM"),
        ("'9'", "SIGKILL"),
        ("SIGRTMIN", "SIGRTMIN"),
        ("RTMIN+3", "SIGRTMIN+3"),
        ("SIGRTMAX-1", "SIGRTMIN+29"),
        ("64", "SIGRTMIN+30"),
        ("SIGPOLL", "SIGIO"),
    ],
)
def test_stop_signal(built: Built, value: str, signal: str) -> None:
    assert built(f"stop_signal: {value}").stop_signal == signal


@pytest.mark.spec("42.26", "42.27")
@pytest.mark.parametrize("value", ["SIGNONE", "0", "32", "65", "sigterm", "RTMIN+31", "SIG", "-1"])
def test_signals_that_are_refused(verdict: Verdict, value: str) -> None:
    assert verdict(f"stop_signal: {value}") == ["containers[0].stop_signal InvalidSignal"]


@pytest.mark.spec("42.26", "42.27")
def test_stop_timeout(built: Built, verdict: Verdict) -> None:
    assert built("stop_timeout: 0").stop_timeout == 0
    assert built().stop_timeout is None
    assert verdict("stop_timeout: -1") == ["containers[0].stop_timeout OutOfRange"]
    assert verdict("stop_timeout: 10s") == ["containers[0].stop_timeout WrongType"]


@pytest.mark.spec("12.10", "42.23")
def test_pids_limit(built: Built, verdict: Verdict) -> None:
    assert built().pids_limit == 65536
    assert built("pids_limit: 1").pids_limit == 1
    assert built("pids_limit: -1").pids_limit == -1
    assert verdict("pids_limit: 0") == ["containers[0].pids_limit OutOfRange"]
    assert verdict("pids_limit: -2") == ["containers[0].pids_limit OutOfRange"]


@pytest.mark.spec("42.17")
def test_read_only(built: Built, verdict: Verdict) -> None:
    assert built().read_only is True
    assert built("read_only: false").read_only is False
    assert verdict("read_only: maybe") == ["containers[0].read_only WrongType"]
