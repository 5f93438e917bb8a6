"""The top of the file: its keys, the enclave's resources, versions, unknown keys."""

from collections.abc import Callable

import pytest

from cloister_crds.config import ParsedConfig, Rules, parse

Verdict = Callable[..., list[str]]
Judged = Callable[..., ParsedConfig]


@pytest.mark.spec("41.4")
def test_a_small_file_is_valid(judged: Judged) -> None:
    parsed = judged()
    assert parsed.valid
    assert parsed.problems == ()
    assert parsed.config is not None
    assert parsed.config.cvm_version == "0.14.8"
    assert (parsed.config.cpus, parsed.config.memory, parsed.config.gpus) == (4, 8192, 0)
    assert parsed.config.container("app").image.startswith("ghcr.io/me/app@sha256:")
    with pytest.raises(KeyError):
        parsed.config.container("other")


@pytest.mark.spec("41.1", "41.2", "41.3")
def test_required_keys() -> None:
    found = {(one.field, one.code) for one in parse(b"{}").problems}
    required = ("cvm-version", "cpus", "memory", "containers", "shim")
    assert found == {(key, "RequiredField") for key in required}


@pytest.mark.spec("41.1")
@pytest.mark.parametrize("version", ["0.14.8", "'0.14.8'", f"1.2.3@sha256:{'0' * 64}"])
def test_versions(judged: Judged, version: str) -> None:
    config = judged(version=version).config
    assert config is not None
    assert config.version in {(0, 14, 8), (1, 2, 3)}
    assert (config.cvm_digest is not None) == ("@" in version)


@pytest.mark.spec("41.1")
@pytest.mark.parametrize(
    "version",
    ["v0.14.8", "0.14.8.1", "0.14.x", "'0.14'", "01.2.3", "<CVM_VERSION>", "1.2.3@sha256:ab"],
)
def test_invalid_versions(verdict: Verdict, version: str) -> None:
    assert verdict(version=version) == ["cvm-version InvalidVersion"]


@pytest.mark.spec("41.1")
@pytest.mark.parametrize("version", ["0.14", "1", "1.10"])
def test_versions_that_are_numbers(verdict: Verdict, version: str) -> None:
    assert verdict(version=version) == ["cvm-version InvalidVersion"]


def with_resources(cpus: str = "2", memory: str = "8192", gpus: str = "") -> bytes:
    """Write a file with these resources."""
    more = f"gpus: {gpus}\n" if gpus else ""
    image = f"app@sha256:{'a' * 64}"
    return (
        f"cvm-version: 0.14.0\ncpus: {cpus}\nmemory: {memory}\n{more}"
        f"containers: [{{name: app, image: '{image}'}}]\nshim: {{upstream-port: 80, paths: [/]}}\n"
    ).encode()


@pytest.mark.spec("12.7", "41.2", "41.3", "41.9")
@pytest.mark.parametrize("cpus", [2, 4, 8, 16, 32])
def test_cpu_tiers(cpus: int) -> None:
    assert parse(with_resources(cpus=str(cpus))).valid


@pytest.mark.spec("41.2")
@pytest.mark.parametrize("cpus", ["1", "3", "128", "0", "-2"])
def test_cpus_beyond_the_tiers(cpus: str) -> None:
    problems = parse(with_resources(cpus=cpus)).problems
    assert [one.field for one in problems] == ["cpus"]
    assert problems[0].code in {"NotOffered", "OutOfRange"}


@pytest.mark.spec("12.8", "41.2", "41.3", "41.9")
@pytest.mark.parametrize("memory", [8192, 16384, 32768, 65536, 131072, 262144, 524288])
def test_memory_tiers(memory: int) -> None:
    assert parse(with_resources(memory=str(memory))).valid


@pytest.mark.spec("41.3")
@pytest.mark.parametrize("memory", ["4096", "8191", "1048576"])
def test_memory_beyond_the_tiers(memory: str) -> None:
    assert [one.code for one in parse(with_resources(memory=memory)).problems] == ["NotOffered"]


@pytest.mark.spec("41.2", "41.3", "41.4", "41.9")
def test_tiers_are_settings() -> None:
    rules = Rules(cpu_tiers=(128,), memory_tiers=(4096,), gpu_counts=(4,))
    assert parse(with_resources("128", "4096", "4"), rules=rules).valid
    assert len(parse(with_resources("2", "8192", "1"), rules=rules).errors) == 3


@pytest.mark.spec("12.9", "41.4")
@pytest.mark.parametrize("gpus", ["1", "8"])
def test_gpu_counts(gpus: str) -> None:
    parsed = parse(with_resources(gpus=gpus))
    assert parsed.config is not None
    assert parsed.config.gpus == int(gpus)
    assert [one.code for one in parsed.warnings] == ["GpusUnused"]


@pytest.mark.spec("41.4")
def test_no_gpus_may_be_written_as_zero() -> None:
    parsed = parse(with_resources(gpus="0"), rules=Rules(release=True))
    assert parsed.config is not None
    assert parsed.config.gpus == 0
    assert [(one.field, one.code) for one in parsed.problems] == [("gpus", "NoEffect")]


