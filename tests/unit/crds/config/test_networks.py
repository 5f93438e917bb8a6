"""Networks and who is on them."""

from collections.abc import Callable

import pytest

from cloister_crds.config import Network, ParsedConfig, shared_namespace

Verdict = Callable[..., list[str]]
Judged = Callable[..., ParsedConfig]


@pytest.mark.spec("41.6", "42.13", "44.1", "44.2", "44.3")
def test_networks(judged: Judged) -> None:
    top = """
        networks:
          inner: {}
          nothing:
          a-9: {egress: closed}
          out: {egress: allowlist, allow: [API.example.com, x]}
        """
    config = judged("networks: [inner, nothing, a-9, out]", top=top).config
    assert config is not None
    assert config.networks == {
        "inner": Network(),
        "nothing": Network(),
        "a-9": Network(),
        "out": Network.model_validate({"egress": "allowlist", "allow": ("api.example.com", "x")}),
    }
    assert list(config.networks) == ["inner", "nothing", "a-9", "out"]
    assert config.containers[0].networks == ("inner", "nothing", "a-9", "out")


def test_open(judged: Judged) -> None:
    config = judged("networks: [w]", top="networks: {w: {egress: open}}").config
    assert config is not None
    assert config.networks["w"].egress == "open"


@pytest.mark.spec("12.6", "44.1", "44.2", "44.3")
@pytest.mark.parametrize("name", ["A", "-a", "a-", "a_b", "a.b", "x" * 16, "''"])
def test_names_that_are_refused(verdict: Verdict, name: str) -> None:
    assert any(line.endswith(" InvalidName") for line in verdict(top=f"networks: {{{name}: {{}}}}"))


@pytest.mark.spec("44.1", "44.2", "44.3")
def test_the_shims_network_is_reserved(verdict: Verdict) -> None:
    assert verdict(top="networks: {shim-net: {}}") == ["networks.shim-net ReservedName"]
    assert verdict("networks: [shim-net]") == ["containers[0].networks[0] ReservedName"]


@pytest.mark.spec("44.1", "44.2", "44.3")
@pytest.mark.parametrize(
    ("network", "problem"),
    [
        ("{egress: nat}", "networks.n.egress InvalidValue"),
        ("{egress: }", "networks.n.egress WrongType"),
        ("{egres: open}", "networks.n.egres UnknownField"),
        ("open", "networks.n WrongType"),
        ("{allow: [a.b]}", "networks.n.allow AllowWithoutAllowlist"),
        ("{egress: open, allow: [a.b]}", "networks.n.allow AllowWithoutAllowlist"),
        ("{egress: open, allow: []}", "networks.n.allow AllowWithoutAllowlist"),
        ("{egress: allowlist}", "networks.n EmptyAllowlist?"),
        ("{egress: allowlist, allow: []}", "networks.n.allow EmptyAllowlist?"),
        ("{egress: allowlist, allow: a.b}", "networks.n.allow WrongType"),
        ("{egress: allowlist, allow: [a.b, A.B]}", "networks.n.allow[1] DuplicateEntry?"),
    ],
)
def test_networks_that_are_refused(verdict: Verdict, network: str, problem: str) -> None:
    assert verdict("networks: [n]", top=f"networks: {{n: {network}}}") == [problem]


@pytest.mark.spec("44.1", "44.2", "44.3")
@pytest.mark.parametrize(
    "host",
    [
        "'*.example.com'",
        "10.0.0.1",
        "'2001:db8::1'",
        "'[::1]'",
        "'127.1'",
        "a.0x7f",
        "https://example.com",
        "example.com:443",
        "example.com/path",
        "'a..b'",
        "-a.com",
        "a-.com",
        "a_b.com",
        "'a b'",
        "ä.com",
        "''",
        "a.com.",
        f"{'x' * 64}.com",
        ".".join(["abc"] * 65),
    ],
)
def test_hosts_that_are_refused(verdict: Verdict, host: str) -> None:
    top = f"networks: {{n: {{egress: allowlist, allow: [{host}]}}}}"
    assert verdict("networks: [n]", top=top) == ["networks.n.allow[0] InvalidHost"]


@pytest.mark.spec("40.10")
def test_counts(verdict: Verdict) -> None:
    def hosts(count: int) -> str:
        listed = ", ".join(f"h{n}.com" for n in range(count))
        return f"networks: {{n: {{egress: allowlist, allow: [{listed}]}}}}"

    assert verdict("networks: [n]", top=hosts(256)) == []
    assert verdict("networks: [n]", top=hosts(257)) == ["networks.n.allow TooManyEntries"]
    names = [f"n{n}" for n in range(33)]
    top = f"networks: {{{', '.join(f'{name}: ' for name in names)}}}"
    assert verdict(f"networks: [{', '.join(names[:32])}]", top=top) == ["networks TooManyEntries"]


@pytest.mark.spec("42.13", "44.7")
@pytest.mark.parametrize(
    ("attached", "problem"),
    [
        ("[n, n]", "containers[0].networks[1] DuplicateEntry"),
        ("[n, other]", "containers[0].networks[1] UnknownNetwork"),
        ("[n, o, p]", "containers[0].networks SeveralEgress"),
        ("[n, 5]", "containers[0].networks[1] WrongType"),
        ("n", "containers[0].networks WrongType"),
    ],
)
def test_attachments_that_are_refused(verdict: Verdict, attached: str, problem: str) -> None:
    top = "networks: {n: {}, o: {egress: open}, p: {egress: allowlist, allow: [a.b]}}"
    found = [line for line in verdict(f"networks: {attached}", top=top) if "?" not in line]
    assert found == [problem]


@pytest.mark.spec("42.13", "44.7")
def test_several_closed_networks_and_one_that_leads_out(verdict: Verdict) -> None:
    top = "networks: {a: {}, b: , c: {egress: open}}"
    assert verdict("networks: [a, b, c]", top=top) == []


def test_an_unused_network_is_a_warning(verdict: Verdict) -> None:
    assert verdict(top="networks: {a: {}}") == ["networks.a NetworkUnused?"]


@pytest.mark.spec("41.6", "44.9", "48.1")
def test_networks_need_a_version(judged: Judged, verdict: Verdict) -> None:
    top = "networks: {a: {}}"
    assert verdict("networks: [a]", top=top, version="0.10.0") == []
    assert verdict("networks: [a]", top=top, version="0.9.9") == [
        "networks VersionTooOld",
        "containers[0].networks VersionTooOld",
    ]
    assert "0.10.0" in judged("networks: [a]", top=top, version="0.9.9").errors[0].message
    assert verdict("networks: [a]", top=top, version="x") == ["cvm-version InvalidVersion"]


@pytest.mark.spec("41.6", "44.9", "48.1")
def test_below_that_version_one_namespace_is_shared(judged: Judged) -> None:
    old, new = (judged(version=version).config for version in ("0.9.99", "0.10.0"))
    assert old is not None
    assert new is not None
    assert shared_namespace(old)
    assert not shared_namespace(new)
    assert new.containers[0].networks is None
