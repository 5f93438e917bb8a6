"""Capabilities, users, namespaces, security options."""

from collections.abc import Callable

import pytest

from cloister_crds.config import ContainerConfig, User
from cloister_crds.config.rules.security import DANGEROUS, FURTHER_CAPABILITIES

Verdict = Callable[..., list[str]]
Built = Callable[..., ContainerConfig]
STRICT = "RefusedByStrictRules?"


@pytest.mark.spec("42.18", "42.34")
def test_capabilities(built: Built, verdict: Verdict) -> None:
    line = "cap_add: [IPC_LOCK, NET_BIND_SERVICE, SYS_NICE]"
    assert verdict(line) == []
    assert built(line).cap_add == ("IPC_LOCK", "NET_BIND_SERVICE", "SYS_NICE")
    assert built().cap_add == ()


@pytest.mark.spec("42.18", "42.34")
@pytest.mark.parametrize("name", FURTHER_CAPABILITIES)
def test_capabilities_beyond_the_strict_ones(verdict: Verdict, name: str) -> None:
    assert verdict(f"cap_add: [{name}]") == [f"containers[0].cap_add[0] {STRICT}"]


@pytest.mark.spec("42.18", "42.34")
@pytest.mark.parametrize("name", [*sorted(DANGEROUS), "CAP_SYS_ADMIN", "sys_admin", "NET_RAW", "X"])
def test_capabilities_that_are_never_given(verdict: Verdict, name: str) -> None:
    assert verdict(f"cap_add: [{name}]") == ["containers[0].cap_add[0] CapabilityNotAllowed"]


@pytest.mark.spec("42.18")
@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ("[CAP_IPC_LOCK]", "cap_add[0] InvalidName"),
        ("[ipc_lock]", "cap_add[0] InvalidName"),
        ("[IPC_LOCK, IPC_LOCK]", "cap_add[1] DuplicateEntry?"),
        ("IPC_LOCK", "cap_add WrongType"),
    ],
)
def test_capabilities_in_another_form(verdict: Verdict, entries: str, problem: str) -> None:
    assert verdict(f"cap_add: {entries}") == [f"containers[0].{problem}"]


@pytest.mark.spec("42.6")
@pytest.mark.parametrize(
    ("value", "user"),
    [
        ("1000", User(uid=1000)),
        ("'1000'", User(uid=1000)),
        ("1000:1000", User(uid=1000, gid=1000)),
        ("'10:20'", User(uid=10, gid=20)),
        ("0:0", User(uid=0, gid=0)),
    ],
)
def test_users(built: Built, value: str, user: User) -> None:
    assert built(f"user: {value}").user == user


@pytest.mark.spec("42.6")
@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("root", "InvalidUser"),
        ("1000:staff", "InvalidUser"),
        ("'1000:'", "InvalidUser"),
        ("-1", "InvalidUser"),
        ("'01'", "InvalidUser"),
        ("2147483648", "OutOfRange"),
        ("1:2147483648", "OutOfRange"),
        ("10:20", "AmbiguousScalar"),
    ],
)
def test_users_that_are_refused(verdict: Verdict, value: str, code: str) -> None:
    assert verdict(f"user: {value}") == [f"containers[0].user {code}"]


@pytest.mark.spec("42.11", "42.12")
def test_ipc(built: Built, verdict: Verdict) -> None:
    assert built().ipc == "private"
    for word in ("private", "none"):
        assert built(f"ipc: {word}").ipc == word
        assert verdict(f"ipc: {word}") == []
    assert verdict("ipc: host") == [f"containers[0].ipc {STRICT}"]
    assert verdict("ipc: shareable") == ["containers[0].ipc InvalidValue"]


@pytest.mark.spec("42.11", "42.12")
def test_pid(built: Built, verdict: Verdict) -> None:
    assert built("pid: host").pid == "host"
    assert verdict("pid: host") == ["containers[0].pid NoEffect?", f"containers[0].pid {STRICT}"]
    assert verdict("pid: 'container:a'") == ["containers[0].pid InvalidValue"]


@pytest.mark.spec("42.19")
def test_security_options(built: Built, verdict: Verdict) -> None:
    line = "security_opt: ['no-new-privileges:true']"
    assert built(line).security_opt == ("no-new-privileges:true",)
    assert verdict(line) == [f"containers[0].security_opt {STRICT}"]
    assert verdict("security_opt: []") == []


@pytest.mark.spec("42.19")
@pytest.mark.parametrize(
    "option", ["no-new-privileges:false", "no-new-privileges", "seccomp=unconfined", "label:off"]
)
def test_security_options_that_are_refused(verdict: Verdict, option: str) -> None:
    assert verdict(f"security_opt: ['{option}']") == [
        f"containers[0].security_opt {STRICT}",
        "containers[0].security_opt[0] SecurityOptionNotAllowed",
    ]
