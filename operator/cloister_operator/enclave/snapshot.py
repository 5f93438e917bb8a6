"""The snapshot of an Enclave: the values of its secrets at the time it was created."""

from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from cloister_operator.enclave.plan import EnclavePlan

__all__ = ["build_snapshot"]


def build_snapshot(plan: EnclavePlan, values: Mapping[str, bytes]) -> dict[str, Any]:
    """Build the immutable core Secret that the Pod's environment and files refer to.

    Parameters
    ----------
    plan
        The Enclave and its file.
    values
        Value of each secret that the file names.

    Returns
    -------
    dict[str, Any]
        Manifest of the Secret; it holds the named secrets, and nothing else of `values`.

    Raises
    ------
    KeyError
        When a secret of the file is missing in `values`; the decision has looked all of them up.
    """
    data = {name: b64encode(values[name]).decode() for name in plan.secrets}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": plan.metadata(plan.snapshot),
        "immutable": True,
        "data": data,
    }
