"""The released images, as they are built from this checkout."""

import importlib.metadata
import json
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from dev.cluster import Progress
from dev.cluster.images import Image, guest_image, shim_image
from dev.images import debian, digests, tools
from dev.images.build import BASE, IMAGES, Build
from dev.images.commands import run
from dev.images.debian import BaseSpec
from dev.images.errors import ImageError
from dev.images.registry import push
from tests.images.conftest import Unpack
from tests.support.programs.image_container import manifests_of
from tests.support.servers.git import Repositories
from tests.support.servers.registry import OCI_INDEX, registry

pytestmark = pytest.mark.timeout(1800)

HERE = tools.architecture()
FORBIDDEN = re.compile(
    r"(sh|bash|dash|ash|zsh|busybox|perl|gcc|cc|g\+\+|ld|make|go|pip|pip3|uv|apt|apt-get|dpkg|su|sudo)"
    r"([.0-9-]*)"
)
"""Names of shells, compilers, installers and what makes another user of one."""
COMPILED = (
    *("aiohttp", "cryptography.hazmat.bindings._rust", "greenlet", "httptools", "msgspec"),
    *("psycopg", "pydantic_core", "sqlite3", "ssl", "uvloop", "yaml"),
)
"""Modules with machine code."""
READ = """
import asyncio, sys
from pathlib import Path
from cloister_clients.sources import SourceKind, SourceSettings
from cloister_clients.sources.git.provider import GitProvider
base, *hosts = sys.argv[1:]
known = Path("/dev/null") if hosts else None
settings = SourceSettings(
    kind=SourceKind.GIT, base=base, known_hosts_file=known, allow_private=tuple(hosts)
)
print(asyncio.run(GitProvider(settings).resolve("acme/app", "v1")).file.decode())
"""
LISTING = """
import importlib.metadata, re
for each in importlib.metadata.distributions():
    print(re.sub("[-_.]+", "-", each.name).lower(), each.version, sep="@")
"""
SSH = """#!/usr/bin/python3 -I
import os, shlex, sys
program, path = shlex.split(sys.argv[-1])
os.execvp("git", ["git", "-c", "safe.directory=*", program.removeprefix("git-"), path])
"""
"""In the place of ssh: starts what a server would, without its shell."""


