"""The models of an enclave: the init container that verifies them, their store, their memory.

The document's fields are those of the guest's package `models`; docs/models.md describes it.
"""

from typing import Any

from cloister_crds.config import ServiceConfig
from cloister_crds.kinds.host import ModelStore
from cloister_operator.enclave import paths
from cloister_operator.enclave.plan import BuildSettings, EnclavePlan
from cloister_operator.enclave.sidecars import MODELS, sidecar_name, unprivileged

_VERSION = 1
_MEBI = 1024 * 1024
_SPARE = 64 * _MEBI
"""Bytes that the files of a model may need beyond its image, as in the guest: a page for each."""


def models_memory(config: ServiceConfig) -> int:
    """Return the bytes of memory that the models of a file need.

    Returns
    -------
    int
        A multiple of a mebibyte; 0 without models.
    """
    needed = sum(each.offset + _SPARE for each in config.models)
    return -(-needed // _MEBI) * _MEBI


def models_document(plan: EnclavePlan) -> dict[str, Any]:
    """Build the document of which models are verified.

    Returns
    -------
    dict[str, Any]
        The document of ``guest models``.
    """
    return {
        "version": _VERSION,
        "store": paths.MODELS_STORE,
        "target": paths.MODELS,
        "status": paths.MODELS_STATUS_FILE,
        "models": [
            {"name": each.name, "repo": f"{each.repo}@{each.commit}", "mpk": each.mpk}
            for each in plan.config.models
        ],
    }


def store_volume(name: str, store: ModelStore) -> dict[str, Any]:
    """Return the volume of a store."""
    if store.claim is not None:
        claim = {"claimName": store.claim, "readOnly": True}
        return {"name": name, "persistentVolumeClaim": claim}
    return {"name": name, "hostPath": {"path": store.directory, "type": "Directory"}}


def models_container(
    plan: EnclavePlan, settings: BuildSettings, mounts: list[dict[str, Any]]
) -> dict[str, Any]:
    """Build the init container that exits when the models are there, before those of the file."""
    return {
        "name": sidecar_name(MODELS, plan.names),
        "image": settings.guest_image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/guest", "models", "-spec", f"{paths.MODELS_CONFIG}/{paths.MODELS_KEY}"],
        "securityContext": unprivileged(MODELS),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }
