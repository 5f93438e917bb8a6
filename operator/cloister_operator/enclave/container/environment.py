"""The environment of a container of the file."""

from typing import Any

from cloister_crds.config import ContainerConfig, secret_is_file
from cloister_operator.enclave.container.devices import NO_DEVICES, VISIBLE_DEVICES, hides_gpus
from cloister_operator.enclave.plan import EnclavePlan

__all__ = ["container_environment"]

_DOMAIN = "DOMAIN"


def container_environment(plan: EnclavePlan, spec: ContainerConfig) -> list[dict[str, Any]]:
    """Return the variables: the file's values, deploy-time ones for bare names, secrets.

    Returns
    -------
    list[dict[str, Any]]
        ``env`` of the container. A bare name without a value stays unset; a bare ``DOMAIN`` is the
        public host name unless a variable of that name was set. The runtime adds the image's
        variables. The file cannot choose which GPUs are visible (`devices`).
    """
    given = {each.name: each.value for each in plan.enclave.spec.request.variables}
    if plan.enclave.spec.hostnames:
        given.setdefault(_DOMAIN, plan.enclave.spec.hostnames[0])
    values: dict[str, dict[str, Any]] = {}
    for entry in spec.env:
        value = given.get(entry.name) if entry.value is None else entry.value
        if value is not None:
            values[entry.name] = {"name": entry.name, "value": _escaped(value)}
    for secret in spec.secrets:
        if not secret_is_file(secret):
            reference = {"secretKeyRef": {"name": plan.snapshot, "key": secret}}
            values[secret] = {"name": secret, "valueFrom": reference}
    values.pop(VISIBLE_DEVICES, None)
    if hides_gpus(plan, spec):
        values[VISIBLE_DEVICES] = {"name": VISIBLE_DEVICES, "value": NO_DEVICES}
    return list(values.values())


def _escaped(text: str) -> str:
    """Double each dollar sign: Kubernetes expands ``$(NAME)``, the format does not."""
    return text.replace("$", "$$")
