"""Git over ssh, with a program in the place of ssh that starts what a server would."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from cloister_clients.sources import SourceKind, SourceSettings
from cloister_clients.sources.git.provider import GitProvider
from tests.support.servers.git import Repositories

pytestmark = pytest.mark.skipif(
    shutil.which("prlimit") is None, reason="git runs under limits of prlimit, of Linux"
)

PROGRAM = """\
#!{python}
import json, os, pathlib, sys
pathlib.Path({log!r}).write_text(json.dumps(sys.argv[1:]))
os.execvp("sh", ["sh", "-c", sys.argv[-1]])
"""


async def test_ssh_gets_its_options_and_the_release_comes_through_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repositories = Repositories(tmp_path / "it's here")
    commit = repositories.create("acme/app").release("v1", b"file")
    log, programs = tmp_path / "words", tmp_path / "bin"
    programs.mkdir()
    (programs / "ssh").write_text(PROGRAM.format(python=sys.executable, log=str(log)))
    (programs / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    settings = SourceSettings(
        kind=SourceKind.GIT,
        base=f"ssh://git@127.0.0.1:2222{repositories.path}",
        known_hosts_file=tmp_path / "known hosts",
        allow_private=("127.0.0.1:2222",),
    )
    release = await GitProvider(settings).resolve("acme/app", "v1")
    assert (release.commit, release.file) == (commit, b"file")
    words = json.loads(log.read_text())
    assert {"StrictHostKeyChecking=yes", "HostKeyAlias=[127.0.0.1]:2222"} <= set(words)
    assert f"UserKnownHostsFile={tmp_path / 'known hosts'}" in words
    assert words[words.index("-p") + 1] == "2222"
