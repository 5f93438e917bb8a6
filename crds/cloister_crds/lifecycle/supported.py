"""What is part of a spec and has no part yet that carries it out; of files and Hosts nothing is.

Such a field is refused with the code ``NotSupportedYet`` and never passed over. A line goes when
its part is built.
"""

from collections.abc import Iterator

from cloister_crds.kinds.container import ContainerSpec
from cloister_crds.problems import Problem

__all__ = ["not_supported_yet"]


def not_supported_yet(spec: ContainerSpec) -> Iterator[Problem]:
    """List what cannot be carried out yet.

    Parameters
    ----------
    spec
        Spec of the Container.

    Yields
    ------
    Problem
        One for each field that is asked for.
    """
    if spec.replaces is not None:
        yield Problem(
            field="spec.replaces",
            code="NotSupportedYet",
            message="spec.replaces: taking over from another Container is not supported yet; "
            "leave it out.",
        )
