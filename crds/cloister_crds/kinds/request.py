"""The request that an Enclave was made from: the deploy fields of a Container's spec.

"Wanted is what serves" is equality of this record with what the spec says now, after one
normalisation (`cloister_crds.lifecycle.request`). New fields are optional, and a missing one means
the default of the release that wrote it.
"""

from typing import Annotated

from pydantic import Field

from cloister_crds.kinds.container import Variable
from cloister_crds.kinds.meta import Model
from cloister_crds.kinds.scalars import Count, Flag, Word
from cloister_crds.schema.markers import ListType

__all__ = ["RequestRecord"]


class RequestRecord(Model):
    """The deploy fields as they were when the Enclave was decided."""

    repo: Word
    """repo, ``owner/name``."""
    tag: Word
    """tag of spec, or of the release that was followed."""
    commit: Word | None = None
    """commit pin of spec; unset = none."""
    variables: Annotated[
        tuple[Variable, ...], Field(max_length=256), ListType("map", keys=("name",))
    ] = ()
    """variables, ordered by name."""
    secrets: Annotated[tuple[Word, ...], Field(max_length=256), ListType("set")] = ()
    """secrets bound, ordered by name."""
    ssh_keys: Annotated[tuple[Word, ...], Field(max_length=64), ListType("set")] = ()
    """sshKeys, ordered by name."""
    debug: Flag = False
    """debug enclave or not."""
    gpus: Count | None = None
    """gpus given by spec; unset = the file's."""
    custom_domain: Word | None = None
    """customDomain; unset = none."""
    host: Word | None = None
    """host named by spec; unset = the default one."""
    accept_shared_network: Flag = False
    """acceptSharedNetwork of spec."""
    disable_confidential: Flag = False
    """disableConfidential of spec."""
    relaunch: Word | None = None
    """relaunch token; unset = none."""
