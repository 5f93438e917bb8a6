"""The request that an Enclave was made from: the deploy fields of a Container's spec.

"Wanted is what serves" is equality of this record with what the spec says now, after one
normalisation (`cloister_crds.lifecycle.request`). New fields are optional, and a missing one means
the default of the release that wrote it.
"""

from typing import Annotated

from pydantic import Field

from cloister_crds.kinds.container import Variable
from cloister_crds.kinds.meta import Model
from cloister_crds.schema.markers import ListType

__all__ = ["RequestRecord"]


class RequestRecord(Model):
    """The deploy fields as they were when the Enclave was decided."""

    repo: str
    """repo, ``owner/name``."""
    tag: str
    """tag of spec, or of the release that was followed."""
    commit: str | None = None
    """commit pin of spec; unset = none."""
    variables: Annotated[
        tuple[Variable, ...], ListType("map", keys=("name",)), Field(max_length=256)
    ] = ()
    """variables, ordered by name."""
    secrets: Annotated[tuple[str, ...], ListType("set"), Field(max_length=256)] = ()
    """secrets bound, ordered by name."""
    ssh_keys: Annotated[tuple[str, ...], ListType("set"), Field(max_length=64)] = ()
    """sshKeys, ordered by name."""
    debug: bool = False
    """debug enclave or not."""
    gpus: int | None = None
    """gpus given by spec; unset = the file's."""
    custom_domain: str | None = None
    """customDomain; unset = none."""
    host: str | None = None
    """host named by spec; unset = the default one."""
    accept_shared_network: bool = False
    """acceptSharedNetwork of spec."""
    disable_confidential: bool = False
    """disableConfidential of spec."""
    relaunch: str | None = None
    """relaunch token; unset = none."""
