"""What passes the rule about an enclave's size fits into its ConfigMap."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from cloister_crds.config import ParsedConfig, Rules, parse
from cloister_crds.lifecycle.admission.limits import MAX_ENCLAVE_BYTES, size_problems
from tests.support.builders.enclave_plans import (
    SETTINGS,
    SURROUNDINGS,
    build_config_map,
    host_of,
    plan_of,
)

IMAGE = "registry.example/x@sha256:" + "ab" * 32


def file_with(containers: int = 1, body: str = "", shim: str = "paths: [/]") -> ParsedConfig:
    """Write and parse a file."""
    entries = "".join(f"- name: c{n}\n  image: {IMAGE}\n{body}" for n in range(containers))
    shim = f"shim: {{upstream-port: 80, upstream-container: c0, {shim}}}\n"
    text = f"cvm-version: 0.10.0\ncpus: 2\nmemory: 8192\ncontainers:\n{entries}{shim}"
    parsed = parse(text.encode(), rules=Rules(release=True))
    assert parsed.config is not None, parsed.problems[:3]
    return parsed


def paths(key: str, *, length: int) -> str:
    """Write a list of as many paths as are allowed."""
    return f"{key}: [" + ", ".join(f"/{n:03}{'a' * length}" for n in range(256)) + "]"


def files() -> Iterator[tuple[str, ParsedConfig]]:
    """Return files in which one part is as large as the rule lets it be, or nearly."""
    yield "containers", file_with(64)
    yield "words", file_with(64, "  command: [" + ", ".join(["a"] * 110) + "]\n")
    quotes = ", ".join(['\'""""""""""\''] * 64)
    yield "quotes", file_with(60, f"  command: [{quotes}]\n")
    yield "escapes", file_with(60, '  command: ["' + "\\x01" * 900 + '"]\n')
    yield "environment", file_with(64, "  env:\n" + "".join(f"  - A{n}: x\n" for n in range(60)))
    yield "paths", file_with(shim=paths("paths", length=270))
    endpoints = "paths: [/*], authenticated: true, " + paths("authenticated-endpoints", length=130)
    yield "endpoints", file_with(shim=endpoints)


FILES = dict(files())


MACHINE = host_of(tee="SNP", teeUnit="Pod", runtimeClassName="kata-qemu-snp")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("machine", [False, True], ids=["node", "machine"])
def test_what_passes_the_rule_fits_into_the_config_map(name: str, *, machine: bool) -> None:
    parsed = FILES[name]
    assert parsed.config is not None
    assert not list(size_problems(parsed.config, len(parsed.raw), {}, machine=machine))
    host = MACHINE if machine else host_of()
    plan = replace(plan_of(config=parsed.config, host=host), file=parsed.raw)
    data = build_config_map(plan, SETTINGS, SURROUNDINGS)["data"]
    documents = sum(len(each.encode()) for each in data.values())
    assert len(parsed.raw) + documents <= MAX_ENCLAVE_BYTES


@pytest.mark.parametrize(
    ("shim", "images", "field"),
    [
        (paths("paths", length=700), 0, "shim.paths"),
        (
            "paths: [/*], authenticated: true, " + paths("authenticated-endpoints", length=200),
            0,
            "shim.authenticated-endpoints",
        ),
        ("paths: [/]", 60_000, "containers"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_largest_part_and_the_bound(
    shim: str, images: int, field: str
) -> None:
    parsed = file_with(20, shim=shim)
    assert parsed.config is not None
    (problem,) = size_problems(parsed.config, len(parsed.raw), {IMAGE: images}, machine=False)
    assert (problem.field, problem.code) == (field, "EnclaveTooLarge")
    assert f"at most {MAX_ENCLAVE_BYTES} can be" in problem.message


@pytest.mark.parametrize("mark", ["x", "'", '"'])
def test_what_images_say_fits_into_the_rules_of_a_machine(mark: str) -> None:
    parsed = file_with(30)
    assert parsed.config is not None
    env = [f"A{number}={mark * 100}" for number in range(50)]
    size = sum(map(len, env))
    assert not list(size_problems(parsed.config, len(parsed.raw), {IMAGE: size}, machine=True))
    images: tuple[dict[str, object], ...] = tuple(
        {"container": f"c{number}", "image": IMAGE, "env": env} for number in range(30)
    )
    plan = plan_of(config=parsed.config, host=MACHINE, images=images)
    data = build_config_map(plan, SETTINGS, SURROUNDINGS)["data"]
    assert sum(len(each.encode()) for each in data.values()) <= MAX_ENCLAVE_BYTES
