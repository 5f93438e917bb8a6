"""Modules that read their environment when they are imported."""

from pathlib import Path

from dev.house.imports import _Watched, modules


def test_every_module_but_programs_and_migrations_is_imported(tmp_path: Path) -> None:
    for name in (
        "api/cloister_api/__init__.py",
        "api/cloister_api/__main__.py",
        "api/cloister_api/ledger/migrations/versions/0001_keys.py",
        "crds/cloister_crds/names.py",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert dict(modules(tmp_path)) == {
        "cloister_api": Path("api/cloister_api/__init__.py"),
        "cloister_crds.names": Path("crds/cloister_crds/names.py"),
    }


def test_a_module_that_reads_its_environment_on_import_is_found() -> None:
    # The watcher uses the name of the reading module, so the two need no files.
    watched = _Watched()
    eager = {"__name__": "cloister_api.eager", "environ": watched}
    exec("environ.get('HOME')", eager)
    exec("def later(): return environ['HOME']", {"__name__": "cloister_api.later"})
    exec("environ.get('HOME')", {"__name__": "somebody_else", "environ": watched})
    assert watched.readers == {
        "cloister_api.eager": "reads HOME when imported; read it when called"
    }
