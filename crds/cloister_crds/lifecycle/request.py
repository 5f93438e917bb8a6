"""The record of a request: what an Enclave is created from, and when two requests are the same.

"The wanted request serves" means `same` of the Enclave's record and the one that `record` builds
from spec. The revision is for names only; records are never compared through it, so that an upgrade
of Cloister that hashes differently redeploys nothing.
"""

import json

from cloister_crds.kinds.container import ContainerSpec
from cloister_crds.kinds.request import RequestRecord
from cloister_crds.names import short_hash

__all__ = ["normalise", "record", "revision", "same"]


def record(spec: ContainerSpec, *, followed_tag: str | None = None) -> RequestRecord:
    """Build the record of what a spec requests.

    Parameters
    ----------
    spec
        Spec of the Container.
    followed_tag
        Tag of the release that is followed instead of ``spec.tag``; None = ``spec.tag``.

    Returns
    -------
    RequestRecord
        The record in normal form.
    """
    return normalise(
        RequestRecord(
            repo=spec.repo,
            tag=followed_tag or spec.tag,
            commit=None if followed_tag else spec.commit,
            variables=spec.variables,
            secrets=spec.secrets,
            ssh_keys=spec.ssh_keys,
            debug=spec.debug,
            gpus=spec.gpus,
            custom_domain=spec.custom_domain,
            host=spec.host,
            accept_shared_network=spec.accept_shared_network,
            disable_confidential=spec.disable_confidential,
            relaunch=spec.relaunch,
        )
    )


def normalise(request: RequestRecord) -> RequestRecord:
    """Normalise a record, so that equal requests are equal.

    Lists without a meaningful order are sorted, and a name that is listed twice counts once. A
    missing field has its default already: that of the release that wrote it, so defaults of
    `RequestRecord` never change (golden records check that).

    Returns
    -------
    RequestRecord
        The same request in normal form.
    """
    variables = {variable.name: variable for variable in request.variables}
    return request.model_copy(
        update={
            "variables": tuple(variables[name] for name in sorted(variables)),
            "secrets": tuple(sorted(set(request.secrets))),
            "ssh_keys": tuple(sorted(set(request.ssh_keys))),
            "commit": request.commit or None,
            "custom_domain": request.custom_domain or None,
            "host": request.host or None,
            "relaunch": request.relaunch or None,
        }
    )


def same(one: RequestRecord, other: RequestRecord) -> bool:
    """Return whether two records request the same, maybe of two releases of Cloister."""
    return normalise(one) == normalise(other)


def revision(request: RequestRecord, generation: int) -> str:
    """Return the name of a request.

    Parameters
    ----------
    request
        The record.
    generation
        metadata.generation of the Container at which the request was first decided: a later return
        to the same request has another name, so that an old ``promote`` never matches it.

    Returns
    -------
    str
        Ten characters that are valid in a DNS label.
    """
    text = json.dumps(normalise(request).wire(), sort_keys=True, separators=(",", ":"))
    return short_hash(f"{generation} {text}")
