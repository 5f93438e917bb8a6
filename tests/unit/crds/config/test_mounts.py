"""Volumes, tmpfs, devices."""

from collections.abc import Callable

import pytest

from cloister_crds.config import ContainerConfig, Rules, Tmpfs, Volume
from cloister_crds.config.rules.mounts import MAX_OPTIONS

Verdict = Callable[..., list[str]]
Built = Callable[..., ContainerConfig]
MIB = 1024 * 1024


@pytest.mark.spec("42.14", "42.33")
def test_volumes(built: Built, verdict: Verdict) -> None:
    line = "volumes: ['data:/var/data', 'cache_1.x:/c:ro']"
    assert verdict(line) == []
    assert built(line).volumes == (
        Volume(source="data", path="/var/data"),
        Volume(source="cache_1.x", path="/c", read_only=True),
    )


@pytest.mark.spec("42.14", "42.33")
@pytest.mark.parametrize("source", ["/mnt/ramdisk/x", "/srv", "/etc/app"])
def test_an_absolute_source_is_scratch_space(built: Built, verdict: Verdict, source: str) -> None:
    line = f"volumes: ['{source}:/data']"
    assert verdict(line) == ["containers[0].volumes[0] ScratchSpace?"]
    assert built(line).volumes == (Volume(source=source, path="/data"),)


@pytest.mark.spec("42.14", "42.33")
@pytest.mark.parametrize(
    "source", ["/proc", "/sys/fs", "/dev/shm", "/boot", "/", "/run/docker.sock", "/lib/modules"]
)
def test_sources_of_the_node(verdict: Verdict, source: str) -> None:
    assert verdict(f"volumes: ['{source}:/data']") == [
        "containers[0].volumes[0] NodePathNotAllowed"
    ]


@pytest.mark.spec("42.14", "42.33", "47.2")
@pytest.mark.parametrize(
    ("volume", "code"),
    [
        ("/data", "InvalidVolume"),
        ("data", "InvalidVolume"),
        (":/data", "InvalidVolume"),
        ("data:", "InvalidVolume"),
        ("data:/d:rw", "InvalidVolume"),
        ("data:/d:ro:z", "InvalidVolume"),
        ("./data:/d", "InvalidVolume"),
        ("~/x:/d", "InvalidVolume"),
        ("/a/../b:/d", "InvalidPath"),
        ("data:d", "InvalidPath"),
        ("data:/d/", "InvalidPath"),
        ("data:/d//e", "InvalidPath"),
        ("data:/d/./e", "InvalidPath"),
        ("data:/d/..", "InvalidPath"),
        ("data:/", "ReservedPath"),
        ("data:/proc/x", "ReservedPath"),
        ("data:/sys", "ReservedPath"),
        ("data:/dev", "ReservedPath"),
        ("data:/dev/shm", "ReservedPath"),
        ("data:/cloister/x", "ReservedPath"),
    ],
)
def test_volumes_that_are_refused(verdict: Verdict, volume: str, code: str) -> None:
    assert verdict(f"volumes: ['{volume}']") == [f"containers[0].volumes[0] {code}"]


def test_volumes_must_be_texts(verdict: Verdict) -> None:
    assert verdict("volumes: [{type: bind}]") == ["containers[0].volumes[0] WrongType"]
    assert verdict("volumes: 'a:/b'") == ["containers[0].volumes WrongType"]


@pytest.mark.spec("47.2")
def test_the_reserved_directory_is_named_by_the_service(verdict: Verdict) -> None:
    rules = Rules(service="harbour")
    assert verdict("volumes: ['a:/cloister']", rules=rules) == []
    assert verdict("volumes: ['a:/harbour']", rules=rules) == [
        "containers[0].volumes[0] ReservedPath"
    ]
    assert verdict("tmpfs: {/harbour/mpk: }", rules=rules) == [
        'containers[0].tmpfs["/harbour/mpk"] ReservedPath'
    ]


