"""Kata's runtime and containerd as far as the agent of a machine sees them: their requests.

They cannot run here: a machine needs virtualization. The shapes are those of Kata Containers 4.1.0
with images that the guest pulls and no shared file system, from its sources and its test data.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["KataRuntime", "Request"]

_SHARED = "/run/kata-containers/shared/containers"
_EPHEMERAL = "/run/kata-containers/sandbox/ephemeral"
_TIME = "..2026_11_27_06_00_00.123456789"
_DEFAULT_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MASKED = (
    *("acpi", "asound", "kcore", "keys", "latency_stats", "timer_list", "timer_stats"),
    *("sched_debug", "scsi"),
)
_POD_FILES = ("/etc/hosts", "/dev/termination-log", "/etc/hostname", "/etc/resolv.conf")
_READ_ONLY = ("bus", "fs", "irq", "sys", "sysrq-trigger")
_KERNEL = (
    ("/proc", "proc", "proc", ["nosuid", "noexec", "nodev"]),
    ("/dev", "tmpfs", "tmpfs", ["nosuid", "strictatime", "mode=755", "size=65536k"]),
    (
        "/dev/pts",
        "devpts",
        "devpts",
        ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"],
    ),
    ("/dev/mqueue", "mqueue", "mqueue", ["nosuid", "noexec", "nodev"]),
    ("/sys", "sysfs", "sysfs", ["nosuid", "noexec", "nodev", "ro"]),
    ("/sys/fs/cgroup", "cgroup", "cgroup", ["nosuid", "noexec", "nodev", "relatime", "ro"]),
)


@dataclass(frozen=True, slots=True)
class Request:
    """A request to the agent."""

    endpoint: str
    """Name of its message."""
    input: dict[str, Any]
    """Its fields, as the agent gives them to its engine."""


@dataclass(slots=True)
class KataRuntime:
    """A machine that is started for one Pod."""

    pod: dict[str, Any]
    """Manifest of the Pod."""
    image_env: Mapping[str, list[str]] = field(default_factory=dict)
    """Environment of images, by name of the container."""
    image_directory: Mapping[str, str] = field(default_factory=dict)
    """Working directory of images, likewise."""
    metadata: bool = False
    """Whether images are described by driver options, as until 4.1."""

    @property
    def containers(self) -> list[dict[str, Any]]:
        """All containers, in the order of their start."""
        spec = self.pod["spec"]
        return [*spec["initContainers"], *spec["containers"]]

    @property
    def sandbox_id(self) -> str:
        """Id of the sandbox."""
        return self.id_of(":sandbox")

    def id_of(self, name: str, attempt: int = 0) -> str:
        """Return the id of a container's n-th start."""
        return hashlib.sha256(f"{name} {attempt}".encode()).hexdigest()

    def boot(self) -> Iterator[Request]:
        """Yield what the runtime requests until every container runs."""
        address = {"address": "10.0.0.9", "mask": "24"}
        interface = {"name": "eth0", "device": "eth0", "hwAddr": "0a:58:0a:00:00:09"}
        yield Request(
            "UpdateInterfaceRequest",
            {"interface": {**interface, "raw_flags": 0, "IPAddresses": [address]}},
        )
        route = {"dest": "", "gateway": "10.0.0.1", "device": "eth0", "source": ""}
        yield Request("UpdateRoutesRequest", {"routes": {"Routes": [route]}})
        neighbor = {"toIPAddress": {"address": "10.0.0.1", "mask": ""}, "device": "eth0"}
        neighbors = {"ARPNeighbors": [{**neighbor, "state": 128, "flags": 0}]}
        yield Request("AddARPNeighborsRequest", {"neighbors": neighbors})
        yield Request("CreateSandboxRequest", self._sandbox())
        yield from self._files(self.sandbox_id, "/etc/resolv.conf")
        yield Request("CreateContainerRequest", self._pause())
        yield Request("StartContainerRequest", {"container_id": self.sandbox_id})
        for container in self.containers:
            yield from self.start(container["name"])
            if "restartPolicy" not in container:
                yield from self.end(container["name"])

    def start(self, name: str, attempt: int = 0) -> Iterator[Request]:
        """Yield what starts a container, with its start hook."""
        container = self._named(name)
        own = self.id_of(name, attempt)
        for place in _POD_FILES:
            yield from self._files(own, place)
        for mount in container.get("volumeMounts", ()):
            yield from self._volume(own, mount)
        yield Request("CreateContainerRequest", self._created(container, own))
        yield Request("StartContainerRequest", {"container_id": own})
        hook = container.get("lifecycle", {}).get("postStart")
        if hook is not None:
            yield self.exec(name, hook["exec"]["command"], attempt)

    def end(self, name: str, attempt: int = 0) -> Iterator[Request]:
        """Yield what ends a container, with its stop hook."""
        own = self.id_of(name, attempt)
        hook = self._named(name).get("lifecycle", {}).get("preStop")
        if hook is not None:
            yield self.exec(name, hook["exec"]["command"], attempt)
        signal = {"container_id": own, "exec_id": own, "signal": 15}
        yield Request("SignalProcessRequest", signal)
        yield Request("WaitProcessRequest", {"container_id": own, "exec_id": own})
        yield Request("RemoveContainerRequest", {"container_id": own, "timeout": 0})

    def exec(self, name: str, command: list[str], attempt: int = 0) -> Request:
        """Return what starts a program in a container."""
        container, own = self._named(name), self.id_of(name, attempt)
        process = self._process(container) | {"Args": command, "Capabilities": None}
        return Request(
            "ExecProcessRequest",
            {
                "container_id": own,
                "exec_id": "4b0f8d4e",
                "string_user": None,
                "process": process,
                **dict.fromkeys(("stdin_port", "stdout_port", "stderr_port"), 0),
            },
        )

    def _named(self, name: str) -> dict[str, Any]:
        return next(each for each in self.containers if each["name"] == name)

    def _sandbox(self) -> dict[str, Any]:
        shm = {
            "driver": "ephemeral",
            "driver_options": [],
            "source": "shm",
            "fstype": "tmpfs",
            "options": ["noexec", "nosuid", "nodev", "mode=1777", "size=67108864"],
            "mount_point": "/run/kata-containers/sandbox/shm",
            "fs_group": None,
        }
        return {
            "hostname": self.pod["metadata"]["name"],
            "dns": [],
            "storages": [shm],
            "sandbox_pidns": False,
            "sandbox_id": self.sandbox_id,
            "guest_hook_path": "",
            "kernel_modules": [],
        }

    def _pause(self) -> dict[str, Any]:
        process = {
            **_process(["/pause"], [_DEFAULT_PATH], "/", (65535, 65535)),
            "Capabilities": _capabilities(
                *("CHOWN", "DAC_OVERRIDE", "FSETID", "FOWNER", "MKNOD", "NET_RAW", "SETGID"),
                *("SETUID", "SETFCAP", "SETPCAP", "NET_BIND_SERVICE", "SYS_CHROOT", "KILL"),
                "AUDIT_WRITE",
            ),
        }
        options = ["rbind", "ro", "nosuid", "nodev", "noexec"]
        mounts = [
            *_kernel_mounts(),
            _shm(),
            {**_copied(self.sandbox_id, "/etc/resolv.conf"), "options": options},
        ]
        image = "registry.k8s.io/pause:3.10" if self.metadata else "pause"
        return self._request(
            self.sandbox_id, "sandbox", process, mounts, [], image=image, read_only=True
        )

    def _created(self, container: dict[str, Any], own: str) -> dict[str, Any]:
        process = self._process(container)
        mounted = container.get("volumeMounts", [])
        bound = {"options": ["rbind", "rprivate", "rw"]}
        mounts = [*_kernel_mounts(), *({**_copied(own, place), **bound} for place in _POD_FILES)]
        if all(each["mountPath"] != "/dev/shm" for each in mounted):
            mounts.append(_shm())
        memory = []
        for each in sorted(mounted, key=lambda mount: str(mount["mountPath"])):
            options = ["rbind", "rprivate", "ro" if each.get("readOnly") else "rw"]
            source = _copied(own, each["mountPath"])
            if self._is_memory(each):
                path = f"{_EPHEMERAL}/{each['name']}"
                source = {"destination": each["mountPath"], "source": path, "type_": "bind"}
                memory.append(path)
            mounts.append({**source, "options": options})
        return self._request(
            own,
            "container",
            process,
            mounts,
            sorted(set(memory)),
            image=container["image"],
            read_only=container["securityContext"]["readOnlyRootFilesystem"],
            name=container["name"],
        )

    def _process(self, container: dict[str, Any]) -> dict[str, Any]:
        security, name = container["securityContext"], container["name"]
        env = list(self.image_env.get(name, []))
        if not any(each.startswith("PATH=") for each in env):
            env.append(_DEFAULT_PATH)
        env.append(f"HOSTNAME={self.pod['metadata']['name']}")
        env += [
            "KUBERNETES_SERVICE_HOST=10.96.0.1",
            "KUBERNETES_SERVICE_PORT=443",
            "KUBERNETES_PORT=tcp://10.96.0.1:443",
            "KUBERNETES_PORT_443_TCP_PROTO=tcp",
        ]
        given = {}
        for each in container.get("env", ()):
            given[each["name"]] = each.get("value", "given at the start").replace("$$", "$")
        env = [each for each in env if each.partition("=")[0] not in given]
        env += [f"{key}={value}" for key, value in given.items()]
        directory = container.get("workingDir") or self.image_directory.get(name) or "/"
        args = [*container["command"], *container.get("args", ())]
        user = (security["runAsUser"], security["runAsGroup"])
        return {
            **_process(args, env, directory, user),
            "Capabilities": _capabilities(*security["capabilities"].get("add", ())),
        }

    def _is_memory(self, mount: dict[str, Any]) -> bool:
        volumes = self.pod["spec"]["volumes"]
        return any(each["name"] == mount["name"] and "emptyDir" in each for each in volumes)

    def _files(self, own: str, place: str) -> Iterator[Request]:
        yield _copy(_copied(own, place)["source"], "Regular")

    def _volume(self, own: str, mount: dict[str, Any]) -> Iterator[Request]:
        """Yield the copies of a volume that the kubelet writes: a folder with a time, and links."""
        if self._is_memory(mount):
            return
        root = _copied(own, mount["mountPath"])["source"]
        volume = next(e for e in self.pod["spec"]["volumes"] if e["name"] == mount["name"])
        yield _copy(root, "Directory")
        source = volume.get("configMap") or volume.get("secret")
        if source is not None:
            names = [each["path"] for each in source["items"]]
        elif "projected" in volume:
            names = [e["serviceAccountToken"]["path"] for e in volume["projected"]["sources"]]
        else:
            yield _copy(f"{root}/mpk-0123.img", "Regular")
            return
        yield _copy(f"{root}/{_TIME}", "Directory")
        for name in names:
            yield _copy(f"{root}/{_TIME}/{name}", "Regular")
        yield _copy(f"{root}/..data", "Symlink", _TIME)
        for name in names:
            yield _copy(f"{root}/{name}", "Symlink", f"..data/{name}")

    def _request(
        self,
        own: str,
        kind: str,
        process: dict[str, Any],
        mounts: list[dict[str, Any]],
        memory: list[str],
        *,
        image: str,
        read_only: bool,
        name: str = "",
    ) -> dict[str, Any]:
        root = f"/run/kata-containers/{own}/rootfs"
        pulled = self._pulled(kind, image, root)
        annotations = self._annotations(own, kind)
        if name:
            annotations |= {
                "io.kubernetes.cri.container-name": name,
                "io.kubernetes.cri.image-name": image,
            }
        return {
            "container_id": own,
            "exec_id": own,
            "string_user": None,
            "devices": [],
            "storages": [pulled, *(_tmpfs(path) for path in memory)],
            "OCI": {
                "Version": "1.1.0",
                "Process": process,
                "Root": {"Path": root, "Readonly": read_only},
                "Hostname": "",
                "Mounts": mounts,
                "Hooks": None,
                "Annotations": annotations,
                "Linux": _linux(own),
                "Solaris": None,
                "Windows": None,
            },
            "sandbox_pidns": False,
            "shared_mounts": [],
            "stdin_port": 0,
            "stdout_port": 0,
            "stderr_port": 0,
        }

    def _annotations(self, own: str, kind: str) -> dict[str, str]:
        bundle = f"/run/containerd/io.containerd.runtime.v2.task/k8s.io/{own}"
        return {
            "io.katacontainers.pkg.oci.bundle_path": bundle,
            "io.katacontainers.pkg.oci.container_type": f"pod_{kind}",
            "io.kubernetes.cri.container-type": kind,
            "io.kubernetes.cri.sandbox-id": self.sandbox_id,
            "io.kubernetes.cri.sandbox-name": self.pod["metadata"]["name"],
            "io.kubernetes.cri.sandbox-namespace": self.pod["metadata"]["namespace"],
            "io.kubernetes.cri.sandbox-uid": "9c64c5bf-298f-46c4-ad63-e2270a2ff44c",
        }

    def _pulled(self, kind: str, image: str, root: str) -> dict[str, Any]:
        options = f'image_guest_pull={{"metadata":{{"io.kubernetes.cri.container-type":"{kind}"}}}}'
        return {
            "driver": "image_guest_pull",
            "driver_options": [options] if self.metadata else [],
            "source": image,
            "fstype": "overlay",
            "options": [],
            "mount_point": root,
            "fs_group": None,
        }


