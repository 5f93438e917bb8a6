"""The plan for one Container: how far the wanted request is, what stays and what is created.

A rule makes the plan; rollback and cleanup refine it. Each step returns a new plan, so that what a
step changed is visible where it is called.
"""

from dataclasses import dataclass, replace
from datetime import datetime

from cloister_crds.kinds.container import ContainerPhase
from cloister_crds.lifecycle.state.observed import Need
from cloister_operator.rollout.decision import Action

__all__ = ["RolloutPlan", "earliest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutPlan:
    """Status and cleanup follow from the plan alone."""

    progress: ContainerPhase
    """How far the wanted request is, as if nothing else served."""
    reason: str
    """Reason of the condition Ready, from the reasons table."""
    message: str = ""
    """Sentence for people."""
    settled: bool = False
    """Whether what spec requests is reached: the condition Ready."""
    stalled: bool = False
    """Whether somebody has to change something."""
    active: str | None = None
    """Name of the Enclave that serves from now on; None = as before, empty = none."""
    candidate: str = ""
    """Name of the Enclave that is starting, or of the one kept for its failure; empty = none."""
    keep: frozenset[str] = frozenset()
    """Names of Enclaves that stay; all others are deleted."""
    route: str = ""
    """Name of the Enclave that the Service is to select; empty = leave the Service unchanged."""
    preview: str = ""
    """Name of the Enclave that waits for promotion; empty = none does."""
    actions: tuple[Action, ...] = ()
    """What to do, in order."""
    needs: tuple[Need, ...] = ()
    """What to look up."""
    retry_at: datetime | None = None
    """When to reconcile again, in UTC; None = when something changes."""
    frees_hostnames: bool = False
    """Whether the host names of spec are released too: nothing was ever created."""

    def keeping(self, names: frozenset[str]) -> "RolloutPlan":
        """Return the plan with more Enclaves that stay."""
        return replace(self, keep=self.keep | names)

    def with_actions(self, *actions: Action) -> "RolloutPlan":
        """Return the plan with further actions after its own."""
        return replace(self, actions=(*self.actions, *actions))

    def with_needs(self, *needs: Need) -> "RolloutPlan":
        """Return the plan with further lookups after its own."""
        return replace(self, needs=(*self.needs, *needs))

    def routing_to(self, name: str) -> "RolloutPlan":
        """Return the plan with the Service at an Enclave, unless it already moves the Service."""
        return replace(self, route=self.route or name)

    def retrying_at(self, at: datetime | None) -> "RolloutPlan":
        """Return the plan that reconciles again at a time, or earlier; None changes nothing."""
        return replace(self, retry_at=earliest(self.retry_at, at))


def earliest(*times: datetime | None) -> datetime | None:
    """Return the earliest of times; None counts for nothing."""
    return min((each for each in times if each is not None), default=None)
