"""Models."""

from collections.abc import Callable

import pytest

from cloister_crds.config import ModelSpec, ParsedConfig

Verdict = Callable[..., list[str]]
COMMIT = "0c" * 20
ROOT = "6d" * 32
UUID = "7dc41474-aac5-50bd-bcd5-ffff26ccad57"
MPK = f"{ROOT}_8192_{UUID}"


def model(name: str = "m", repo: str = f"owner/model@{COMMIT}", mpk: str = MPK) -> str:
    """Write a model."""
    return f"{{name: {name!r}, repo: {repo!r}, mpk: {mpk!r}}}"


@pytest.mark.spec("41.5", "45.1", "45.2", "45.3", "45.4", "45.5")
def test_models(judged: Callable[..., ParsedConfig]) -> None:
    config = judged(top=f"models: [{model('qwen-2.5_x')}]").config
    assert config is not None
    assert config.models == (
        ModelSpec(
            name="qwen-2.5_x",
            repo="owner/model",
            commit=COMMIT,
            mpk=MPK,
            root_hash=ROOT,
            offset=8192,
            uuid=UUID,
        ),
    )


@pytest.mark.spec("41.5")
def test_no_models(verdict: Verdict) -> None:
    assert verdict(top="models: []") == []
    assert verdict(top="models: {}") == ["models WrongType"]


@pytest.mark.spec("45.1", "45.2", "45.3", "45.4")
@pytest.mark.parametrize("name", ["", "-a", "a b", "a/b", "x" * 129])
def test_names_that_are_refused(verdict: Verdict, name: str) -> None:
    assert verdict(top=f"models: [{model(name)}]") == ["models[0].name InvalidName"]


@pytest.mark.spec("45.1", "45.2", "45.3", "45.4")
@pytest.mark.parametrize(
    "repo",
    ["model", f"model@{COMMIT}", "o/m", "o/m@main", f"o/m@{COMMIT[:-1]}", f"o/m@{COMMIT.upper()}"],
)
def test_repos_that_are_refused(verdict: Verdict, repo: str) -> None:
    assert verdict(top=f"models: [{model(repo=repo)}]") == ["models[0].repo InvalidModelRepo"]


@pytest.mark.spec("45.1", "45.2", "45.3", "45.4")
@pytest.mark.parametrize(
    "mpk",
    [
        ROOT,
        f"{ROOT}_8192",
        f"{ROOT}-8192",
        f"{ROOT[:-1]}_8192_{UUID}",
        f"{ROOT}_0_{UUID}",
        f"{ROOT}_8191_{UUID}",
        f"{ROOT}_08192_{UUID}",
        f"{ROOT}_8192_{UUID[:-1]}",
    ],
)
def test_metadata_that_is_refused(verdict: Verdict, mpk: str) -> None:
    assert verdict(top=f"models: [{model(mpk=mpk)}]") == ["models[0].mpk InvalidMpk"]


@pytest.mark.spec("41.5")
def test_required_keys(verdict: Verdict) -> None:
    required = [f"models[0].{key} RequiredField" for key in ("name", "repo", "mpk")]
    assert verdict(top="models: [{}]") == required


@pytest.mark.spec("48.2")
@pytest.mark.parametrize("key", ["mwp", "emwp", "key-secret"])
def test_later_keys(verdict: Verdict, key: str) -> None:
    line = model().replace("}", f", {key}: a}}")
    assert verdict(top=f"models: [{line}]") == [f"models[0].{key} NotSupported"]


def test_unknown_key(verdict: Verdict) -> None:
    line = model().replace("}", ", id: a}")
    assert verdict(top=f"models: [{line}]") == ["models[0].id UnknownField"]


@pytest.mark.spec("45.1", "45.2", "45.3", "45.4")
def test_weights_and_names_stand_once(verdict: Verdict) -> None:
    other = model("n", mpk=MPK.replace("8192", "4096"))
    assert verdict(top=f"models: [{model()}, {other}]") == ["models[1].mpk DuplicateModel"]
    other = model(mpk=MPK.replace("6d", "7d"))
    assert verdict(top=f"models: [{model()}, {other}]") == ["models[1].name DuplicateName?"]


@pytest.mark.spec("40.10")
def test_count(verdict: Verdict) -> None:
    many = [model(f"m{n}", mpk=f"{n:064x}_4096_{UUID}") for n in range(25)]
    assert verdict(top=f"models: [{', '.join(many[:24])}]") == []
    assert verdict(top=f"models: [{', '.join(many)}]") == ["models TooManyEntries"]
