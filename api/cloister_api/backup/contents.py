"""What of the cluster is in a backup. Pure.

Desired state goes into it as it is. Of status only what cannot be observed again: who a record is,
what served last, what the payment processor said. What is made from other objects stays out.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import ValidationError

from cloister_clients.kube import KindRef
from cloister_clients.kube.kinds import NAMESPACE, SECRET, of
from cloister_crds.kinds import (
    KINDS,
    Container,
    Deployment,
    Domain,
    Host,
    HostnameClaim,
    Organization,
    RegistryCredential,
    Secret,
    SSHKey,
)
from cloister_crds.kinds.container import DesiredState
from cloister_crds.kinds.meta import Record, Resource
from cloister_crds.kinds.organization import ORGANIZATION_FINALIZER
from cloister_crds.kinds.request import RequestRecord
from cloister_crds.lifecycle.kept_request import followed_tag, kept_request
from cloister_crds.lifecycle.request import record
from cloister_crds.lifecycle.tracing import TRACE_ANNOTATION
from cloister_crds.names import ENCLAVE_LABEL

Body = dict[str, Any]
"""An object as JSON data."""

KEPT_KINDS: Final[dict[str, KindRef]] = {
    "hosts": of(Host),
    "namespaces": NAMESPACE,
    "organizations": of(Organization),
    "hostname-claims": of(HostnameClaim),
    "deployments": of(Deployment),
    "secrets": of(Secret),
    "ssh-keys": of(SSHKey),
    "registry-credentials": of(RegistryCredential),
    "domains": of(Domain),
    "core-secrets": SECRET,
    "containers": of(Container),
}
"""Files of the archive and what they hold, in the order in which they are restored: owners before
what they own, and Containers last."""
SYSTEM_SECRETS: Final = "system-secrets"
"""File with the Secrets that the programs themselves read."""
MODELS: Final[dict[str, type[Resource]]] = {kind.INFO.kind: kind for kind in KINDS}
KEPT_STATUS: Final[dict[str, frozenset[str]]] = {
    "Organization": frozenset({"billing"}),
    "Container": frozenset(
        {
            *("currentTag", "currentCommit", "staging", "keptRequest", "latestRelease"),
            *("resources", "host", "secrets", "ownStaging"),
        }
    ),
    "Domain": frozenset({"verified", "verifiedAt", "lostAt", "servedUntil"}),
}
"""Fields of status that are kept in addition to the identifier."""
KEPT_METADATA: Final = ("name", "namespace", "labels", "annotations", "ownerReferences")
REPLACES: Final = "cloister.dev/replaces-uid"
"""Annotation with the uid of a Container that another one replaces."""
CREDENTIALS_OF_THE_CLUSTER: Final = frozenset(
    {"kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token"}
)
"""Types of Secrets that mean nothing in another cluster."""


def kept(body: Body) -> Body:
    """Return what of an object is in a backup."""
    metadata = {name: body["metadata"][name] for name in KEPT_METADATA if name in body["metadata"]}
    if TRACE_ANNOTATION in (metadata.get("annotations") or {}):
        # It is about a generation, and generations begin again.
        metadata["annotations"] = {
            name: value
            for name, value in metadata["annotations"].items()
            if name != TRACE_ANNOTATION
        }
    finalizers = body["metadata"].get("finalizers") or ()
    if ORGANIZATION_FINALIZER in finalizers:
        metadata["finalizers"] = [ORGANIZATION_FINALIZER]
    for name in ("uid", "creationTimestamp"):
        metadata[name] = body["metadata"][name]
    # Who set which field, so that each keeps its owner; status is the operator's.
    metadata["managedFields"] = [
        each for each in body["metadata"].get("managedFields") or () if "subresource" not in each
    ]
    result = {"apiVersion": body["apiVersion"], "kind": body["kind"], "metadata": metadata}
    if body["kind"] == NAMESPACE.kind:
        return result
    for name in ("spec", "data", "type", "immutable"):
        if name in body:
            result[name] = body[name]
    status = kept_status(body)
    return result | ({"status": status} if status else {})


def kept_status(body: Body) -> Body:
    """Return what of the status of an object is in a backup; empty if there is nothing."""
    model = _model(body)
    if model is None or not issubclass(model, Record):
        return {}
    status = body.get("status") or {}
    names = KEPT_STATUS.get(body["kind"], frozenset())
    fields = {name: value for name, value in status.items() if name in names}
    return {"id": status.get("id") or body["metadata"]["uid"], **fields}


def kept_container(body: Body, serving: RequestRecord | None) -> Body:
    """Return what of a Container is in a backup.

    A restore is a stop and a start: an update that was not accepted ends, and what served comes
    back.

    Parameters
    ----------
    serving
        The request of the Enclave that serves; None if none does.
    """
    container = Container.read(body)
    stopped = container.spec.model_copy(update={"state": DesiredState.STOPPED})
    asked = record(container.spec, followed_tag=followed_tag(container))
    found = kept_request(container.model_copy(update={"spec": stopped}), asked, serving)
    result = kept(body)
    result["status"].pop("keptRequest", None)
    if found is not None:
        result["status"]["keptRequest"] = found.wire()
    return result


def is_kept_secret(body: Body) -> bool:
    """Return whether a core Secret of an organization is in a backup.

    Not what an Enclave was started with, which the operator makes again, nor what only the cluster
    itself understands.
    """
    metadata = body["metadata"]
    owners = metadata.get("ownerReferences") or ()
    return (
        body.get("type") not in CREDENTIALS_OF_THE_CLUSTER
        and ENCLAVE_LABEL not in (metadata.get("labels") or {})
        and not any(each["kind"] == "Enclave" for each in owners)
    )


def is_made_once(body: Body) -> bool:
    """Return whether the chart made a Secret of the system at random, when there was none."""
    metadata = body["metadata"]
    return (metadata.get("labels") or {}).get("app.kubernetes.io/part-of") == "cloister" and (
        metadata.get("annotations") or {}
    ).get("helm.sh/resource-policy") == "keep"


def secrets_of(pod_spec: Body) -> Iterator[str]:
    """Yield the names of the Secrets that Pods read, but for those that pull their images."""
    for volume in pod_spec.get("volumes") or ():
        if "secret" in volume:
            yield volume["secret"]["secretName"]
        for source in (volume.get("projected") or {}).get("sources") or ():
            if "secret" in source:
                yield source["secret"]["name"]
    for container in pod_spec["containers"]:
        for variable in container.get("env") or ():
            reference = (variable.get("valueFrom") or {}).get("secretKeyRef")
            if reference:
                yield reference["name"]
        for source in container.get("envFrom") or ():
            if "secretRef" in source:
                yield source["secretRef"]["name"]


def place_of(body: Body) -> str:
    """Return ``namespace/name``, or only the name."""
    metadata = body["metadata"]
    return "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))


def with_present_owners(body: Body, uids: Mapping[str, str]) -> Body:
    """Return a body of a backup for a create, with the uids that the objects it names have now.

    Parameters
    ----------
    uids
        uid before -> uid now. Owners that are not among them are not in the backup, and left out.
    """
    metadata = {
        name: value
        for name, value in body["metadata"].items()
        if name not in {"uid", "creationTimestamp", "managedFields", "ownerReferences"}
    }
    owners = body["metadata"].get("ownerReferences") or ()
    present = [each | {"uid": uids[each["uid"]]} for each in owners if each["uid"] in uids]
    if present:
        metadata["ownerReferences"] = present
    annotations = metadata.get("annotations") or {}
    if annotations.get(REPLACES) in uids:
        metadata["annotations"] = annotations | {REPLACES: uids[annotations[REPLACES]]}
    result = {name: value for name, value in body.items() if name != "status"}
    return result | {"metadata": metadata}


def fingerprint(body: Body) -> bytes:
    """Return a digest of what a restore must bring back: identifier, spec, values, kept status.

    Defaults that a newer schema adds are not a difference.

    Raises
    ------
    ValidationError
        When the object breaks a rule of its kind.
    """
    model = _model(body)
    wire = body if model is None else model.read(body).wire()
    status = wire.get("status") or {}
    document = {
        "id": kept_status(body).get("id"),
        "spec": None if body["kind"] == NAMESPACE.kind else wire.get("spec"),
        "status": {
            name: status.get(name)
            for name in KEPT_STATUS.get(body["kind"], ())
            if model is not None
        },
        "data": body.get("data") or {},
        "type": body.get("type"),
        "labels": body["metadata"].get("labels") if model is None else None,
    }
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).digest()


def _model(body: Body) -> type[Resource] | None:
    """Return the model of one of our kinds; None if it is one of Kubernetes' own."""
    model = MODELS.get(body["kind"])
    return model if model is not None and body["apiVersion"] == model.INFO.api_version else None


def problem_of(body: Body) -> str:
    """Return why an object of a backup cannot be restored by this release; empty if it can."""
    try:
        fingerprint(body)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(each) for each in first["loc"])
        return f"{body['kind']} {place_of(body)}: {where}: {first['msg']}"
    return ""