def _process(
    args: list[str], env: list[str], directory: str, user: tuple[int, int]
) -> dict[str, Any]:
    return {
        "Terminal": False,
        "ConsoleSize": None,
        "User": {"UID": user[0], "GID": user[1], "AdditionalGids": [user[1]], "Username": ""},
        "Args": args,
        "Env": env,
        "Cwd": directory,
        "Rlimits": [],
        "NoNewPrivileges": True,
        "ApparmorProfile": "cri-containerd.apparmor.d",
        "OOMScoreAdj": 1000,
        "SelinuxLabel": "",
    }


def _capabilities(*names: str) -> dict[str, list[str]]:
    full = [f"CAP_{name}" for name in names]
    return {
        "Ambient": [],
        "Bounding": full,
        "Effective": full,
        "Inheritable": [],
        "Permitted": full,
    }


def _linux(own: str) -> dict[str, Any]:
    return {
        "UIDMappings": [],
        "GIDMappings": [],
        "Sysctl": {},
        "Resources": {
            "Devices": [],
            "Memory": {"Limit": 1073741824},
            "CPU": {"Shares": 1024, "Quota": 100000, "Period": 100000},
            "Pids": None,
            "BlockIO": None,
            "HugepageLimits": [],
            "Network": None,
        },
        "CgroupsPath": f"kubepods-pod9c64c5bf.slice:cri-containerd:{own}",
        "Namespaces": [{"Type": kind, "Path": ""} for kind in ("ipc", "uts", "mount")],
        "Devices": [],
        "Seccomp": None,
        "RootfsPropagation": "",
        "MaskedPaths": [f"/proc/{name}" for name in _MASKED]
        + ["/sys/firmware", "/sys/devices/virtual/powercap"],
        "ReadonlyPaths": [f"/proc/{name}" for name in _READ_ONLY],
        "MountLabel": "",
        "IntelRdt": None,
    }


