"""What kind is told, and the images that its node is made of, without Docker."""

import io
import json
import tarfile
import tomllib
from pathlib import Path

import pytest
import yaml

from dev.cluster import Cluster, LocalClusterError, kind
from dev.cluster.binaries import load
from dev.cluster.images import NAME, Archive, Image
from dev.cluster.kind import control_plane, docker, node
from dev.cluster.layout import Form, Layout, Record
from dev.cluster.processes import Progress
from tests.support.kind.runtime import bounded


def read(path: Path) -> dict[str, bytes]:
    """Return the files of a tar."""
    with tarfile.open(path) as archive:
        streams = {each.name: archive.extractfile(each) for each in archive if each.isfile()}
        return {name: stream.read() for name, stream in streams.items() if stream is not None}


@pytest.mark.parametrize("made", [True, False])
def test_kinds_configuration_has_node_image_registry_and_loopback(
    tmp_path: Path, *, made: bool
) -> None:
    config = kind.configuration(Layout("one", tmp_path), "node:1", made=made)
    assert config["name"] == "cloister-one"
    assert config["networking"]["apiServerAddress"] == "127.0.0.1"
    (role,) = config["nodes"]
    assert role["image"] == "node:1"
    (patch,) = config["containerdConfigPatches"]
    plugins = tomllib.loads(patch)["plugins"]
    assert plugins["io.containerd.cri.v1.images"]["registry"]["config_path"] == kind.HOSTS
    (kubelet,) = map(yaml.safe_load, config["kubeadmConfigPatches"])
    assert kubelet["failCgroupV1"] is False
    # A node of ours has no network of kind's, and volumes in the cluster's folder.
    assert config["networking"].get("disableDefaultCNI", False) is made
    folder = str(tmp_path)
    mounts = [{"hostPath": folder, "containerPath": folder}] if made else None
    assert role.get("extraMounts") == mounts


