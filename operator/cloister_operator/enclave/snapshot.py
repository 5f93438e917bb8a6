"""The snapshot of an Enclave: the values of its secrets at the time it was created."""

from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from cloister_operator.enclave.plan import EnclavePlan

__all__ = ["TOKEN_KEY", "build_snapshot"]

TOKEN_KEY = "enclave.token"  # noqa: S105 - the name of a key
"""Key of the enclave's own token; no secret of a file can be named so."""


def build_snapshot(
    plan: EnclavePlan, values: Mapping[str, bytes], token: str | None = None
) -> dict[str, Any]:
    """Build the immutable core Secret that the Pod's environment and files refer to.

    Parameters
    ----------
    plan
        The Enclave and its file.
    values
        Value of each secret that the file names.
    token
        The enclave's own token; None = it has none.

    Returns
    -------
    dict[str, Any]
        Manifest of the Secret; it holds the token and the named secrets, and nothing else of
        `values`.

    Raises
    ------
    KeyError
        When a secret of the file is missing in `values`; the decision has looked all of them up.
    """
    data = {name: b64encode(values[name]).decode() for name in plan.secrets}
    if token is not None:
        data[TOKEN_KEY] = b64encode(token.encode()).decode()
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": plan.metadata(plan.snapshot),
        "immutable": True,
        "data": data,
    }
