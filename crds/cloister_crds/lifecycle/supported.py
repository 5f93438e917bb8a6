"""What is part of a spec and has no part yet that carries it out; of files nothing is.

Such a field is refused with the code ``NotSupportedYet`` and never passed over. A line goes when
its part is built.
"""

from collections.abc import Iterator

from cloister_crds.kinds.container import ContainerSpec
from cloister_crds.kinds.host import TEE, Host
from cloister_crds.problems import Problem

__all__ = ["not_supported_yet"]


def _refused(field: str, sentence: str) -> Problem:
    return Problem(field=field, code="NotSupportedYet", message=sentence)


def not_supported_yet(
    spec: ContainerSpec | None = None,
    host: Host | None = None,
) -> tuple[Problem, ...]:
    """List what cannot be carried out yet.

    Parameters
    ----------
    spec
        Spec of the Container; None = it is not looked at.
    host
        Host that it is to run on; None = it is not looked at.

    Returns
    -------
    tuple[Problem, ...]
        One for each field that is asked for; the field's path begins with ``spec`` or ``host``.
    """
    problems: list[Problem] = []
    if spec is not None:
        problems += _of_spec(spec)
    if host is not None:
        problems += _of_host(host)
    return tuple(problems)


def _of_spec(spec: ContainerSpec) -> Iterator[Problem]:
    asked = (("replaces", spec.replaces is not None, "taking over from another Container"),)
    for name, wanted, what in asked:
        if wanted:
            yield _refused(
                f"spec.{name}", f"spec.{name}: {what} is not supported yet; leave it out."
            )


def _of_host(host: Host) -> Iterator[Problem]:
    name = host.metadata.name
    if host.spec.tee is not TEE.NONE:
        yield _refused(
            "host.tee",
            f"Host {name} has tee {host.spec.tee}, which needs TLS keys that are made inside "
            "enclaves; that is not supported yet. Name a Host with tee None.",
        )
