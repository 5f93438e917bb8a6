"""The Event of an object whose status changed, as ``kubectl describe`` shows it."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from cloister_clients.kube import KindRef
from cloister_clients.kube.kinds import EVENT
from cloister_crds.kinds import Enclave
from cloister_operator.rollout.events import enclave_event, status_event

__all__ = ["build_event"]

_CONTROLLER = "cloister.dev/operator"
_NOTE_LIMIT = 1024
"""Longest note that the server takes, in bytes."""
_NOWHERE = "default"
"""Namespace of Events about objects that have none."""


def build_event(
    ref: KindRef, before: Mapping[str, Any] | None, after: Mapping[str, Any], now: datetime
) -> dict[str, Any] | None:
    """Build the Event that reports a written status.

    Parameters
    ----------
    ref
        Kind of the object.
    before
        The object before the write; None = the cache lacked it.
    after
        The server's response to the write.
    now
        The time, in UTC.

    Returns
    -------
    dict[str, Any] | None
        Manifest to create, whose name follows from the written version; None = there is nothing
        to report.
    """
    statuses = (before or {}).get("status") or {}, after.get("status") or {}
    if ref.kind == Enclave.INFO.kind:
        found = enclave_event(after["spec"], *statuses)
    else:
        found = status_event(*statuses)
    if found is None:
        return None
    metadata = after["metadata"]
    namespace = metadata.get("namespace") or _NOWHERE
    regarding = {
        "apiVersion": ref.api_version,
        "kind": ref.kind,
        "name": metadata["name"],
        "namespace": metadata.get("namespace") or "",
        "uid": metadata["uid"],
    }
    return {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.kind,
        "metadata": {
            "name": f"{metadata['uid']}.{metadata['resourceVersion']}",
            "namespace": namespace,
        },
        "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "reportingController": _CONTROLLER,
        "reportingInstance": _CONTROLLER,
        "action": "Reconcile",
        "reason": found.reason,
        "regarding": {key: value for key, value in regarding.items() if value},
        "note": _cut(found.message),
        "type": "Warning" if found.warning else "Normal",
    }


def _cut(text: str) -> str:
    """Shorten a text to what the server takes, between two characters."""
    return text.encode()[:_NOTE_LIMIT].decode(errors="ignore")
