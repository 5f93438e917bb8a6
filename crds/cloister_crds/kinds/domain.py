"""Domain: a custom domain of the organization, verified through DNS."""

from typing import Annotated, ClassVar

from pydantic import Field

from cloister_crds.kinds.meta import KindInfo, Model, Record, RecordStatus
from cloister_crds.kinds.scalars import Flag, Hostname, Timestamp, Word
from cloister_crds.schema.markers import Column, ListType, immutable

__all__ = ["Domain", "DomainRecords", "DomainSpec", "DomainStatus"]


class DomainSpec(Model):
    """Desired state of a Domain."""

    domain: Annotated[Hostname, immutable("domain", "make another Domain")]
    """domain is the host name, lowercase, without protocol, path, wildcard or port. Immutable."""


class DomainRecords(Model):
    """The DNS records to create (spec 8.12, 8.13)."""

    txt_name: Word = ""
    """txtName is the host of the TXT record."""
    txt_value: Word = ""
    """txtValue is its exact value."""
    cname_target: Word = ""
    """cnameTarget is the target of the domain's CNAME record."""
    challenge_name: Word = ""
    """challengeName is the host of the CNAME record by which certificates are proven."""
    challenge_label: Word = ""
    """challengeLabel is the first label of its target, which is <challengeLabel>.challenges in the
    first zone of the API's settings."""


class DomainStatus(RecordStatus):
    """Observed state of a Domain."""

    records: DomainRecords | None = None
    """records to create; unset before the first reconcile."""
    verified: Flag = False
    """verified: both records were seen in one check; only a lost TXT record clears it."""
    verified_at: Timestamp | None = None
    """verifiedAt is when it was verified, in UTC; unset if it is not."""
    lost_at: Timestamp | None = None
    """lostAt is when it lost its verification, in UTC; unset if it did not, or is verified
    again."""
    served_until: Timestamp | None = None
    """servedUntil is when one that lost its verification ceases to be served, in UTC."""
    checked_at: Timestamp | None = None
    """checkedAt is when DNS was last checked, in UTC; unset if never."""
    cname_configured: Flag | None = None
    """cnameConfigured: the CNAME was right in the last check; unset if never checked."""
    txt_configured: Flag | None = None
    """txtConfigured: the TXT record was right in the last check; unset if not recorded yet."""
    used_by: Annotated[tuple[Word, ...], Field(max_length=1000), ListType("atomic")] = ()
    """usedBy are the names (metadata.name) of the Containers that use it."""
    last_handled_request: Word = ""
    """lastHandledRequest is the value of cloister.dev/requested-at that was handled last."""


class Domain(Record):
    """A custom domain of the organization."""

    INFO: ClassVar[KindInfo] = KindInfo(
        kind="Domain",
        plural="domains",
        singular="domain",
        short_names=("cdom",),
        namespaced=True,
        description="A custom domain of the organization, verified through DNS.",
    )
    COLUMNS: ClassVar[tuple[Column, ...]] = (
        Column("Domain", ".spec.domain"),
        Column("Verified", ".status.verified", "boolean"),
        Column("Ready", ".status.conditions[?(@.type=='Ready')].status"),
        Column("Reason", ".status.conditions[?(@.type=='Ready')].reason"),
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("CNAME-Target", ".status.records.cnameTarget", wide=True),
        Column("TXT-Name", ".status.records.txtName", wide=True),
        Column("TXT-Value", ".status.records.txtValue", wide=True),
        Column("Used-By", ".status.usedBy", wide=True),
    )

    spec: DomainSpec
    status: DomainStatus = Field(default_factory=DomainStatus)
