"""The record of a request: what an Enclave is made from, and when two requests are the same.

"Wanted is what serves" is `same` of the Enclave's record and of the one that `record` makes from
spec. The revision makes names and nothing else; records are never compared through it, so that an
upgrade of Cloister that hashes differently redeploys nothing.
"""

import json

from cloister_crds.kinds.container import ContainerSpec
from cloister_crds.kinds.request import RequestRecord
from cloister_crds.names import short_hash

__all__ = ["normalise", "record", "revision", "same"]


def record(spec: ContainerSpec, *, followed_tag: str | None = None) -> RequestRecord:
    """Make the record of what a spec asks for.

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
    """Bring a record into the one form in which equal requests are equal.

    Lists whose order says nothing are ordered, and a name that is listed twice counts once. A field
    that is missing has its default already: it means the default of the release that wrote it, so
    defaults of `RequestRecord` never change (the golden records keep watch).

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
    """Return whether two records ask for the same.

    Parameters
    ----------
    one
        A record.
    other
        Another one, maybe of another release of Cloister.
    """
    return normalise(one) == normalise(other)


def revision(request: RequestRecord, generation: int) -> str:
    """Name a request.

    Parameters
    ----------
    request
        The record.
    generation
        metadata.generation of the Container at which the request was first decided: a later
        return to the same request has another name, so that an old ``promote`` never fits it.

    Returns
    -------
    str
        Ten characters that may stand in a DNS label.
    """
    text = json.dumps(normalise(request).wire(), sort_keys=True, separators=(",", ":"))
    return short_hash(f"{generation} {text}")