def test_pods_on_kind_reach_its_registry_by_name_and_this_machine_at_the_gateway(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gateways = ("fc00:f853:ccd:e793::1", "172.18.0.1")
    network = {"IPAM": {"Config": [{"Subnet": "", "Gateway": each} for each in gateways]}}
    monkeypatch.setattr(docker, "run", lambda _: json.dumps([network]))
    cluster = Cluster(
        Layout("one", Path("/one")), Record("one", Form.KIND, ports={"registry": 20000})
    )
    assert (cluster.registry, cluster.pod_registry) == (
        *("127.0.0.1:20000", "cloister-one-registry:5000"),
    )
    assert cluster.node_name == "cloister-one-control-plane"
    assert cluster.host_address == "172.18.0.1"
    del network["IPAM"]["Config"][1]
    with pytest.raises(LocalClusterError, match="no gateway of IPv4"):
        _ = cluster.host_address


def test_kinds_commands_run_a_registry_and_redirect_the_node_to_it(tmp_path: Path) -> None:
    places = Layout(name="one", folder=tmp_path)
    record = Record(name="one", form=Form.KIND, ports={"registry": 20001})
    made = kind.Kind(places, {"kind": Path("/bin/kind")}, Progress(quiet=True))
    run, create, connect, write, resolves = made.commands(record, "registry:1")
    assert "127.0.0.1:20001:5000" in run
    assert run[-1] == "registry:1"
    assert create[:3] == ["/bin/kind", "create", "cluster"]
    assert str(places.kubeconfig) in create
    assert connect == ["docker", "network", "connect", "kind", "cloister-one-registry"]
    assert write[:3] == ["docker", "exec", "cloister-one-control-plane"]
    assert "certs.d/127.0.0.1:20001" in write[-1]
    assert "http://cloister-one-registry:5000" in write[-1]
    assert resolves[:4] == ["docker", "exec", "cloister-one-control-plane", "kubectl"]
    assert "deployment/coredns" in resolves


def test_a_cluster_in_a_docker_that_does_not_answer_is_not_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(docker, "answers", lambda: False)
    with pytest.raises(LocalClusterError, match="start Docker first"):
        kind.down(Record("one", Form.KIND))


@pytest.mark.parametrize(("root", "expected"), [(True, True), (False, False)])
def test_the_node_is_made_where_there_is_root(
    monkeypatch: pytest.MonkeyPatch, *, root: bool, expected: bool
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0 if root else 1000)
    monkeypatch.setattr("sys.platform", "linux")
    assert kind.makes_node() is expected
    assert set(node.PROGRAMS) <= set(kind.programs()) or not expected
    assert all(load().module_of(name) for name in kind.programs())
    monkeypatch.setattr("sys.platform", "darwin")
    assert kind.makes_node() is False


def test_kubeadm_is_of_the_release_of_all_of_kubernetes() -> None:
    kubernetes, kubeadm = (load().modules[name] for name in ("kubernetes", "kubeadm"))
    assert kubeadm.version == kubernetes.version
    assert kubeadm.variables == kubernetes.variables


def test_images_that_kubeadm_wants_are_of_our_programs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kubeadm = tmp_path / "kubeadm"
    wanted = ["registry.k8s.io/kube-proxy:v1", "registry.k8s.io/coredns/coredns:v1"]
    kubeadm.write_text(f"#!/bin/sh\nprintf '%s\\n' {' '.join(wanted)}\n")
    kubeadm.chmod(0o755)
    containerd = tmp_path / "config.toml"
    containerd.write_text(
        '[plugins."io.containerd.grpc.v1.cri"]\nsandbox_image = "registry.k8s.io/pause:9"\n'
    )
    root = tmp_path / "root.tar"
    with tarfile.open(root, "w") as archive:
        for name in ("usr/sbin/nft", "usr/lib/x86_64-linux-gnu/libnftables.so.1", "usr/bin/jq"):
            archive.addfile(tarfile.TarInfo(f"./{name}"), io.BytesIO(b""))
        link = tarfile.TarInfo("./lib")
        link.type, link.linkname = tarfile.SYMTYPE, "usr/lib"
        archive.addfile(link)
    programs = {name: tmp_path / name for name in control_plane.PROGRAMS}
    found = control_plane.images(programs | {"kubeadm": kubeadm}, containerd, root, tmp_path / "n")
    assert set(found) == {*wanted, "registry.k8s.io/pause:9"}
    proxy = found["registry.k8s.io/kube-proxy:v1"]
    assert set(proxy.files) == {
        "/usr/local/bin/kube-proxy",
        "/usr/sbin/nft",
        "/usr/lib/x86_64-linux-gnu/libnftables.so.1",
    }
    assert proxy.links == {"/lib": "usr/lib"}
    assert found["registry.k8s.io/coredns/coredns:v1"].entrypoint == ["/coredns"]

    kubeadm.write_text("#!/bin/sh\necho registry.k8s.io/new:v1\n")
    with pytest.raises(LocalClusterError, match="no program is called new"):
        control_plane.images(programs | {"kubeadm": kubeadm}, containerd, root, tmp_path / "n")


def test_an_archive_names_each_image_as_containerd_is_to_have_it(tmp_path: Path) -> None:
    image = Image(files={"/a": b"content"}, entrypoint=["/a"])
    first, second = tmp_path / "one.tar", tmp_path / "two.tar"
    Archive.write(first, {"example.org/a:1": image, "example.org/b:1": image})
    found = read(first)
    index = json.loads(found["index.json"])
    named = {each["annotations"][NAME]: each["digest"] for each in index["manifests"]}
    assert set(named) == {"example.org/a:1", "example.org/b:1"}
    (digest,) = set(named.values())
    manifest = json.loads(found[f"blobs/{digest.replace(':', '/')}"])
    for each in (manifest["config"], *manifest["layers"]):
        assert len(found[f"blobs/{each['digest'].replace(':', '/')}"]) == each["size"]

    # From a layout with other content only what is named is copied, under each reference.
    layout = tmp_path / "layout"
    with tarfile.open(first) as archive:
        archive.extractall(layout, filter="data")
    other = layout / "blobs" / "sha256" / ("0" * 64)
    other.write_text("other")
    for each in index["manifests"]:
        each["annotations"] = {"org.opencontainers.image.ref.name": each["annotations"][NAME][12]}
    (layout / "index.json").write_text(json.dumps(index))
    Archive.copy(second, layout, {"a": ("r/a:1", f"r/a@{digest}")})
    copied = read(second)
    listed = json.loads(copied["index.json"])["manifests"]
    assert [each["annotations"][NAME] for each in listed] == ["r/a:1", f"r/a@{digest}"]
    assert {name for name in copied if name.startswith("blobs/")} == {
        name for name in found if name.startswith("blobs/")
    }


def test_docker_gets_an_image_of_one_layer_with_its_start(tmp_path: Path) -> None:
    layer = tmp_path / "layer"
    layer.write_bytes(b"layer")
    docker.write_archive(tmp_path / "image.tar", "a:1", layer, {"StopSignal": "SIGRTMIN+3"})
    found = read(tmp_path / "image.tar")
    (entry,) = json.loads(found["manifest.json"])
    assert entry["RepoTags"] == ["a:1"]
    assert found[entry["Layers"][0]] == b"layer"
    assert json.loads(found[entry["Config"]])["config"] == {"StopSignal": "SIGRTMIN+3"}


def test_the_nodes_name_changes_with_what_it_is_made_of(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = [node.name()]
    monkeypatch.setattr(node, "OWN", tmp_path)
    names.append(node.name())
    (tmp_path / "file").write_text("content")
    names.append(node.name())
    monkeypatch.setattr("dev.cluster.kind.root.architecture", lambda: "s390x")
    names.append(node.name())
    assert len(set(names)) == len(names)


def test_a_failed_command_says_what_docker_said() -> None:
    with pytest.raises(LocalClusterError, match="sh -c echo no >&2; exit 3 failed: no"):
        docker.run(["sh", "-c", "echo no >&2; exit 3"])
    assert docker.run(["sh", "-c", "echo yes; exit 3"], check=False) == "yes\n"


def test_a_runtime_without_the_capability_asks_for_nothing_that_needs_it() -> None:
    asked = {
        "args": ["sh"],
        "capabilities": {"bounding": ["CAP_CHOWN", "CAP_SYS_RESOURCE"]},
        "rlimits": [{}],
        "oomScoreAdj": -500,
    }
    assert bounded(asked) == {"args": ["sh"], "capabilities": {"bounding": ["CAP_CHOWN"]}}
