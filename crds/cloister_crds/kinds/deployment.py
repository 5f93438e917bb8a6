"""Deployment: the containers of one repository in one organization."""

from typing import Annotated, ClassVar

from pydantic import Field

from cloister_crds.kinds.meta import KindInfo, Model, Record, RecordStatus
from cloister_crds.kinds.scalars import Count, Flag, Repo, Word
from cloister_crds.schema.markers import Column, immutable

__all__ = ["Deployment", "DeploymentCounts", "DeploymentSpec", "DeploymentStatus"]


class DeploymentSpec(Model):
    """Desired state of a Deployment."""

    repo: Annotated[Repo, immutable("repo", "make another Deployment")]
    """repo, ``owner/name``. Immutable."""
    default_staging: Flag = False
    """defaultStaging of new Containers that do not say staging; a change is for later ones only.
    Default false."""


class DeploymentCounts(Model):
    """The five counts of the Admin API (spec 7.2)."""

    instances: Count = 0
    """instances are all Containers of the repository."""
    ready: Count = 0
    """ready ones."""
    failed: Count = 0
    """failed ones."""
    stopped: Count = 0
    """stopped ones and those that are stopping."""
    deploying: Count = 0
    """deploying ones: pending, deploying and started."""


class DeploymentStatus(RecordStatus):
    """Observed state of a Deployment."""

    counts: DeploymentCounts = Field(default_factory=DeploymentCounts)
    """counts of the repository's Containers."""
    last_handled_request: Word = ""
    """lastHandledRequest is the value of cloister.dev/requested-at that was handled last."""


class Deployment(Record):
    """The Containers of one repository in one organization."""

    INFO: ClassVar[KindInfo] = KindInfo(
        kind="Deployment",
        plural="deployments",
        singular="deployment",
        short_names=("cdep",),
        namespaced=True,
        description="The Containers of one repository in one organization. Created for the first "
        "Container that needs it; it is deleted with its last Container when Cloister made it.",
    )
    COLUMNS: ClassVar[tuple[Column, ...]] = (
        Column("Repo", ".spec.repo"),
        Column("Instances", ".status.counts.instances", "integer"),
        Column("Ready", ".status.counts.ready", "integer"),
        Column("Failed", ".status.counts.failed", "integer"),
        Column("Deploying", ".status.counts.deploying", "integer"),
        Column("Stopped", ".status.counts.stopped", "integer"),
        Column("Default-Staging", ".spec.defaultStaging", "boolean"),
        Column("Age", ".metadata.creationTimestamp", "date"),
    )

    spec: DeploymentSpec
    status: DeploymentStatus = Field(default_factory=DeploymentStatus)
