"""The image of kind's node, as a tar in the cache: kind's own files, and programs of ours.

It follows kind's Dockerfile (`images/base` of its module) with packages of Debian, and has the
images of the control plane in a file that containerd imports at the first start.
"""

import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from dev.cluster import binaries
from dev.cluster.binaries import environment, go_version, load
from dev.cluster.images import Archive
from dev.cluster.kind import control_plane, docker, root
from dev.cluster.layout import NODE_IMAGE, LocalClusterError, lock
from dev.cluster.processes import Progress, duration

PLACES: Final = {
    "usr/bin": ("kubeadm", "kubelet", "kubectl"),
    "usr/local/bin": ("containerd", "containerd-shim-runc-v2", "ctr"),
    "usr/local/sbin": ("runc",),
    "opt/cni/bin": ("bridge", "host-local", "loopback", "portmap"),
}
"""Folder of the node -> programs."""
PROGRAMS: Final = tuple(
    dict.fromkeys([*control_plane.PROGRAMS, *(name for each in PLACES.values() for name in each)])
)
"""Every program of the node and of its control plane."""
OWN: Final = Path(__file__).parent / "files"
FOLDERS: Final = ("etc/kubernetes/manifests",)
UNITS: Final = "etc/systemd/system"
STARTED: Final = ("kubelet", "containerd", "undo-mount-hacks", "cloister-images")
START: Final = {
    "Env": [
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "container=docker",
        # systemd 256 and newer starts on control groups of version 1 only when it is told to.
        "SYSTEMD_PROC_CMDLINE=SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1",
    ],
    "Entrypoint": ["/usr/local/bin/entrypoint", "/sbin/init"],
    "StopSignal": "SIGRTMIN+3",
}
"""How the node is started, as kind's Dockerfile has it."""


def key() -> str:
    """Hash what the image follows from: 12 hexadecimal digits.

    Packages of Debian are those of the day on which it is made.
    """
    modules = {load().module_of(name).name for name in (*PROGRAMS, "kind")}
    keys = [binaries.key_of(load().modules[name], go_version()) for name in sorted(modules)]
    digest = hashlib.sha256(repr((keys, root.key())).encode())
    sources = [Path(__file__), Path(control_plane.__file__), *_files(OWN)]
    for path in sources:
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def name() -> str:
    """Return the name of the image in Docker."""
    return f"cloister-kind-node:{key()}"


def archive(progress: Progress) -> Path:
    """Return the image as `docker load` reads it; make it when it is not in the cache.

    Raises
    ------
    LocalClusterError
        When a program cannot be built, or the packages cannot be had.
    """
    folder = binaries.cache_folder() / "kind"
    made = folder / f"node-{key()}.tar"
    if made.exists():
        os.utime(made)
        return made
    folder.mkdir(parents=True, exist_ok=True)
    with lock(NODE_IMAGE):
        if not made.exists():
            since = time.monotonic()
            programs = binaries.ensure(PROGRAMS, progress)
            progress.say(f"making the image of kind's node once, {made}")
            with tempfile.TemporaryDirectory(prefix=".node-", dir=folder) as scratch:
                written = Path(scratch, "image.tar")
                layer = _write(Path(scratch), programs, root.tar(progress))
                docker.write_archive(written, name(), layer, START)
                for old in folder.glob("node-*.tar"):
                    old.unlink()
                written.rename(made)
            progress.say(f"kind's node is made after {duration(time.monotonic() - since)}")
    return made


def _write(scratch: Path, programs: Mapping[str, Path], base: Path) -> Path:
    """Write the whole root."""
    kinds = _module() / "images" / "base" / "files"
    images = scratch / "images.tar"
    found = control_plane.images(
        programs, kinds / "etc" / "containerd" / "config.toml", base, scratch / "nft"
    )
    Archive.write(images, found)
    files: dict[str, Path | bytes] = {
        **{str(path.relative_to(kinds)): path for path in _files(kinds)},
        **{str(path.relative_to(OWN)): path for path in _files(OWN)},
        **{f"{to}/{program}": programs[program] for to, each in PLACES.items() for program in each},
        "etc/containerd/cri-base.json": _runtime_spec(programs["ctr"]),
        "kind/version": f"v{load().modules['kubernetes'].version}".encode(),
        "kind/images.tar": images,
    }
    links = {
        f"{UNITS}/multi-user.target.wants/{unit}.service": f"/{UNITS}/{unit}.service"
        for unit in STARTED
    }
    # It would register formats with the kernel, which is the machine's.
    links[f"{UNITS}/systemd-binfmt.service"] = "/dev/null"
    links["usr/sbin/init"] = "/usr/lib/systemd/systemd"
    written = scratch / "node.tar"
    shutil.copyfile(base, written)
    with tarfile.open(written, "a", format=tarfile.PAX_FORMAT) as target:
        for folder in sorted({*FOLDERS, *_parents(files), *_parents(links)} - root.folders(base)):
            target.addfile(_entry(folder, 0o755, kind=tarfile.DIRTYPE))
        for at, content in sorted(files.items()):
            _add(target, at, content)
        for at, to in sorted(links.items()):
            target.addfile(_entry(at, 0o777, kind=tarfile.SYMTYPE, link=to))
    return written


def _module() -> Path:
    """Return the folder of kind's module."""
    module = load().modules["kind"]
    done = subprocess.run(
        ["go", "mod", "download", "-json", module.requires],
        cwd=module.folder,
        env=environment(release=module.go),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise LocalClusterError(f"the module {module.requires} cannot be had: {done.stdout}")
    return Path(json.loads(done.stdout)["Dir"])


def _runtime_spec(ctr: Path) -> bytes:
    """Return what containers of the node begin with: containerd's defaults, and kind's hook."""
    done = subprocess.run([str(ctr), "oci", "spec"], capture_output=True, check=True)
    spec = json.loads(done.stdout)
    del spec["process"]["rlimits"]
    hooks = spec.setdefault("hooks", {}).setdefault("createContainer", [])
    hooks.append({"path": "/kind/bin/mount-product-files.sh"})
    return json.dumps(spec, indent=1).encode()


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def _parents(paths: Mapping[str, object]) -> set[str]:
    return {str(each) for path in paths for each in Path(path).parents} - {"."}


def _add(target: tarfile.TarFile, at: str, content: Path | bytes) -> None:
    data = content if isinstance(content, bytes) else content.read_bytes()
    program = at.startswith((*PLACES, "usr/local/bin", "kind/bin"))
    entry = _entry(at, 0o755 if program else 0o644)
    entry.size = len(data)
    with tempfile.SpooledTemporaryFile() as stream:
        stream.write(data)
        stream.seek(0)
        target.addfile(entry, stream)


def _entry(at: str, mode: int, *, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(f"./{at}")
    entry.mode, entry.type, entry.linkname = mode, kind, link
    return entry
