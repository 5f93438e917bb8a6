"""The list of versions, and its agreement with the modules."""

import re
from pathlib import Path

import pytest

from dev.cluster import binaries
from dev.cluster.binaries import FOLDER, Module, load
from dev.cluster.layout import Form
from dev.cluster.lifecycle import programs_of

ROOT = Path(__file__).parents[4]
MODULES = sorted(load().modules.values(), key=lambda module: module.name)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_the_go_mod_file_requires_the_pinned_version(module: Module) -> None:
    text = (module.folder / "go.mod").read_text()
    if module.requires:
        assert re.findall(rf"(?m)^\s*(?:require )?{module.requires} v(\S+)", text) == [
            module.version
        ]
    else:
        assert "require" not in text


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_the_go_mod_file_names_the_programs_as_tools(module: Module) -> None:
    text = (module.folder / "go.mod").read_text()
    tools = set(re.findall(r"(?m)^(?:tool )?\t?([\w./-]+)$", text.partition("require")[0]))
    own = re.search(r"(?m)^module (\S+)$", text)
    assert own
    assert set(module.binaries.values()) <= tools | {own[1]}


def test_every_module_is_listed() -> None:
    folders = {path.parent.name for path in (FOLDER / "modules").glob("*/go.mod")}
    assert folders == set(load().modules)


def test_every_module_of_the_checkout_names_the_go_that_builds_it() -> None:
    found = [*ROOT.glob("[a-z]*/**/go.mod")]
    assert len(found) >= len(MODULES) + 1
    own = {module.folder / "go.mod": module.go for module in MODULES if module.go}
    assert load().go not in own.values()
    for path in found:
        wanted = f"toolchain go{own.get(path, load().go)}"
        assert wanted in path.read_text().splitlines(), path


@pytest.mark.parametrize("form", Form)
def test_every_program_of_a_form_is_built_by_a_module(form: Form) -> None:
    names = programs_of(form)
    assert names
    assert {load().module_of(name).name for name in names} <= set(load().modules)


def test_another_release_of_kubernetes_changes_the_api_server_alone() -> None:
    usual = programs_of(Form.CONTROL_PLANE)
    assert load().other_kubernetes == ("1.35", "1.37")
    for release in load().other_kubernetes:
        names = programs_of(Form.CONTROL_PLANE, release)
        assert set(names) ^ set(usual) == {"kube-apiserver", f"kube-apiserver-{release}"}
        assert load().module_of(f"kube-apiserver-{release}").version.startswith(f"{release}.")


def test_kubernetes_binaries_have_their_version_linked_in() -> None:
    flags = load().modules["kubernetes"].ldflags
    version = load().modules["kubernetes"].version
    assert f"-X k8s.io/component-base/version.gitVersion=v{version}" in flags
    assert "gitMinor=36" in flags


def module_of(name: str, **changes: object) -> Module:
    settings: dict[str, object] = {"name": name, "binaries": {name: "example.org/x"}, **changes}
    return Module(**settings)  # type: ignore[arg-type]  # the settings of each case


def test_the_key_changes_with_sources_flags_and_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dev.cluster.binaries.FOLDER", tmp_path)
    folder = tmp_path / "modules" / "a"
    folder.mkdir(parents=True)
    (folder / "go.mod").write_text("module a\n")
    plain = module_of("a")
    keys = [
        binaries.key_of(plain, "1.26.6"),
        binaries.key_of(plain, "1.26.7"),
        binaries.key_of(module_of("a", tags=("seccomp",)), "1.26.6"),
        binaries.key_of(module_of("a", cgo=True), "1.26.6"),
        binaries.key_of(module_of("a", variables=("x.y=1",)), "1.26.6"),
    ]
    (folder / "go.sum").write_text("a v1\n")
    keys.append(binaries.key_of(plain, "1.26.6"))
    (folder / "main.go").write_text("package main\n")
    keys.append(binaries.key_of(plain, "1.26.6"))
    assert len(set(keys)) == len(keys)
    (folder / "README").write_text("not built")
    assert binaries.key_of(plain, "1.26.6") == keys[-1]
