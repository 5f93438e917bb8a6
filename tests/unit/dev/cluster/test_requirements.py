"""Missing requirements are reported with their remedy."""

import io
import os
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dev.cluster import lifecycle, requirements
from dev.cluster.binaries import Versions
from dev.cluster.kind import docker as docker_program
from dev.cluster.layout import Form, LocalClusterError, Record
from dev.cluster.processes import Progress, duration
from dev.cluster.requirements import (
    check_room,
    check_system,
    install_packages,
    missing_packages,
)


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Provide a folder: ``libx-dev`` counts as installed when it contains ``x.h``."""
    table = {
        "node": {"libx-dev": str(tmp_path / "x.h"), "sh-tool": "sh", "nothing": "no-such-tool"}
    }
    versions = Versions(go="1", modules={}, packages=table)
    monkeypatch.setattr(requirements, "load", lambda: versions)
    monkeypatch.setenv("CLOISTER_STATE", str(tmp_path / "state"))
    return tmp_path


def script(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_missing_packages_are_found_by_program_or_file(packages: Path) -> None:
    assert missing_packages(["node"]) == ["libx-dev", "nothing"]
    (packages / "x.h").touch()
    assert missing_packages(["node"]) == ["nothing"]


def test_without_root_the_install_command_is_reported(
    packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(LocalClusterError, match="apt-get install libx-dev nothing"):
        install_packages(["node"], Progress(quiet=True))


def test_root_installs_packages_and_prints_it(
    packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # apt-get finds the packages only after an update, as in a fresh container image.
    body = (
        f'echo "$@" >> {packages}/calls\n'
        f'[ "$1" = update ] && touch {packages}/updated && exit 0\n'
        f"[ -e {packages}/updated ] || exit 100\n"
        f"touch {packages}/x.h; printf '#!/bin/sh\\n' > {packages}/no-such-tool\n"
        f"chmod +x {packages}/no-such-tool"
    )
    script(packages, "apt-get", body)
    monkeypatch.setenv("PATH", f"{packages}:/usr/bin:/bin")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    output = io.StringIO()
    install_packages(["node"], Progress(stream=output))
    assert "missing Debian packages: libx-dev nothing; installing them" in output.getvalue()
    calls = (packages / "calls").read_text().splitlines()
    assert [call.split()[0] for call in calls] == ["install", "update", "install"]
    install_packages(["node"], Progress(stream=output))
    assert (packages / "calls").read_text().splitlines() == calls


def test_concurrent_package_installations_wait_for_each_other(
    packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As apt-get does, it fails while another one runs; the first waits until a second has begun.
    body = (
        f"mkdir {packages}/locked || exit 100\n"
        f'echo "$1" >> {packages}/calls\n'
        f"[ -e {packages}/x.h ] || read -r _ < {packages}/go\n"
        f"touch {packages}/x.h; printf '#!/bin/sh\\n' > {packages}/no-such-tool\n"
        f"chmod +x {packages}/no-such-tool; rmdir {packages}/locked"
    )
    script(packages, "apt-get", body)
    os.mkfifo(packages / "go")
    monkeypatch.setenv("PATH", f"{packages}:/usr/bin:/bin")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    waits = threading.Barrier(3, timeout=120)
    looked = requirements.missing_packages

    def look(purposes: Iterable[str]) -> list[str]:
        lacking = looked(purposes)
        if lacking and threading.current_thread() not in begun:
            begun.add(threading.current_thread())
            waits.wait()
        return lacking

    begun: set[threading.Thread] = set()
    monkeypatch.setattr(requirements, "missing_packages", look)
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(install_packages, ["node"], Progress(quiet=True)) for _ in range(2)]
        waits.wait()
        (packages / "go").write_text("\n")
        for run in runs:
            run.result(timeout=120)
    assert (packages / "calls").read_text().split() == ["install"]


def test_a_failed_package_installation_shows_the_error(
    packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(packages, "apt-get", "echo no network >&2; exit 100")
    monkeypatch.setenv("PATH", f"{packages}:/usr/bin:/bin")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with pytest.raises(LocalClusterError, match="apt-get failed: no network"):
        install_packages(["node"], Progress(quiet=True))


def test_a_node_needs_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(
        LocalClusterError, match=r"needs root: run this as root \(sudo\), or take --simulated"
    ):
        check_system(Form.NODE)
    check_system(Form.SIMULATED)


def test_other_systems_are_referred_to_docker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(LocalClusterError, match="start Docker, then run this again"):
        check_system(Form.CONTROL_PLANE)


def test_too_little_memory_and_disk_are_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CLOISTER_STATE", str(tmp_path / "not" / "there"))
    check_room(Form.NODE, build=False, cache=tmp_path)
    monkeypatch.setattr(requirements, "STATE_DISK", 1e9)
    with pytest.raises(
        LocalClusterError, match=r"GiB are free at .*set CLOISTER_STATE to another disk"
    ):
        check_room(Form.NODE, build=False, cache=tmp_path)
    monkeypatch.setattr(requirements, "STATE_DISK", 0.0)
    monkeypatch.setattr(requirements, "BUILD_DISK", 1e9)
    check_room(Form.NODE, build=False, cache=tmp_path)
    with pytest.raises(LocalClusterError, match="set CLOISTER_CACHE"):
        check_room(Form.NODE, build=True, cache=tmp_path)
    monkeypatch.setattr(requirements, "MEMORY", {Form.NODE: 1e9})
    with pytest.raises(LocalClusterError, match="GiB of memory are available"):
        check_room(Form.NODE, build=False, cache=tmp_path)


@pytest.mark.parametrize(
    ("response", "expected"), [("echo 28.0", True), ("exit 1", False), ("echo", False)]
)
def test_docker_answers_when_the_daemon_responds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, response: str, expected: bool
) -> None:
    script(tmp_path, "docker", response)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert docker_program.answers() is expected


def test_docker_does_not_answer_where_it_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert docker_program.answers() is False


@pytest.mark.parametrize(
    ("docker", "root", "wish", "expected"),
    [
        (True, True, {"node": True}, Form.KIND),
        (False, True, {"node": True}, Form.NODE),
        (False, False, {"node": True}, Form.SIMULATED),
        (True, True, {"node": False}, Form.CONTROL_PLANE),
        (True, True, {"node": True, "simulated": True}, Form.SIMULATED),
    ],
)
def test_the_form_follows_the_machine(
    monkeypatch: pytest.MonkeyPatch,
    *,
    docker: bool,
    root: bool,
    wish: dict[str, bool],
    expected: Form,
) -> None:
    monkeypatch.delenv(lifecycle.FORM, raising=False)
    monkeypatch.setattr(docker_program, "answers", lambda: docker)
    monkeypatch.setattr("os.geteuid", lambda: 0 if root else 1000)
    assert lifecycle.form_here(**wish) is expected


@pytest.mark.parametrize(
    ("asked", "docker", "expected"),
    [
        ("node", True, Form.NODE),
        ("kind", True, Form.KIND),
        ("kind", False, "no Docker answers"),
        ("simulated", True, "set it to node or kind"),
    ],
)
def test_the_form_of_a_node_may_be_chosen(
    monkeypatch: pytest.MonkeyPatch, *, asked: str, docker: bool, expected: Form | str
) -> None:
    monkeypatch.setenv(lifecycle.FORM, asked)
    monkeypatch.setattr(docker_program, "answers", lambda: docker)
    if isinstance(expected, Form):
        assert lifecycle.form_here(node=True) is expected
    else:
        with pytest.raises(LocalClusterError, match=expected):
            lifecycle.form_here(node=True)
    # It is of clusters whose Pods run.
    assert lifecycle.form_here(node=False) is Form.CONTROL_PLANE


@pytest.mark.parametrize(
    ("asked", "docker", "expected"),
    [
        ("", True, "Docker answers: the cluster runs in it, by kind"),
        ("", False, "no Docker answers: the cluster runs as processes of this machine"),
        ("node", True, "CLOISTER_CLUSTER_FORM is node: the cluster runs as processes"),
    ],
)
def test_the_way_that_a_new_cluster_takes_is_said(
    monkeypatch: pytest.MonkeyPatch, *, asked: str, docker: bool, expected: str
) -> None:
    monkeypatch.setenv(lifecycle.FORM, asked)
    monkeypatch.setattr(docker_program, "answers", lambda: docker)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    output = io.StringIO()
    lifecycle._form(None, node=True, simulated=False, progress=Progress(stream=output))
    assert expected in output.getvalue()


@pytest.mark.parametrize(
    ("known", "wish", "expected"),
    [
        (Form.NODE, {"node": False}, Form.NODE),
        (Form.NODE, {"node": True}, Form.NODE),
        (Form.CONTROL_PLANE, {"node": False}, Form.CONTROL_PLANE),
        (Form.CONTROL_PLANE, {"node": True}, None),
        (Form.SIMULATED, {"node": True}, None),
        (Form.NODE, {"node": True, "simulated": True}, None),
    ],
)
def test_a_cluster_satisfies_a_lesser_request(
    monkeypatch: pytest.MonkeyPatch, known: Form, wish: dict[str, bool], expected: Form | None
) -> None:
    monkeypatch.delenv(lifecycle.FORM, raising=False)
    monkeypatch.setattr(docker_program, "answers", lambda: False)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    wishes = {"simulated": False, **wish}
    record = Record(name="dev", form=known)
    if expected is None:
        with pytest.raises(
            LocalClusterError, match=r"take it down first .* or choose another name"
        ):
            lifecycle._form(record, **wishes, progress=Progress(quiet=True))
    else:
        assert lifecycle._form(record, **wishes, progress=Progress(quiet=True)) is expected


@pytest.mark.parametrize(
    ("known", "form", "kubernetes", "variable", "expected"),
    [
        (None, Form.CONTROL_PLANE, "1.35", None, "1.35"),
        (None, Form.CONTROL_PLANE, None, "1.35", "1.35"),
        (None, Form.CONTROL_PLANE, "", "1.35", ""),
        (None, Form.CONTROL_PLANE, None, None, ""),
        (None, Form.CONTROL_PLANE, "1.36", None, ""),
        (None, Form.NODE, None, "1.35", ""),
        (None, Form.NODE, "1.35", None, "kubelets may not be newer"),
        (None, Form.CONTROL_PLANE, "1.30", None, "use 1.35, 1.36, 1.37"),
        ("1.35", Form.CONTROL_PLANE, None, None, "1.35"),
        ("1.35", Form.CONTROL_PLANE, None, "1.35", "1.35"),
        ("1.35", Form.CONTROL_PLANE, "1.37", None, "exists with Kubernetes 1.35, but 1.37"),
        ("", Form.CONTROL_PLANE, None, "1.37", "take it down first"),
    ],
)
def test_an_api_server_may_be_of_another_release(
    monkeypatch: pytest.MonkeyPatch,
    known: str | None,
    form: Form,
    kubernetes: str | None,
    variable: str | None,
    expected: str,
) -> None:
    monkeypatch.delenv(lifecycle.RELEASE, raising=False)
    if variable is not None:
        monkeypatch.setenv(lifecycle.RELEASE, variable)
    record = None if known is None else Record(name="dev", form=form, kubernetes=known)
    if " " in expected:
        with pytest.raises(LocalClusterError, match=expected):
            lifecycle._release(record, form, kubernetes)
    else:
        assert lifecycle._release(record, form, kubernetes) == expected


def test_an_unrequested_simulated_node_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(lifecycle.FORM, raising=False)
    monkeypatch.setattr(docker_program, "answers", lambda: False)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    output = io.StringIO()
    form = lifecycle._form(None, node=True, simulated=False, progress=Progress(stream=output))
    assert form is Form.SIMULATED
    assert "Pods do not really run" in output.getvalue()


def test_progress_writes_plain_lines_without_a_terminal() -> None:
    output = io.StringIO()
    progress = Progress(stream=output)
    progress.step("[1/3] etcd: packages", 5, 100, since=0)
    progress.step("[1/3] etcd: packages", 6, 100, since=0)
    progress.say("done")
    first, second = output.getvalue().splitlines()
    assert first.startswith("[1/3] etcd: packages 5/100, ")
    assert second == "done"
    assert "\x1b" not in output.getvalue()


@pytest.mark.parametrize(("seconds", "text"), [(8.4, "8 s"), (125, "2 min 05 s")])
def test_durations_are_formatted_for_people(seconds: float, text: str) -> None:
    assert duration(seconds) == text
