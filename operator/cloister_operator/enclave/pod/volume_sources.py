"""What the volumes of an enclave Pod are made of: documents, secrets, tokens, memory."""

from typing import Any

from cloister_crds.names import token_audience
from cloister_operator.enclave import paths
from cloister_operator.enclave.guest_config.certificate import TOKEN_SECONDS
from cloister_operator.enclave.plan import EnclavePlan

TOKEN_VOLUME = "token"  # noqa: S105 - a name
"""Name of the volume of `pod_token`."""
_READABLE = 0o444


def of_config_map(name: str, plan: EnclavePlan, keys: list[str]) -> dict[str, Any]:
    """Return a volume with some documents of the Enclave's ConfigMap."""
    items = [{"key": key, "path": key} for key in keys]
    source = {"name": plan.config_map, "defaultMode": _READABLE, "items": items}
    return {"name": name, "configMap": source}


def pod_token(plan: EnclavePlan) -> dict[str, Any]:
    """Return a volume with a token of the Pod, only for requests of the enclave's certificate."""
    token = {
        "audience": token_audience(plan.enclave.metadata.uid),
        "expirationSeconds": TOKEN_SECONDS,
        "path": paths.TOKEN_FILE,
    }
    sources = [{"serviceAccountToken": token}]
    return {"name": TOKEN_VOLUME, "projected": {"defaultMode": _READABLE, "sources": sources}}


def of_snapshot(name: str, plan: EnclavePlan, files: dict[str, str]) -> dict[str, Any]:
    """Return a volume with some values of the Enclave's snapshot, by the names of the files."""
    items = [{"key": key, "path": path} for key, path in files.items()]
    source = {"secretName": plan.snapshot, "defaultMode": _READABLE, "items": items}
    return {"name": name, "secret": source}


def memory(name: str, size: int) -> dict[str, Any]:
    """Return a volume in memory of at most `size` bytes."""
    return {"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": str(size)}}
