"""The shim."""

from collections.abc import Callable

import pytest

from cloister_crds.config import ParsedConfig, Rules, Shim

Verdict = Callable[..., list[str]]
Judged = Callable[..., ParsedConfig]


def with_shim(judged: Judged, shim: str, **more: object) -> ParsedConfig:
    """Judge a small file with this shim alone."""
    from cloister_crds.config import parse  # noqa: PLC0415 - next to its one use

    raw = judged().raw
    head = raw[: raw.index(b"shim:")]
    rules = Rules(**more)  # type: ignore[arg-type]  # settings as the tests name them
    return parse(head + f"shim: {shim}\n".encode(), rules=rules)


def lines(parsed: ParsedConfig) -> list[str]:
    """Write each problem in a line, a warning with ``?``."""
    return [
        f"{one.field} {one.code}" + "?" * (one.severity == "warning") for one in parsed.problems
    ]


@pytest.mark.spec("41.8", "46.3", "46.9")
def test_defaults(judged: Judged) -> None:
    config = judged().config
    assert config is not None
    assert config.shim == Shim(
        upstream_port=8080,
        paths=("/*",),
        upstream_container="app",
        origins=None,
        authenticated=False,
        authenticated_endpoints=None,
        rate_limit=None,
        rate_burst=None,
        tls_mode=None,
        ehbp=None,
    )


@pytest.mark.spec("46.1", "46.2", "46.3", "46.4", "46.5", "46.6", "46.7", "46.8")
def test_all_keys(judged: Judged) -> None:
    shim = """
        upstream-container: app
        origins: [https://a.example.com, 'http://localhost:3000']
        authenticated: true
        authenticated-endpoints: [/v1/*]
        rate-limit: 2.5
        rate-burst: 10
        tls-mode: self-signed
        ehbp: required
        """
    parsed = judged(shim=shim)
    assert parsed.problems == ()
    assert parsed.config is not None
    assert parsed.config.shim == Shim.model_validate(
        {
            "upstream_port": 8080,
            "paths": ("/*",),
            "upstream_container": "app",
            "origins": ("https://a.example.com", "http://localhost:3000"),
            "authenticated": True,
            "authenticated_endpoints": ("/v1/*",),
            "rate_limit": 2.5,
            "rate_burst": 10,
            "tls_mode": "self-signed",
            "ehbp": "required",
        }
    )


@pytest.mark.spec("41.8", "46.1", "46.2", "46.3", "46.4", "46.5", "46.6", "46.7", "46.8")
@pytest.mark.parametrize(
    ("shim", "problems"),
    [
        ("{}", ["shim.upstream-port RequiredField", "shim.paths RequiredField"]),
        ("[]", ["shim WrongType"]),
        ("{upstream-port: 0, paths: [/]}", ["shim.upstream-port OutOfRange"]),
        ("{upstream-port: 65536, paths: [/]}", ["shim.upstream-port OutOfRange"]),
        ("{upstream-port: '80', paths: [/]}", ["shim.upstream-port WrongType"]),
        ("{upstream-port: 80, paths: []}", ["shim.paths EmptyList"]),
        ("{upstream-port: 80, paths: /}", ["shim.paths WrongType"]),
        ("{upstream-port: 80, paths: [v1]}", ["shim.paths[0] InvalidPath"]),
        ("{upstream-port: 80, paths: ['*']}", ["shim.paths[0] InvalidPath"]),
        ("{upstream-port: 80, paths: ['']}", ["shim.paths[0] InvalidPath"]),
        ("{upstream-port: 80, paths: [/a, /a]}", ["shim.paths[1] DuplicateEntry?"]),
        ("{upstream-port: 80, paths: ['/a b']}", ["shim.paths[0] PathNeverMatches?"]),
        ("{upstream-port: 80, paths: ['/a?b=c']}", ["shim.paths[0] PathNeverMatches?"]),
        ("{upstream-port: 80, paths: ['/a/*/b']}", ["shim.paths[0] LiteralWildcard?"]),
        ("{upstream-port: 80, paths: ['/a**']}", ["shim.paths[0] LiteralWildcard?"]),
        ("{upstream-port: 80, paths: ['/a*', '/*', '/%41']}", []),
    ],
)
def test_port_and_paths(judged: Judged, shim: str, problems: list[str]) -> None:
    assert lines(with_shim(judged, shim)) == problems


@pytest.mark.spec("46.1", "46.2", "46.3", "46.4", "46.5", "46.6", "46.7", "46.8")
def test_upstream_container(judged: Judged) -> None:
    (problem,) = judged(shim="upstream-container: ap").errors
    assert (problem.field, problem.code) == ("shim.upstream-container", "UnknownContainer")
    assert "did you mean app?" in problem.message


