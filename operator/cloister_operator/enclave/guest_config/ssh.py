"""SSH into debug enclaves: the document of ``guest ssh``, its container, its Service.

Only debug enclaves with SSH keys have this: every container then has a socket of its own, and the
guest stays its first process (docs/enclave.md).
"""

from typing import Any

from cloister_crds.kinds import Container
from cloister_crds.names import (
    CONTAINER_LABEL,
    ENCLAVE_LABEL,
    MANAGED_BY,
    MANAGED_BY_LABEL,
    ORGANIZATION_LABEL,
    distinct_label,
    service_name,
    shells_service_name,
)
from cloister_operator.enclave import paths
from cloister_operator.enclave.network.addresses import SSH_PORT
from cloister_operator.enclave.plan import BuildSettings, EnclavePlan
from cloister_operator.enclave.sidecars import SSH, sidecar_name, unprivileged

_VERSION = 2
PUBLIC_KEY_FILE = f"{paths.PUBLIC_HOST_KEY}/host-key.pub"
"""Where the SSH server writes its public key, which the shim serves."""


def shells_document(plan: EnclavePlan) -> dict[str, Any]:
    """Build the document of the SSH server; who may log in is not measured.

    Returns
    -------
    dict[str, Any]
        The document of ``guest ssh``.
    """
    return {
        "version": _VERSION,
        "port": SSH_PORT,
        "hostKeyFile": f"{paths.HOST_KEY}/host-key",
        "publicKeyFile": PUBLIC_KEY_FILE,
        "containers": [
            {"name": name, "socket": f"{paths.SHELLS}/{name}/{paths.SHELL_SOCKET}"}
            for name in plan.names
        ],
    }


def ssh_container(
    plan: EnclavePlan, settings: BuildSettings, mounts: list[dict[str, Any]]
) -> dict[str, Any]:
    """Build the container of the SSH server, without any privilege."""
    return {
        "name": sidecar_name(SSH, plan.names),
        "image": settings.guest_image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/guest", "ssh", "-spec", f"{paths.SSH_CONFIG}/{paths.SSH_KEY}"],
        "ports": [{"name": "ssh", "containerPort": SSH_PORT}],
        "restartPolicy": "Always",
        "securityContext": unprivileged(SSH),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }


def build_shells_service(container: Container, organization: str, enclave: str) -> dict[str, Any]:
    """Build the Service that exposes the SSH server of an Enclave.

    Parameters
    ----------
    container
        The Container; it owns the Service.

    Returns
    -------
    dict[str, Any]
        Manifest for server-side apply; the cluster chooses the port of the nodes.
    """
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": shells_service_name(container.metadata.name),
            "namespace": container.metadata.namespace,
            "labels": {
                MANAGED_BY_LABEL: MANAGED_BY,
                ORGANIZATION_LABEL: distinct_label(organization),
                CONTAINER_LABEL: service_name(container.metadata.name),
            },
            "ownerReferences": [container.owner_reference()],
        },
        "spec": {
            "type": "NodePort",
            "publishNotReadyAddresses": True,
            "selector": {ENCLAVE_LABEL: enclave},
            "ports": [{"name": "ssh", "port": 22, "targetPort": SSH_PORT, "protocol": "TCP"}],
        },
    }
