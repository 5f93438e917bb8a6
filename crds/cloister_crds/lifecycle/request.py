"""The record of a request: what an Enclave is created from, and when two requests are the same.

"The wanted request serves" means `same` of the Enclave's record and the one that `record` builds
from spec. The revision is for names only; records are never compared through it, so that an upgrade
of Cloister that hashes differently redeploys nothing.
"""

import json

from cloister_crds.kinds.container import Container, ContainerSpec
from cloister_crds.kinds.enclave import EnclaveSpec
from cloister_crds.kinds.request import RequestRecord
from cloister_crds.names import short_hash

__all__ = [
    "SPEC_FIELDS",
    "bound_secrets",
    "differing_fields",
    "is_made_for",
    "named_ssh_keys",
    "normalise",
    "possible_requests",
    "record",
    "revision",
    "same",
    "with_request",
]

SPEC_FIELDS = frozenset(RequestRecord.model_fields) - {"repo"}
"""Fields of spec that are part of a request, by their Python names; repo is immutable."""


def record(spec: ContainerSpec, *, followed_tag: str | None = None) -> RequestRecord:
    """Build the record of what a spec requests.

    Parameters
    ----------
    spec
        Spec of the Container.
    followed_tag
        Tag of the release that is followed instead of ``spec.tag``; None means ``spec.tag``.

    Returns
    -------
    RequestRecord
        The record, with lists in the order of spec.
    """
    return RequestRecord(
        repo=spec.repo,
        tag=followed_tag or spec.tag,
        commit=None if followed_tag else spec.commit,
        **{name: getattr(spec, name) for name in SPEC_FIELDS - {"tag", "commit"}},
    )


def possible_requests(container: Container) -> tuple[ContainerSpec | RequestRecord, ...]:
    """Return what may run next: spec, and the request that is kept instead of it, if any."""
    kept = container.status.kept_request
    return (container.spec,) if kept is None else (container.spec, kept.request)


def bound_secrets(container: Container) -> frozenset[str]:
    """Return the secrets that are bound by what may run next or by what serves."""
    served = container.status.served_bindings
    every = (*possible_requests(container), *((served,) if served is not None else ()))
    return frozenset(name for each in every for name in each.secrets)


def named_ssh_keys(container: Container) -> frozenset[str]:
    """Return the SSH keys that are named by what may run next or by what serves."""
    served = container.status.served_bindings
    every = (*possible_requests(container), *((served,) if served is not None else ()))
    return frozenset(name for each in every for name in each.ssh_keys)


def normalise(request: RequestRecord) -> RequestRecord:
    """Normalise a record, so that equal requests are equal.

    Lists without a meaningful order are sorted, and a name that is listed twice counts once. A
    missing field has its default already: that of the release that wrote it, so defaults of
    `RequestRecord` never change (golden records check that).
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


def differing_fields(one: RequestRecord, other: RequestRecord) -> frozenset[str]:
    """Return the fields, by their Python names, in which two records differ."""
    first, second = normalise(one), normalise(other)
    return frozenset(name for name in SPEC_FIELDS if getattr(first, name) != getattr(second, name))


def is_made_for(enclave: EnclaveSpec, request: RequestRecord) -> bool:
    """Return whether an Enclave runs what a request specifies.

    A request that pins the very commit that an unpinned one resolved to is not another request.
    """
    made = enclave.request
    if made.commit is None and request.commit == enclave.commit:
        made = made.model_copy(update={"commit": enclave.commit})
    return same(made, request)


def with_request(spec: ContainerSpec, request: RequestRecord) -> ContainerSpec:
    """Return a spec that requests what a record says; what is equal stays as spec has it."""
    changed = differing_fields(record(spec), request)
    return spec.model_copy(update={name: getattr(request, name) for name in changed})


def revision(request: RequestRecord, generation: int) -> str:
    """Return the name of a request.

    Parameters
    ----------
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
