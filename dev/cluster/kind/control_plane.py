"""The images that kubeadm starts a control plane from, each of one program of ours."""

import platform
import subprocess
import tarfile
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from dev.cluster.binaries import load
from dev.cluster.images import Image
from dev.cluster.layout import LocalClusterError

PROGRAMS = (
    *("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy"),
    *("etcd", "coredns", "pause"),
)
PATH = "PATH=/usr/local/bin:/usr/sbin:/usr/bin"
NFT = ("/usr/sbin/nft", "/usr/lib/*-linux-gnu/*.so*", "/lib64", "/lib", "/usr/lib64/*")
"""What kube-proxy needs of the node's root: the program nft and the libraries that it loads."""
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def architecture() -> str:
    """Return the architecture of this machine, as images name it.

    Raises
    ------
    LocalClusterError
        When no node is made for it.
    """
    machine = platform.machine()
    if machine not in ARCHITECTURES:
        known = " or ".join(ARCHITECTURES)
        raise LocalClusterError(f"kind's node is made on {known}, and this is {machine}")
    return ARCHITECTURES[machine]


def images(
    programs: Mapping[str, Path], containerd: Path, root: Path, scratch: Path
) -> dict[str, Image]:
    """Return the images by their reference, as kubeadm and containerd name them.

    Parameters
    ----------
    programs
        Name of a program -> its place; kubeadm among them.

    Raises
    ------
    LocalClusterError
        When kubeadm wants an image that is of none of the programs.
    """
    found = {reference: _image(reference, programs) for reference in _wanted(programs["kubeadm"])}
    for reference, image in list(found.items()):
        if _program(reference) == "kube-proxy":
            files, links = _nft(root, scratch)
            found[reference] = replace(image, files={**image.files, **files}, links=links)
    found[_sandbox(containerd)] = _image("pause", programs)
    return found


def _wanted(kubeadm: Path) -> list[str]:
    version = f"v{load().modules['kubernetes'].version}"
    done = subprocess.run(
        [str(kubeadm), "config", "images", "list", f"--kubernetes-version={version}"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise LocalClusterError(f"kubeadm does not say its images: {done.stderr.strip()[-500:]}")
    return done.stdout.split()


def _program(reference: str) -> str:
    """Return the program of an image: the last part of its name."""
    return reference.rpartition("/")[2].partition(":")[0]


def _image(reference: str, programs: Mapping[str, Path]) -> Image:
    name = _program(reference)
    if name not in PROGRAMS:
        raise LocalClusterError(
            f"kubeadm wants the image {reference}, and no program is called {name}: "
            "add it to dev/cluster/kind/control_plane.py"
        )
    # CoreDNS and pause are started by the images' own entry points, the others by their names.
    place = f"/{name}" if name in {"coredns", "pause"} else f"/usr/local/bin/{name}"
    return Image(
        files={place: programs[name]},
        entrypoint=[place],
        env=[PATH],
        architecture=architecture(),
    )


def _nft(root: Path, scratch: Path) -> tuple[dict[str, Path], dict[str, str]]:
    """Take nft and libraries out of the node's root: files and links by their path."""
    files, links = {}, {}
    with tarfile.open(root) as archive:
        for member in archive:
            at = member.name.removeprefix(".")
            if not any(Path(at).match(pattern) for pattern in NFT):
                continue
            if member.issym():
                links[at] = member.linkname
            elif member.isfile() and (stream := archive.extractfile(member)) is not None:
                place = scratch / at.lstrip("/")
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(stream.read())
                place.chmod(member.mode & 0o777)
                files[at] = place
    return files, links


def _sandbox(containerd: Path) -> str:
    """Return the image of every Pod's sandbox, which containerd names."""
    plugins = tomllib.loads(containerd.read_text())["plugins"]
    return str(plugins["io.containerd.grpc.v1.cri"]["sandbox_image"])
