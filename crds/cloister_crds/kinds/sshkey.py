"""SSHKey: a public key that may log in to debug enclaves."""

from typing import Annotated, ClassVar

from pydantic import Field

from cloister_crds.kinds.meta import KindInfo, Model, Record, RecordStatus
from cloister_crds.kinds.scalars import Word
from cloister_crds.schema.markers import Cel, Column, ListType, immutable, matches

__all__ = ["KEBAB_PATTERN", "SSHKey", "SSHKeySpec", "SSHKeyStatus"]

KEBAB_PATTERN = r"^[a-z0-9]+(-[a-z0-9]+)*$"
"""Names of SSH keys (spec 8.5)."""


class SSHKeySpec(Model):
    """Desired state of an SSHKey."""

    public_key: Annotated[
        str,
        Field(min_length=1, max_length=16_384),
        matches(
            r"^(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(256|384|521)|"
            r"sk-ssh-ed25519@openssh\.com|sk-ecdsa-sha2-nistp256@openssh\.com) "
            r"[A-Za-z0-9+/]+={0,3}( [^\r\n]*)?$",
            "publicKey is one line of an OpenSSH public key file, such as ssh-ed25519 AAAA… name; "
            "types: ssh-ed25519, ssh-rsa, ecdsa-sha2-nistp256/384/521 and their sk- forms",
        ),
        immutable("publicKey", "make another SSHKey"),
    ]
    """publicKey is one line of an OpenSSH public key file. Immutable."""


class SSHKeyStatus(RecordStatus):
    """Observed state of an SSHKey."""

    used_by: Annotated[tuple[Word, ...], Field(max_length=1000), ListType("atomic")] = ()
    """usedBy are the names (metadata.name) of the Containers that list it."""
    key_type: Word = ""
    """keyType such as ssh-ed25519; empty until seen."""


class SSHKey(Record):
    """A public key that may log in to debug enclaves."""

    INFO: ClassVar[KindInfo] = KindInfo(
        kind="SSHKey",
        plural="sshkeys",
        singular="sshkey",
        short_names=(),
        namespaced=True,
        description="A public key that may log in to debug enclaves of Containers that name it.",
    )
    CEL: ClassVar[tuple[Cel, ...]] = (
        Cel(
            # Keys that earlier releases admitted keep their names.
            rule=f"oldSelf.hasValue() || self.metadata.name.matches(r'{KEBAB_PATTERN}')",
            message="metadata.name is the name of the key: write kebab-case, which is lowercase "
            "letters and digits with single hyphens between them",
            optional_old_self=True,
        ),
    )
    COLUMNS: ClassVar[tuple[Column, ...]] = (
        Column("Type", ".status.keyType"),
        Column("Ready", ".status.conditions[?(@.type=='Ready')].status"),
        Column("Reason", ".status.conditions[?(@.type=='Ready')].reason"),
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Used-By", ".status.usedBy", wide=True),
    )

    spec: SSHKeySpec
    status: SSHKeyStatus = Field(default_factory=SSHKeyStatus)
