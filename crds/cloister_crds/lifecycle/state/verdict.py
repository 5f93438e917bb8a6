"""What a rule answers: how far the wanted request is, and what is to stay and to be made."""

from dataclasses import dataclass
from datetime import datetime

from cloister_crds.kinds.container import ContainerPhase
from cloister_crds.lifecycle.state.decision import Action
from cloister_crds.lifecycle.state.observed import Need

__all__ = ["Verdict"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The word of one rule. Status and upkeep follow from it alone."""

    progress: ContainerPhase
    """How far the wanted request is, as if nothing else served."""
    reason: str
    """Word of the reasons table for the condition Ready."""
    message: str = ""
    """Sentence for people."""
    settled: bool = False
    """Whether what spec asks for is so: the condition Ready."""
    stalled: bool = False
    """Whether somebody has to change something."""
    active: str | None = None
    """Name of the Enclave that serves from now on; None = as before."""
    candidate: str = ""
    """Name of the Enclave on its way, or of the one that remembers a failure; empty = none."""
    keep: frozenset[str] = frozenset()
    """Names of Enclaves that stay; all others end."""
    route: str = ""
    """Name of the Enclave that the Service is to select; empty = leave it."""
    preview: str = ""
    """Name of the Enclave that waits for promotion; empty = none does."""
    actions: tuple[Action, ...] = ()
    """What is to be claimed or made."""
    needs: tuple[Need, ...] = ()
    """What is to be asked."""
    retry_at: datetime | None = None
    """When to look again, in UTC; None = when something changes."""
    frees_hostnames: bool = False
    """Whether the host names of spec are given back too: nothing was ever made."""
