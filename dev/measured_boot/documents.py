"""The documents of the enclave in the machine, as the operator makes them for a Host."""

import base64
import hashlib
import io
import tarfile
from dataclasses import dataclass
from typing import Any, Self

from cloister_crds.config import Rules, parse
from cloister_crds.kinds import Enclave, Host
from cloister_operator.enclave.config_map import build_config_map
from cloister_operator.enclave.network.cluster_network import ClusterNetwork, DnsResolver
from cloister_operator.enclave.plan import ApiIdentity, BuildSettings, EnclavePlan
from cloister_operator.enclave.pod_manifest import build_pod
from dev.cluster.guest import guest_binary

__all__ = ["CONFIG", "Documents"]

CONFIG = """\
cvm-version: 0.10.0
cpus: 2
memory: 8192
containers:
  - name: web
    image: {image}
    entrypoint: [/bin/busybox, httpd, -f, -p, "8080", -h, /www]
shim:
  upstream-port: 8080
  paths: [/]
"""
"""The configuration file; its image is a part of the initial file system."""
_HOST = {
    "metadata": {"name": "measured"},
    "spec": {
        "measuredBoot": True,
        "runtimeClassName": "measured-machine",
        "networkIsolation": "Pod",
    },
}
_PARTS = ("keep", "agent")
"""Sidecars of the Pod that run in the machine."""
_CONTAINER = "web"
_CONTAINER_SPEC = "etc/cloister-container"
"""Where the machine has what the container of the file mounts as its own document."""


@dataclass(frozen=True)
class Documents:
    """What the host carries into the machine.

    Attributes
    ----------
    measurement
        The measurement document's text.
    files
        Contents by path.
    """

    measurement: bytes
    files: dict[str, bytes]

    @classmethod
    def make(cls, *, config: str = CONFIG) -> Self:
        """Make them.

        Parameters
        ----------
        config
            The configuration file, with ``{image}`` for the image.
        """
        own = f"@sha256:{hashlib.sha256(guest_binary().read_bytes()).hexdigest()}"
        settings = BuildSettings(
            shim_image=f"measured-machine.invalid/front{own}",
            guest_image=f"measured-machine.invalid/guest{own}",
            api=ApiIdentity("https://api.measured-machine.invalid", ""),
        )
        raw = config.format(image=f"measured-machine.invalid/web{own}").encode()
        plan = _plan(raw)
        cluster = ClusterNetwork(denied=(), resolvers=(DnsResolver("10.0.2.3"),))
        entries = build_config_map(plan, settings, cluster)
        contents = {name: text.encode() for name, text in entries["data"].items()}
        contents |= {name: base64.b64decode(text) for name, text in entries["binaryData"].items()}
        pod = build_pod(plan, settings)["spec"]
        return cls(contents["measurement.json"], dict(_mounted(pod, contents)))

    @property
    def digest(self) -> str:
        """SHA-256 of the measurement document, in hexadecimal digits."""
        return hashlib.sha256(self.measurement).hexdigest()

    def archive(self) -> bytes:
        """Return the files as a tar archive."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for path, content in sorted(self.files.items()):
                entry = tarfile.TarInfo(path)
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
        return packed.getvalue()


def _plan(raw: bytes) -> EnclavePlan:
    """Return the plan of an enclave that no cluster has."""
    config = parse(raw, rules=Rules(release=True)).config
    if config is None:
        raise ValueError("the configuration file of the machine is invalid")
    image = {"container": _CONTAINER, "image": config.containers[0].image}
    spec = {
        "container": {"name": "measured", "uid": "measured"},
        "request": {"repo": "measured/machine", "tag": "v1"},
        "revision": "measured",
        "attempt": 1,
        "repo": "measured/machine",
        "tag": "v1",
        "commit": "0" * 40,
        "configDigest": f"sha256:{hashlib.sha256(raw).hexdigest()}",
        "configFile": "service-config.yml",
        "summary": {"cpus": config.cpus, "memoryMB": config.memory},
        "images": [image],
        "host": "measured",
        "hostnames": ["measured-machine.invalid"],
        "signedCertificate": True,
    }
    metadata = {"name": "measured", "namespace": "measured", "uid": "measured"}
    return EnclavePlan(
        enclave=Enclave.read({"metadata": metadata, "spec": spec}),
        organization="measured",
        host=Host.read(_HOST),
        config=config,
        file=raw,
    )


def _mounted(pod: dict[str, Any], contents: dict[str, bytes]) -> dict[str, bytes]:
    """Return what the Pod mounts of the ConfigMap, by path in the machine."""
    volumes = {
        each["name"]: each["configMap"]["items"] for each in pod["volumes"] if "configMap" in each
    }
    found = {}
    for container in (*pod.get("initContainers", ()), *pod["containers"]):
        if container["name"] not in {*_PARTS, _CONTAINER}:
            continue
        for mount in container["volumeMounts"]:
            place = mount["mountPath"].lstrip("/")
            if container["name"] == _CONTAINER:
                place = _CONTAINER_SPEC
            for item in volumes.get(mount["name"], ()):
                found[f"{place}/{item['path']}"] = contents[item["key"]]
    return found