@pytest.mark.parametrize("name", ["cloister", "cloister-guest", "cloister-shim"])
def test_two_builds_give_one_digest(
    built: Build, tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    other = _again(built, tmp_path_factory)
    assert manifests_of(other.layout, name)[HERE] == manifests_of(built.layout, name)[HERE]


_second: list[Build] = []


def _again(built: Build, folders: pytest.TempPathFactory) -> Build:
    """Build the images of this architecture once more, in another place."""
    if not _second:
        build = Build(folders.mktemp("again"), built.uv, built.release, Progress(), (HERE,))
        build.run()
        _second.append(build)
    return _second[0]


@pytest.mark.parametrize("architecture", ["amd64", "arm64"])
def test_the_command_starts_without_rights(unpack: Unpack, architecture: str) -> None:
    done = unpack("cloister", architecture).run("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"cloister {importlib.metadata.version('cloister')}\n"


@pytest.mark.parametrize("architecture", ["amd64", "arm64"])
def test_every_compiled_library_finds_what_it_is_linked_with(
    unpack: Unpack, architecture: str
) -> None:
    load = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"
    container = unpack("cloister", architecture)
    done = container.run("-I", "-c", load, *COMPILED, entrypoint=["python3"])
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", ["operator", "api"])
def test_a_program_without_its_settings_says_so(unpack: Unpack, command: str) -> None:
    done = unpack("cloister", HERE).run(command, "--config", "/etc/none.yaml")
    assert done.returncode == 1
    assert done.stderr == "Error: /etc/none.yaml: No such file or directory\n"


@pytest.mark.parametrize("architecture", ["amd64", "arm64"])
def test_the_guest_and_the_shim_start_without_rights(unpack: Unpack, architecture: str) -> None:
    said = unpack("cloister-guest", architecture).run().stderr
    assert said.startswith("guest: no command given; use one of agent, ")
    said = unpack("cloister-shim", architecture).run().stderr
    assert said.startswith("cloister-shim: -config and the path of the configuration must be given")


@pytest.mark.parametrize("name", IMAGES)
def test_nothing_is_there_that_an_intruder_would_look_for(unpack: Unpack, name: str) -> None:
    container = unpack(name, HERE)
    assert container.config["config"]["User"] == "65532:65532"
    programs = [
        path for path in container.root.rglob("*") if path.is_file() and path.stat().st_mode & 0o111
    ]
    assert programs
    assert [path for path in programs if FORBIDDEN.fullmatch(path.name)] == []
    assert not any(path.lstat().st_mode & (stat.S_ISUID | stat.S_ISGID) for path in programs)
    assert list(container.root.rglob("pip-*.dist-info")) == []


def test_a_directory_and_ssh_are_read_without_a_shell(unpack: Unpack, tmp_path: Path) -> None:
    Repositories(tmp_path / "repositories").create("acme/app").release("v1", b"the file")
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "ssh").write_text(SSH)
    (programs / "ssh").chmod(0o755)
    _let_others_read(tmp_path)
    container = unpack("cloister", HERE)
    for base in (["/repositories"], ["ssh://git@127.0.0.1:2222/repositories", "127.0.0.1:2222"]):
        done = container.run(
            *("-I", "-c", READ, *base),
            entrypoint=["python3"],
            environment=["PATH=/programs:/usr/bin"],
            binds={tmp_path / "repositories": "/repositories", programs: "/programs"},
        )
        assert (done.stdout, done.stderr) == ("the file\n", "")


def test_git_and_ssh_find_what_they_are_linked_with(unpack: Unpack) -> None:
    container = unpack("cloister", HERE)
    https = container.run("ls-remote", "https://127.0.0.1:1/x", entrypoint=["git"])
    assert "Failed to connect to 127.0.0.1 port 1" in https.stderr
    ssh = container.run("-F", "/dev/null", "-p", "1", "127.0.0.1", entrypoint=["ssh"])
    assert "connect to host 127.0.0.1 port 1: Connection refused" in ssh.stderr


def _let_others_read(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        path.chmod(path.stat().st_mode | (0o055 if path.is_dir() else 0o044))


def test_the_bill_lists_every_installed_distribution(built: Build, unpack: Unpack) -> None:
    said = unpack("cloister", HERE).run("-I", "-c", LISTING, entrypoint=["python3"]).stdout
    bill = bill_of(built, "cloister")
    purls = [each["purl"] for each in bill["components"]]
    listed = {each.partition("/")[2] for each in purls if "pkg:deb" not in each}
    assert len(listed) > 40
    assert set(said.split()) == listed
    locked = {each.name for each in debian.read_lock(HERE)}
    packages = {each["name"] for each in bill["components"] if "pkg:deb" in each["purl"]}
    assert packages == locked


def test_the_bill_of_the_guest_lists_the_modules_of_its_program(built: Build) -> None:
    bill = bill_of(built, "cloister-guest")
    program = built.target / f"cloister-guest-{HERE}" / "root" / "guest"
    said = run(["go", "version", "-m", program]).decode()
    modules = set(re.findall(r"\tdep\t(\S+)", said))
    assert modules
    assert {each["name"] for each in bill["components"]} == modules | {"stdlib"}


def bill_of(built: Build, name: str) -> dict[str, Any]:
    """Return the bill of materials of an image of this architecture."""
    path = built.target / "sbom" / f"{name}-{HERE}.cdx.json"
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.mark.parametrize("name", IMAGES)
def test_the_bill_names_the_image_and_for_each_part_licences_and_supplier(
    built: Build, name: str
) -> None:
    bill = bill_of(built, name)
    described = bill["metadata"]["component"]
    digest = f"sha256:{described['hashes'][0]['content']}"
    assert digest == manifests_of(built.layout, name)[HERE]
    parts = bill["components"]
    assert [each["name"] for each in parts if not each["licenses"] or not each["supplier"]] == []
    for each in parts:
        if each["purl"].startswith("pkg:pypi"):
            (wheel,) = each["externalReferences"]
            assert each["hashes"] == wheel["hashes"]


@pytest.mark.parametrize("name", IMAGES)
def test_the_text_of_every_licence_is_in_the_image(built: Build, unpack: Unpack, name: str) -> None:
    root = unpack(name, HERE).root
    own = root / "usr" / "share" / "licenses"
    assert (own / "cloister" / "LICENSE").is_file()
    for each in bill_of(built, name)["components"]:
        kind = each["purl"].partition("/")[0]
        if kind == "pkg:deb":
            assert (root / "usr" / "share" / "doc" / each["name"] / "copyright").stat().st_size
        elif kind == "pkg:golang":
            assert list((own / f"{each['name']}@{each['version']}").iterdir())
    for text in root.glob("usr/share/doc/*/copyright"):
        for named in re.findall(r"/usr/share/common-licenses/([\w.-]*\w)", text.read_text()):
            assert (
                name != "cloister" or (root / "usr" / "share" / "common-licenses" / named).exists()
            )


def test_images_and_their_indexes_say_what_they_are(built: Build) -> None:
    listed = json.loads((built.layout / "index.json").read_text())["manifests"]
    for entry in listed:
        index = json.loads(blob(built, entry["digest"]))
        if entry["annotations"]["org.opencontainers.image.ref.name"] == BASE:
            continue
        annotations = {
            name.removeprefix("org.opencontainers.image."): text
            for name, text in index["annotations"].items()
        }
        assert annotations.keys() == {"title", "description", "version", "revision", "vendor"}
        manifest = json.loads(blob(built, index["manifests"][0]["digest"]))
        labels = json.loads(blob(built, manifest["config"]["digest"]))["config"]["Labels"]
        assert labels == index["annotations"]


def blob(built: Build, digest: str) -> bytes:
    """Return a blob of the built images."""
    return (built.layout / "blobs" / digest.replace(":", "/")).read_bytes()


def test_a_package_with_another_digest_than_the_locked_one_is_refused(tmp_path: Path) -> None:
    tampered = tmp_path / "base.lock"
    rows = debian.LOCK.read_text().splitlines()
    (row,) = (each for each in rows if each.startswith(f"{HERE} netbase "))
    tampered.write_text(f"{row[:-64]}{'0' * 64}\n")
    sentence = r"do not have the SHA-256 that is locked: netbase \S+; renew .* `make images-lock`"
    with pytest.raises(ImageError, match=sentence):
        debian.fetch(BaseSpec.read(), HERE, tmp_path / "debs", tampered)


@pytest.mark.programs("registry")
def test_the_lock_names_what_a_registry_has_after_the_push(built: Build, tmp_path: Path) -> None:
    locked = digests.read(built.target / "images.lock")
    assert set(locked) == {BASE, *IMAGES}
    with registry(tmp_path) as server:
        push(built.layout, locked, f"{server.host}/cloister", "1.2.3")
        for name, digest in locked.items():
            place = f"http://{server.host}/v2/cloister/{name}/manifests"
            for reference in ("1.2.3", digest):
                found = httpx.get(f"{place}/{reference}", headers={"Accept": OCI_INDEX})
                assert found.headers["Docker-Content-Digest"] == digest


@pytest.mark.parametrize(
    ("name", "small"), [("cloister-guest", guest_image), ("cloister-shim", shim_image)]
)
def test_the_images_of_tests_start_as_those_that_are_released(
    unpack: Unpack, name: str, small: Callable[[], Image]
) -> None:
    released = unpack(name, HERE).config["config"]
    own = json.loads(small().config("sha256:0"))["config"]
    for key in ("Entrypoint", "Cmd", "User"):
        assert own.get(key) == released.get(key)
    # A builder adds a PATH where there is none.
    assert set(own.get("Env", ())) <= set(released["Env"])