def _kernel_mounts() -> list[dict[str, Any]]:
    return [
        {"destination": place, "source": source, "type_": kind, "options": list(options)}
        for place, source, kind, options in _KERNEL
    ]


def _shm() -> dict[str, Any]:
    source = "/run/kata-containers/sandbox/shm"
    return {"destination": "/dev/shm", "source": source, "type_": "bind", "options": ["rbind"]}


def _copied(own: str, place: str) -> dict[str, Any]:
    """Return a mount of what is copied into the machine for a container."""
    random = hashlib.sha256(place.encode()).hexdigest()[:16]
    path = f"{_SHARED}/{own}-{random}-{place.rpartition('/')[2]}"
    return {"destination": place, "source": path, "type_": "bind"}


def _tmpfs(path: str) -> dict[str, Any]:
    return {
        "driver": "ephemeral",
        "driver_options": [],
        "source": "tmpfs",
        "fstype": "tmpfs",
        "options": [],
        "mount_point": path,
        "fs_group": None,
    }


def _copy(path: str, kind: str, target: str | None = None) -> Request:
    return Request(
        "CopyFileRequest",
        {
            "path": path,
            "file_type": kind,
            "symlink_target": target,
            "file_size": 0,
            "file_mode": 0o100644,
            "dir_mode": 0o755,
            "uid": 0,
            "gid": 0,
            "offset": 0,
        },
    )