@pytest.mark.spec("42.16")
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("size=100m", {"size": 100 * MIB}),
        ("size=2g,mode=0700,exec", {"size": 2048 * MIB, "mode": 0o700, "executable": True}),
        ("size=4096", {"size": 4096}),
        ("size=64K", {"size": 65536}),
        ("size=25%", {"size": 2048 * MIB}),
        ("rw,nosuid,nodev,mode=1777", {"mode": 0o1777}),
        ("exec,noexec,ro", {"read_only": True}),
        ("uid=10001,gid=10002", {"uid": 10001, "gid": 10002}),
        ("nr_inodes=10k,noatime", {}),
    ],
)
def test_tmpfs(built: Built, options: str, expected: dict[str, object]) -> None:
    (mount,) = built(f"tmpfs: {{/tmp: '{options}'}}").tmpfs
    words = tuple(options.split(","))
    assert mount == Tmpfs.model_validate({"path": "/tmp", "options": words, **expected})


@pytest.mark.spec("42.16")
@pytest.mark.parametrize("nothing", ["", "''", "~"])
def test_tmpfs_without_options(built: Built, nothing: str) -> None:
    assert built(f"tmpfs: {{/tmp: {nothing}}}").tmpfs == (Tmpfs(path="/tmp"),)


@pytest.mark.spec("42.16")
@pytest.mark.parametrize(
    "options",
    [
        "size=big",
        "size=",
        "size=1t",
        "mode=rwx",
        "mode=9",
        "mode=77777",
        "uid=root",
        "gid=4294967296",
        "nr_inodes=many",
        "color=red",
        "fast",
        "size=1m,,exec",
    ],
)
def test_tmpfs_options_that_are_refused(verdict: Verdict, options: str) -> None:
    assert verdict(f"tmpfs: {{/tmp: '{options}'}}") == ['containers[0].tmpfs["/tmp"] InvalidTmpfs']


def test_count_of_tmpfs_options(verdict: Verdict) -> None:
    options = ",".join(["exec"] * (MAX_OPTIONS + 1))
    assert verdict(f"tmpfs: {{/tmp: '{options}'}}") == [
        'containers[0].tmpfs["/tmp"] TooManyEntries'
    ]


@pytest.mark.spec("42.16")
@pytest.mark.parametrize("option", ["suid", "dev"])
def test_tmpfs_options_without_effect(verdict: Verdict, option: str) -> None:
    assert verdict(f"tmpfs: {{/tmp: {option}}}") == ['containers[0].tmpfs["/tmp"] NoEffect?']


@pytest.mark.parametrize(
    ("path", "code"), [("tmp", "InvalidPath"), ("/dev/shm", "ReservedPath"), ("/", "ReservedPath")]
)
def test_tmpfs_paths(verdict: Verdict, path: str, code: str) -> None:
    field = f'tmpfs["{path}"]' if path != "tmp" else "tmpfs.tmp"
    assert verdict(f"tmpfs: {{'{path}': size=1m}}") == [f"containers[0].{field} {code}"]


def test_one_mount_at_a_path(verdict: Verdict) -> None:
    assert verdict("volumes: ['a:/d', 'b:/d']") == ["containers[0].volumes DuplicateMount"]
    assert verdict("volumes: ['a:/d']\ntmpfs: {/d: }") == ["containers[0].tmpfs DuplicateMount"]
    assert verdict("volumes: ['a:/d', 'a:/e']") == []


@pytest.mark.spec("42.15")
def test_devices(built: Built, verdict: Verdict) -> None:
    line = "devices: [/dev/fuse, '/dev/a:/dev/b', '/dev/a:/dev/c:rw']"
    assert built(line).devices == ("/dev/fuse", "/dev/a:/dev/b", "/dev/a:/dev/c:rw")
    assert verdict(line) == ["containers[0].devices RefusedByStrictRules?"]
    assert verdict("devices: []") == []


@pytest.mark.spec("42.15")
@pytest.mark.parametrize(
    "device", ["/sys/kernel", "fuse", "/dev/", "/dev/../etc", "/dev/a:b", "/dev/a:/dev/b:x"]
)
def test_devices_that_are_refused(verdict: Verdict, device: str) -> None:
    assert "containers[0].devices[0] InvalidDevice" in verdict(f"devices: ['{device}']")
