"""Runs the program git so that neither a repository nor the environment can steer it.

Only `GitProvider` calls it. Every lookup gets a directory of its own with an empty bare
repository; git sees no configuration but the one written here, no variable of the process, no
hook, and only the protocols that one call may speak. Output, written files, memory and time are
bounded.
"""

import asyncio
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cloister_clients.sources.errors import SourceUnavailable

__all__ = ["Git", "Output", "workplace"]

OLDEST = (2, 37)
"""The first git that knows ``http.curloptResolve``."""

MAX_MEMORY_BYTES = 512 * 1024**2
"""Address space of one git process, in bytes; a pack can request more than it sends."""

MAX_ERROR_BYTES = 64 * 1024
"""How much of the error output is kept, in bytes; a server can send any amount."""

SSH = "ssh"
"""Name of the program that git starts for ssh, in the directory of a lookup."""

CONFIG = """\
[core]
	hooksPath = /dev/null
	symlinks = false
	bigFileThreshold = 1m
	deltaBaseCacheLimit = 16m
	packedGitWindowSize = 16m
	packedGitLimit = 64m
[credential]
	helper =
[fetch]
	recurseSubmodules = false
	unpackLimit = 1
	writeCommitGraph = false
[gc]
	auto = 0
[maintenance]
	auto = false
[http]
	followRedirects = false
	sslVerify = true
	proxy =
[init]
	defaultBranch = main
[pack]
	threads = 1
	writeReverseIndex = false
[protocol]
	version = 2
[submodule]
	recurse = false
[transfer]
	bundleURI = false
"""
"""Configuration of each git: nothing of it is left to a user, a system or a repository.

The unpack limit puts every fetch into one pack file, so that the limit on files bounds it and its
index; nothing else of size is written.
"""


@dataclass(frozen=True, slots=True)
class Output:
    """Result of a git process."""

    code: int
    """Exit code; negative: killed by that signal."""
    out: bytes
    """Standard output."""
    error: str
    """Standard error, its beginning."""
    overflow: bool
    """Whether there was more standard output than allowed; git was killed then."""


@contextmanager
def workplace(
    *,
    safe_directory: Path | None = None,
    ca_file: Path | None = None,
    ssh: Sequence[str] = (),
) -> Iterator[Path]:
    """Build the directory of one lookup; it is gone afterwards.

    Parameters
    ----------
    safe_directory
        Repository on this machine that may belong to another user; None: no such one.
    ca_file
        The only certificate authorities to trust; None: those of the system.
    ssh
        Command that git starts for ssh; empty: none works.
    """
    with tempfile.TemporaryDirectory(prefix="cloister-git-", ignore_cleanup_errors=True) as name:
        place = Path(name)
        text = CONFIG
        if safe_directory is not None:
            text += f"[safe]\n\tdirectory = {_quoted(safe_directory)}\n"
        if ca_file is not None:
            text += f"[http]\n\tsslCAInfo = {_quoted(ca_file)}\n"
        (place / "gitconfig").write_text(text, encoding="utf-8")
        (place / "home").mkdir()
        if ssh:
            _write_ssh(place / SSH, ssh)
        yield place


def _write_ssh(path: Path, command: Sequence[str]) -> None:
    """Write the program that git starts for ssh: git itself would need a shell to add options."""
    python = os.path.realpath(sys.executable)
    words = ", ".join(repr(word) for word in command)
    path.write_text(
        f"#!{python} -IS\nimport os, sys\nos.execvp({command[0]!r}, [{words}, *sys.argv[1:]])\n",
        encoding="utf-8",
    )
    path.chmod(0o700)


def _quoted(path: Path) -> str:
    """Write a path as a value of git's configuration."""
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


