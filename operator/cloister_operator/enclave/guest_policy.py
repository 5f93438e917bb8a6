"""The rules by which the agent of an enclave's machine judges its host's requests."""

from typing import Any, Final

from cloister_crds.config import ContainerConfig
from cloister_crds.lifecycle.admission.host_requirements import assigned_gpus
from cloister_operator.enclave.container import VISIBLE_DEVICES
from cloister_operator.enclave.plan import EnclavePlan

SANDBOX: Final = ":sandbox"
"""Name of the container that holds the Pod's namespaces; none of a Pod can have such a name."""
_PAUSE_USER: Final = 65535
"""User and group of the pause image that the guest brings with it."""
_PAUSE_CAPABILITIES: Final = (
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "NET_RAW",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
)
"""Capabilities that a container runtime gives where nothing drops them."""
_OF_IMAGES: Final = ("CADDY_VERSION", "PATH")
"""Variables of the images of the platform, whose programs do not read them."""
_FILES: Final = ("configMap", "secret", "projected")
_TREES: Final = ("hostPath", "persistentVolumeClaim")


def pod_data(plan: EnclavePlan, spec: dict[str, Any]) -> dict[str, Any]:
    """Describe a Pod for the rules.

    Parameters
    ----------
    spec
        ``spec`` of the Pod.

    Returns
    -------
    dict[str, Any]
        Value of ``cloister_pod``; docs/measurement.md describes it.

    Raises
    ------
    ValueError
        When the Pod has something that the rules cannot describe, which a machine could not start.
    """
    of_file = iter(plan.config.containers)
    containers = []
    for manifest in (*spec["initContainers"], *spec["containers"]):
        described = next(of_file) if manifest["command"][1] == "exec" else None
        containers.append(_container(plan, manifest, described))
    volumes = {each["name"]: _volume(each) for each in spec["volumes"]}
    return {"sandbox": _sandbox(), "containers": containers, "volumes": volumes}


def _sandbox() -> dict[str, Any]:
    """Describe the container of the sandbox: the guest's own pause image, whatever the host has."""
    return {
        "name": SANDBOX,
        "args": ["/pause"],
        "workingDir": "/",
        "environment": {},
        "variables": ["PATH"],
        "user": {"uid": _PAUSE_USER, "gid": _PAUSE_USER},
        "capabilities": list(_PAUSE_CAPABILITIES),
        "readOnly": True,
        "mounts": [],
        "hooks": [],
        "restarts": False,
        "logs": False,
        "gpus": 0,
    }


def _container(
    plan: EnclavePlan, manifest: dict[str, Any], described: ContainerConfig | None
) -> dict[str, Any]:
    """Describe one container; `described` is its entry of the file, None if it is one of ours."""
    security = manifest["securityContext"]
    if security["capabilities"]["drop"] != ["ALL"] or security["allowPrivilegeEscalation"]:
        raise ValueError(f"container {manifest['name']} keeps capabilities that it does not name")
    fixed, variables = _environment(plan, manifest, described)
    image = plan.facts(described) if described else None
    return {
        "name": manifest["name"],
        "image": manifest["image"],
        "args": [*manifest["command"], *manifest.get("args", ())],
        "workingDir": manifest.get("workingDir") or (image.working_dir if image else "") or "/",
        "environment": fixed,
        "variables": variables,
        "user": {"uid": security["runAsUser"], "gid": security["runAsGroup"]},
        "capabilities": sorted(security["capabilities"].get("add", ())),
        "readOnly": security["readOnlyRootFilesystem"],
        "mounts": [_mount(each) for each in manifest.get("volumeMounts", ())],
        "hooks": [each["exec"]["command"] for each in manifest.get("lifecycle", {}).values()],
        "restarts": manifest.get("restartPolicy", "Never") != "Never",
        "logs": plan.enclave.spec.debug,
        "gpus": _gpus(plan, manifest, described),
    }


def _environment(
    plan: EnclavePlan, manifest: dict[str, Any], described: ContainerConfig | None
) -> tuple[dict[str, str], list[str]]:
    """Return the variables with the values that they must have, and the names of all others."""
    fixed: dict[str, str] = {}
    others = set(_OF_IMAGES)
    if described is not None:
        pairs = (each.partition("=") for each in plan.facts(described).env)
        fixed = {name: value for name, _, value in pairs}
        # The runtime gives a PATH of its own where the image has none.
        others = {each.name for each in described.env if each.value is None} | {"PATH"} - {*fixed}
    chosen = others - {*_OF_IMAGES, VISIBLE_DEVICES}
    for variable in manifest.get("env", ()):
        name = variable["name"]
        if "value" not in variable or name in chosen:
            others.add(name)
        else:
            others.discard(name)
            # Kubernetes reads two dollar signs as one.
            fixed[name] = variable["value"].replace("$$", "$")
    return {name: fixed[name] for name in fixed.keys() - others}, sorted(others)


def _mount(mount: dict[str, Any]) -> dict[str, Any]:
    """Describe where a volume is mounted."""
    if "subPath" in mount:
        raise ValueError(
            f"part {mount['subPath']} of volume {mount['name']} is mounted: a machine would get a "
            "copy of it"
        )
    return {
        "destination": mount["mountPath"],
        "readOnly": mount.get("readOnly", False),
        "volume": mount["name"],
    }


def _volume(volume: dict[str, Any]) -> dict[str, Any]:
    """Describe what of the host's may be in a volume; nothing is in memory."""
    if volume.get("emptyDir", {}).get("medium") == "Memory":
        return {"memory": True}
    if any(kind in volume for kind in _TREES):
        return {"tree": True}
    if any(kind in volume for kind in _FILES):
        return {"files": _file_names(volume)}
    raise ValueError(f"volume {volume['name']} is neither memory nor files")


def _file_names(volume: dict[str, Any]) -> list[str]:
    """Return the names of the files of a volume that the kubelet writes."""
    if "projected" in volume:
        sources = volume["projected"]["sources"]
        return [each["serviceAccountToken"]["path"] for each in sources]
    source = volume.get("configMap") or volume["secret"]
    return [each["path"] for each in source["items"]]


def _gpus(plan: EnclavePlan, manifest: dict[str, Any], described: ContainerConfig | None) -> int:
    """Return how many GPUs the runtime may add to a container."""
    gpu = plan.host.spec.gpu
    resource = gpu.resource if gpu is not None else None
    if resource is not None:
        return int(manifest.get("resources", {}).get("limits", {}).get(resource, 0))
    if gpu is None or described is None:
        return 0
    return len(assigned_gpus(plan.config, plan.enclave.spec.summary.gpus).get(described.name, ()))
