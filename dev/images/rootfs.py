"""The root of the base image: the files of packages, without what installs or documents them."""

import fnmatch
import io
import subprocess
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dev.images.debian import BaseSpec
from dev.images.errors import ImageError

USER = 65532
"""User and group that the programs run as."""
MERGED = ("bin", "sbin", "lib", "lib64")
"""Folders that are links into /usr (Debian, UsrMerge)."""
TRUST = "usr/share/ca-certificates/"
DOCUMENTS = "usr/share/doc/"
BUNDLE = "etc/ssl/certs/ca-certificates.crt"
WRITTEN = {
    "etc/passwd": f"root:x:0:0:root:/root:/sbin/nologin\n"
    f"cloister:x:{USER}:{USER}:Cloister:/:/sbin/nologin\n",
    "etc/group": f"root:x:0:\ncloister:x:{USER}:\n",
    # Names are looked up in the file and in DNS, and nowhere else.
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
LINKS = {
    "usr/bin/python3": "python3.13",
    "etc/ssl/cert.pem": "certs/ca-certificates.crt",
    **{folder: f"usr/{folder}" for folder in MERGED},
}


@dataclass(frozen=True)
class Entry:
    """A file, link or folder of the image.

    Attributes
    ----------
    content
        None for a folder and a link.
    target
        Of a symbolic link; empty otherwise.
    """

    mode: int
    content: bytes | None = None
    target: str = ""


def entries(spec: BaseSpec, packages: Iterable[tuple[str, Path]]) -> dict[str, Entry]:
    """Return everything that the base holds, by its path without the first slash.

    Raises
    ------
    ImageError
        When a package cannot be unpacked.
    """
    found: dict[str, Entry] = {}
    trusted: list[bytes] = []
    for name, path in packages:
        for at, entry in _unpacked(path).items():
            if at.startswith(TRUST) and at.endswith(".crt") and entry.content is not None:
                trusted.append(entry.content)
            if _is_kept(spec, name, at, entry):
                found[at] = entry
    found[BUNDLE] = Entry(0o644, b"".join(sorted(trusted)))
    found |= {at: Entry(0o644, text.encode()) for at, text in WRITTEN.items()}
    found |= {at: Entry(0o777, target=target) for at, target in LINKS.items()}
    found["tmp"] = Entry(0o1777)
    return _without_dangling_links(found)


def write_tar(found: dict[str, Entry], path: Path, when: int) -> None:
    """Write entries as a tar whose bytes follow from them alone.

    Parameters
    ----------
    when
        Time of every file, in seconds of Unix time.
    """
    parents = {
        str(parent): Entry(0o755)
        for at in found
        for parent in Path(at).parents
        if str(parent) not in {".", *found}
    }
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        for at, entry in sorted((parents | found).items()):
            info = tarfile.TarInfo(at)
            info.mode, info.mtime = entry.mode, when
            if entry.target:
                info.type, info.linkname = tarfile.SYMTYPE, entry.target
            elif entry.content is None:
                info.type = tarfile.DIRTYPE
            else:
                info.size = len(entry.content)
            archive.addfile(info, io.BytesIO(entry.content or b""))


def _unpacked(path: Path) -> dict[str, Entry]:
    """Return the files and links of a package; folders follow from them."""
    done = subprocess.run(["dpkg-deb", "--fsys-tarfile", path], capture_output=True, check=False)
    if done.returncode != 0:
        raise ImageError(f"{path.name}: {done.stderr.decode('utf-8', 'replace').strip()}")
    found: dict[str, Entry] = {}
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        for member in archive:
            at = _merged(member.name.removeprefix("./"))
            if member.issym():
                found[at] = Entry(0o777, target=member.linkname)
            elif member.islnk():
                found[at] = found[_merged(member.linkname.removeprefix("./"))]
            elif member.isfile():
                stream = archive.extractfile(member)
                # Nothing in the image may become another user.
                found[at] = Entry(member.mode & 0o777, stream.read() if stream else b"")
    return found


def _merged(at: str) -> str:
    """Return a path as it is on a system whose /bin and /lib are links into /usr."""
    return f"usr/{at}" if at.split("/", 1)[0] in MERGED else at


def _is_kept(spec: BaseSpec, package: str, at: str, entry: Entry) -> bool:
    # A package may have the folder of its documents from another one, by a link.
    linked = bool(entry.target) and at == f"{DOCUMENTS}{package}"
    if linked or any(fnmatch.fnmatchcase(at, pattern) for pattern in spec.licences):
        return True
    if package in spec.only:
        return at in spec.only[package]
    if any(fnmatch.fnmatchcase(at, pattern) for pattern in spec.drop):
        return False
    first = (entry.content or b"")[:64].split(b"\n", 1)[0]
    return not (first.startswith(b"#!") and _interpreter(first) in spec.interpreters)


def _interpreter(line: bytes) -> str:
    words = line.removeprefix(b"#!").decode("ascii", "replace").split()
    named = words[1] if words[0].endswith("/env") and len(words) > 1 else words[0]
    return named.rsplit("/", 1)[-1]


def _without_dangling_links(found: dict[str, Entry]) -> dict[str, Entry]:
    """Leave out links to what was left out."""
    folders = {str(parent) for at in found for parent in Path(at).parents}

    def leads_somewhere(at: str, entry: Entry) -> bool:
        if not entry.target:
            return True
        target = Path("/", Path(at).parent, entry.target)
        parts: list[str] = []
        for part in target.parts[1:]:
            parts = parts[:-1] if part == ".." else [*parts, part]
        resolved = _merged("/".join(parts))
        return resolved in found or resolved in folders

    return {at: entry for at, entry in found.items() if leads_somewhere(at, entry)}
