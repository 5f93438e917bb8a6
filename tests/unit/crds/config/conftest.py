"""Small files for the tests of rules, and verdicts in one line each."""

import textwrap
from collections.abc import Callable

import pytest

from cloister_crds.config import ContainerConfig, ParsedConfig, Rules, parse
from cloister_crds.problems import Severity

DIGEST = "sha256:" + "ab" * 32

RULES = Rules()

Verdict = Callable[..., list[str]]


def small_file(
    container: str = "",
    *,
    top: str = "",
    shim: str = "",
    version: str = "0.14.8",
    name: str = "name: app",
    image: str = f"image: ghcr.io/me/app@{DIGEST}",
) -> bytes:
    """Write a valid file with more lines in its container, at its top, in its shim."""
    lines = textwrap.indent(textwrap.dedent(f"{name}\n{image}\n{container}"), "    ")
    return (
        f"cvm-version: {version}\ncpus: 4\nmemory: 8192\n{textwrap.dedent(top)}\n"
        f"containers:\n  -\n{lines}\n"
        f"shim:\n  upstream-port: 8080\n  paths: [/*]\n"
        f"{textwrap.indent(textwrap.dedent(shim), '  ')}"
    ).encode()


def lines_of(parsed: ParsedConfig) -> list[str]:
    """Write each problem as ``field Code``, a warning with ``?`` behind it."""
    return [
        f"{one.field} {one.code}" + "?" * (one.severity is Severity.WARNING)
        for one in parsed.problems
    ]


@pytest.fixture
def verdict() -> Verdict:
    """Judge a small file: what is wrong, each problem in a line."""

    def judge(container: str = "", *, rules: Rules = RULES, **parts: str) -> list[str]:
        return lines_of(parse(small_file(container, **parts), rules=rules))

    return judge


@pytest.fixture
def judged() -> Callable[..., ParsedConfig]:
    """Judge a small file: the whole verdict."""

    def judge(container: str = "", *, rules: Rules = RULES, **parts: str) -> ParsedConfig:
        return parse(small_file(container, **parts), rules=rules)

    return judge


@pytest.fixture
def built(judged: Callable[..., ParsedConfig]) -> Callable[..., ContainerConfig]:
    """Provide the container of a small file, which must have no error."""

    def build(container: str = "", **parts: str) -> ContainerConfig:
        parsed = judged(container, **parts)
        assert parsed.config is not None, lines_of(parsed)
        return parsed.config.containers[0]

    return build
