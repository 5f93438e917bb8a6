"""HostnameClaim: who holds a host name. Named after the host, so that there is one of each."""

import re
from typing import Annotated, ClassVar

from pydantic import Field

from cloister_crds.kinds.meta import KindInfo, Model, Resource
from cloister_crds.kinds.scalars import HOSTNAME_PATTERN, LABEL_PATTERN, ObjectName
from cloister_crds.schema.markers import Cel, Column, matches

__all__ = ["ClaimHolder", "HostnameClaim", "HostnameClaimSpec"]


class ClaimHolder(Model):
    """The Container that holds the name."""

    namespace: Annotated[
        str,
        Field(min_length=1, max_length=63),
        matches(
            LABEL_PATTERN,
            "namespace is of lowercase letters, digits and hyphens, with no hyphen at the ends",
        ),
    ]
    """namespace of the Container. Immutable."""
    name: ObjectName
    """name of the Container (metadata.name); another one of the namespace after a transfer."""


class HostnameClaimSpec(Model):
    """Holder of the host name."""

    holder: ClaimHolder
    """holder of the host name."""


class HostnameClaim(Resource):
    """The holder of a host name; metadata.name is the host name."""

    INFO: ClassVar[KindInfo] = KindInfo(
        kind="HostnameClaim",
        plural="hostnameclaims",
        singular="hostnameclaim",
        short_names=(),
        namespaced=False,
        description="The holder of a host name; metadata.name is the host name, so that there is "
        "one of each in the cluster.",
    )
    CEL: ClassVar[tuple[Cel, ...]] = (
        Cel(
            rule=f"self.metadata.name.matches(r'{HOSTNAME_PATTERN}')",
            message="metadata.name is the host name that is claimed, such as web.acme.example.com",
            check=lambda claim: re.fullmatch(HOSTNAME_PATTERN, claim.metadata.name) is not None,
        ),
    )
    COLUMNS: ClassVar[tuple[Column, ...]] = (
        Column("Namespace", ".spec.holder.namespace"),
        Column("Holder", ".spec.holder.name"),
        Column("Age", ".metadata.creationTimestamp", "date"),
    )

    spec: HostnameClaimSpec