@pytest.mark.spec("46.1", "46.2", "46.3", "46.4", "46.5", "46.6", "46.7", "46.8")
@pytest.mark.parametrize(
    ("origins", "found"),
    [
        ("['*']", []),
        ("[]", []),
        ("['chrome-extension://abcdef']", []),
        ("['https://[2001:db8::1]:8443']", []),
        ("['*', 'https://a.b']", ["shim.origins[0] InvalidOrigin"]),
        ("[a.example.com]", ["shim.origins[0] InvalidOrigin"]),
        ("['https://a.b/']", ["shim.origins[0] InvalidOrigin"]),
        ("['https://*.a.b']", ["shim.origins[0] InvalidOrigin"]),
        ("['https://A.b']", ["shim.origins[0] InvalidOrigin"]),
        ("['null']", ["shim.origins[0] InvalidOrigin"]),
        ("['https://a.b:443']", ["shim.origins[0] OriginNeverMatches?"]),
        ("['https://a.b', 'https://a.b']", ["shim.origins[1] DuplicateEntry?"]),
        ("'*'", ["shim.origins WrongType"]),
    ],
)
def test_origins(verdict: Verdict, origins: str, found: list[str]) -> None:
    assert verdict(shim=f"origins: {origins}") == found


@pytest.mark.spec("40.10")
@pytest.mark.parametrize("key", ["paths", "authenticated-endpoints", "origins"])
@pytest.mark.parametrize(("count", "found"), [(256, []), (257, ["TooManyEntries"])])
def test_counts(judged: Judged, key: str, count: int, found: list[str]) -> None:
    entry = "https://a{}.example" if key == "origins" else "/{}"
    listed = ", ".join(entry.format(number) for number in range(count))
    others = "" if key == "paths" else "paths: [/], authenticated: true, "
    parsed = with_shim(judged, f"{{upstream-port: 80, {others}{key}: [{listed}]}}")
    assert lines(parsed) == [f"shim.{key} {each}" for each in found]


@pytest.mark.spec("46.1", "46.2", "46.3", "46.4", "46.5", "46.6", "46.7", "46.8")
@pytest.mark.parametrize(
    ("endpoints", "read"),
    [("", None), ("~", None), ("[]", ()), ("[/a, /b]", ("/a", "/b"))],
)
def test_authenticated_endpoints(
    judged: Judged, endpoints: str, read: tuple[str, ...] | None
) -> None:
    parsed = judged(shim=f"authenticated: true\nauthenticated-endpoints: {endpoints}")
    assert parsed.config is not None, parsed.problems
    assert parsed.config.shim.authenticated_endpoints == read


@pytest.mark.spec("46.1", "46.2", "46.3", "46.4", "46.5", "46.6", "46.7", "46.8")
@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("authenticated: 'true'", "authenticated WrongType"),
        ("authenticated-endpoints: [a]", "authenticated-endpoints[0] InvalidPath"),
        ("authenticated-endpoints: [/a]", "authenticated-endpoints NoEffect?"),
        ("rate-limit: 0", "rate-limit OutOfRange"),
        ("rate-limit: fast", "rate-limit WrongType"),
        ("rate-limit: 1\nrate-burst: 0", "rate-burst OutOfRange"),
        ("rate-burst: 5", "rate-burst NoEffect?"),
        ("tls-mode: plain", "tls-mode InvalidValue"),
        ("tls-mode: acme", "tls-mode PlatformDecides?"),
        ("tls-mode: cert-proxy", "tls-mode PlatformDecides?"),
        ("ehbp: true", "ehbp InvalidValue"),
        ("ehbp: always", "ehbp InvalidValue"),
        ("ehbp:", "ehbp WrongType"),
        ("tls-env: staging", "tls-env PlatformDecides?"),
        ("tls-challenge: dns", "tls-challenge PlatformDecides?"),
        ("tls-wildcard: true", "tls-wildcard PlatformDecides?"),
        ("publish-attestation: false", "publish-attestation PlatformDecides?"),
        ("listen-port: 443", "listen-port UnknownField?"),
        ("upstream_port: 80", "upstream_port UnknownField?"),
    ],
)
def test_further_keys(verdict: Verdict, line: str, problem: str) -> None:
    assert verdict(shim=line) == [f"shim.{problem}"]


@pytest.mark.spec("40.8", "46.1", "46.2", "46.3", "46.4", "46.5", "46.6", "46.7", "46.8")
def test_unknown_keys_are_warnings_with_a_guess(judged: Judged) -> None:
    parsed = judged(shim="orgins: ['*']")
    assert parsed.valid
    assert "did you mean origins?" in parsed.warnings[0].message