class Git:
    """The program git in one workplace."""

    def __init__(self, place: Path, *, max_file_bytes: int) -> None:
        self._place = place
        self._repository = place / "repository"
        self._max_file_bytes = max_file_bytes

    def _environment(self, protocol: str, options: Mapping[str, str]) -> dict[str, str]:
        """Build the whole environment of one call."""
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self._place / "home"),
            "LC_ALL": "C",
            "GIT_ALLOW_PROTOCOL": protocol,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": str(self._place / "gitconfig"),
            "GIT_CONFIG_COUNT": str(len(options)),
            "GIT_DIR": str(self._repository),
            "GIT_LITERAL_PATHSPECS": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_OPTIONAL_LOCKS": "0",
            # For the program that reads a directory: what git requests of servers automatically.
            "GIT_PROTOCOL": "version=2",
            "GIT_PROTOCOL_FROM_USER": "0",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "/bin/false",
            "SSH_ASKPASS": "/bin/false",
            "GIT_SSH_VARIANT": "ssh",
            "GIT_SSH": str(self._place / SSH),
        }
        for index, (key, value) in enumerate(options.items()):
            environment[f"GIT_CONFIG_KEY_{index}"] = key
            environment[f"GIT_CONFIG_VALUE_{index}"] = value
        return environment

    async def check_version(self) -> None:
        """Check that git can be given the address to connect to.

        Raises
        ------
        SourceUnavailable
            When git is not installed, or so old that it would ignore the guard's address.
        """
        said = (await self.run("version")).out.decode("utf-8", "replace")
        numbers = re.search(r"(\d{1,9})\.(\d{1,9})", said)
        found = tuple(map(int, numbers.groups())) if numbers else (0, 0)
        if found < OLDEST:
            raise SourceUnavailable(
                f"git {found[0]}.{found[1]} is installed with Cloister, and it must be "
                f"{OLDEST[0]}.{OLDEST[1]} or newer; an administrator must renew the image"
            )

    async def run(
        self,
        *arguments: str,
        protocol: str = "none",
        options: Mapping[str, str] | None = None,
        limit: int = 65536,
    ) -> Output:
        """Run one git command to its end.

        Parameters
        ----------
        protocol
            The one protocol that git may speak; ``none`` forbids each.
        options
            Configuration of only this call; it appears on no command line and in no file.
        limit
            Largest standard output, in bytes.

        Raises
        ------
        SourceUnavailable
            When git or prlimit is not installed.
        """
        process = await asyncio.create_subprocess_exec(
            # The limits of a process are inherited by what it starts: git, its transport, the
            # indexer of packs.
            _installed("prlimit"),
            "--core=0",
            f"--fsize={self._max_file_bytes}",
            f"--as={MAX_MEMORY_BYTES}",
            _installed("git"),
            *arguments,
            # SIGXFSZ stays ignored, as Python has it: git says that a file is too large instead of
            # ending without a word.
            restore_signals=False,
            cwd=self._place,
            env=self._environment(protocol, options or {}),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            (out, overflow), (error, _) = await asyncio.gather(
                _read(process.stdout, limit, on_overflow=lambda: _end(process)),
                _read(process.stderr, MAX_ERROR_BYTES, on_overflow=None),
            )
            code = await process.wait()
        finally:
            # Also when the caller is cancelled: git has children, and all of them end.
            _end(process)
            await asyncio.shield(process.wait())
        return Output(code, out, error.decode("utf-8", "replace"), overflow)


def _installed(name: str) -> str:
    """Return the path of a program."""
    program = shutil.which(name)
    if program is None:
        raise SourceUnavailable(f"the program {name} is not installed with Cloister")
    return program


def _end(process: asyncio.subprocess.Process) -> None:
    """End a process that runs, and everything that it started."""
    if process.returncode is not None:
        return
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


async def _read(
    stream: asyncio.StreamReader, limit: int, *, on_overflow: Callable[[], None] | None
) -> tuple[bytes, bool]:
    """Read a stream to its end and keep its beginning.

    Parameters
    ----------
    limit
        How many bytes are kept.
    on_overflow
        Called when there is more; None: the rest is read and dropped.
    """
    kept = bytearray()
    overflow = False
    while piece := await stream.read(65536):
        room = limit - len(kept)
        kept += piece[:room]
        if len(piece) > room and not overflow:
            overflow = True
            if on_overflow is not None:
                on_overflow()
    return bytes(kept), overflow