@pytest.mark.spec("41.4")
@pytest.mark.parametrize("gpus", ["2", "4", "-1", "'0'", "all"])
def test_gpu_counts_that_are_not_offered(gpus: str) -> None:
    assert [one.field for one in parse(with_resources(gpus=gpus)).errors] == ["gpus"]


@pytest.mark.spec("40.8")
def test_unknown_keys_are_errors_with_a_guess(judged: Judged) -> None:
    problems = judged("comand: [a]\nzzz: 1", top="-gpus: 0").errors
    assert [(one.field, one.code) for one in problems] == [
        ("-gpus", "UnknownField"),
        ("containers[0].comand", "UnknownField"),
        ("containers[0].zzz", "UnknownField"),
    ]
    guesses = ["did you mean gpus?", "did you mean command?", "remove it"]
    for problem, guess in zip(problems, guesses, strict=True):
        assert guess in problem.message


@pytest.mark.spec("40.8")
@pytest.mark.parametrize(
    ("key", "hint"),
    [("args", "command"), ("environment", "env"), ("mem_limit", "memory"), ("registry", "cred")],
)
def test_keys_of_related_formats_have_a_hint(judged: Judged, key: str, hint: str) -> None:
    (problem,) = judged(f"{key}: a").problems
    assert problem.code == "UnknownField"
    assert hint in problem.message


@pytest.mark.spec("48.2")
@pytest.mark.parametrize("key", ["ports", "models", "cvm_admin", "attestation", "keys"])
def test_later_keys_of_containers(verdict: Verdict, key: str) -> None:
    assert verdict(f"{key}: [a]") == [f"containers[0].{key} NotSupported"]


@pytest.mark.spec("48.2")
@pytest.mark.parametrize("key", ["attested-keys", "volumes"])
def test_later_keys_of_the_file(verdict: Verdict, key: str) -> None:
    assert verdict(top=f"{key}: []") == [f"{key} NotSupported"]


@pytest.mark.spec("41.10")
@pytest.mark.parametrize("key", ["cvm-network", "shim-version", "ovmf-version", "keyserver-url"])
def test_keys_without_effect(judged: Judged, key: str) -> None:
    parsed = judged(top=f"{key}: {{any: [thing]}}")
    assert parsed.valid
    assert [(one.field, one.code) for one in parsed.warnings] == [(key, "NoEffect")]
    assert "no effect" in parsed.warnings[0].message


@pytest.mark.spec("42.35")
def test_refused_keys_say_why(judged: Judged) -> None:
    problems = judged("privileged: true\ncap_drop: [ALL]").problems
    assert [(one.field, one.code) for one in problems] == [
        ("containers[0].privileged", "NotAllowed"),
        ("containers[0].cap_drop", "NotAllowed"),
    ]
    assert "cap_add" in problems[0].message
    assert "dropped" in problems[1].message


@pytest.mark.spec("40.7")
def test_all_problems_are_reported_in_the_order_of_the_file() -> None:
    raw = b"cpus: 3\nmemory: 1\ncvm-version: x\ncontainers: [{nam: a}]\nshim: {}\n"
    problems = parse(raw).problems
    assert [one.code for one in problems] == [
        "NotOffered",
        "NotOffered",
        "InvalidVersion",
        "RequiredField",
        "RequiredField",
        "UnknownField",
        "RequiredField",
        "RequiredField",
    ]
    assert [one.line for one in problems] == [1, 2, 3, 4, 4, 4, 5, 5]


@pytest.mark.spec("40.7")
def test_each_message_names_the_thing_and_the_remedy(judged: Judged) -> None:
    parsed = judged("cpus: 0\nsecrets: ['a b']\ntmpfs: {/proc: x}", top="networks: {A: {}}")
    assert len(parsed.errors) == 5
    for problem in parsed.problems:
        assert not problem.message.startswith(("is ", "has ", "needs "))
        assert (
            ": write" in problem.message
            or ": mount" in problem.message
            or ": list" in (problem.message)
        )
    assert "cpus is 0: write a number" in " ".join(one.message for one in parsed.errors)


@pytest.mark.spec("41.6", "42.11", "42.12", "44.9", "48.1")
def test_strict_rules_are_warnings_until_set(verdict: Verdict) -> None:
    line = "ipc: host"
    warned, refused = (f"containers[0].ipc RefusedByStrictRules{mark}" for mark in ("?", ""))
    assert verdict(line) == [warned]
    assert verdict(line, rules=Rules(strict_from="0.14.9")) == [warned]
    assert verdict(line, rules=Rules(strict_from="0.14.8")) == [refused]
    assert verdict(line, version="0.15.0", rules=Rules(strict_from="0.14.9")) == [refused]


def test_strict_from_must_be_a_version() -> None:
    with pytest.raises(ValueError, match=r"X\.Y\.Z"):
        Rules(strict_from="0.14")
