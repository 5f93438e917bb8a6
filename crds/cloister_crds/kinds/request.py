"""The request that an Enclave was made from: the deploy fields of a Container's spec.

"Wanted is what serves" is equality of this record with what the spec says now, after one
normalisation (`cloister_crds.lifecycle.request`). New fields are optional, and a missing one means
the default of the release that wrote it.
"""

from typing import Annotated

from pydantic import Field

from cloister_crds.kinds.meta import Model
from cloister_crds.kinds.scalars import Count, Flag, Word
from cloister_crds.schema.markers import ListType, matches

__all__ = ["RequestRecord", "Variable"]


class Variable(Model):
    """A deploy-time value for a bare name in ``env`` of the configuration file."""

    name: Annotated[
        str,
        Field(min_length=1, max_length=256),
        matches(
            r"^[A-Za-z_][A-Za-z0-9_]*$",
            "name of a variable is of letters, digits and underscores and begins with no digit",
        ),
    ]
    """name as it is in the file's env."""
    value: Annotated[str, Field(max_length=32768)] = ""
    """value of the variable; not secret: it can be read by all who read the Container. Default
    empty."""


class RequestRecord(Model):
    """The deploy fields as they were when the Enclave was decided."""

    repo: Word
    """repo, ``owner/name``."""
    tag: Word
    """tag of spec, or of the release that was followed."""
    commit: Word | None = None
    """commit pin of spec; unset if there is none."""
    variables: Annotated[
        tuple[Variable, ...], Field(max_length=256), ListType("map", keys=("name",))
    ] = ()
    """variables, in the order of spec."""
    secrets: Annotated[tuple[Word, ...], Field(max_length=256), ListType("set")] = ()
    """secrets bound, in the order of spec."""
    ssh_keys: Annotated[tuple[Word, ...], Field(max_length=64), ListType("set")] = ()
    """sshKeys, in the order of spec."""
    debug: Flag = False
    """debug enclave or not."""
    gpus: Count | None = None
    """gpus given by spec; unset means the file's."""
    custom_domain: Word | None = None
    """customDomain; unset if there is none."""
    host: Word | None = None
    """host named by spec; unset means the default one."""
    accept_shared_network: Flag = False
    """acceptSharedNetwork of spec."""
    disable_confidential: Flag = False
    """disableConfidential of spec."""
    relaunch: Word | None = None
    """relaunch token; unset if there is none."""
