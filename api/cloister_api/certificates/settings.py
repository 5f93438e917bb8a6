"""Settings of certificates: who signs, by which account, how names are proven."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

__all__ = ["CertificateSettings", "IssuerKind", "OwnAuthoritySettings"]

DAY = 86_400


class Section(BaseModel):
    """A part of the settings."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True
    )


class IssuerKind(StrEnum):
    """Who signs."""

    OWN = "own"
    """An authority of this installation, which clients have to be told to trust."""


class OwnAuthoritySettings(Section):
    """An own authority, for development and closed networks."""

    certificate: Path
    """File with its certificate, PEM; intermediate ones may follow. `cloister ca create` makes
    it."""
    key: Path
    """File with its private key, PEM, mode 0600."""
    lifetime_seconds: Annotated[int, Field(ge=60, le=398 * DAY)] = 30 * DAY
    """How long a signed certificate is good, in seconds. Default 30 days."""


class CertificateSettings(Section):
    """How certificates of enclaves come to be."""

    issuer: IssuerKind
    """own."""
    own: OwnAuthoritySettings | None = None
    """The own authority; needed with issuer own."""
    requests_per_hour: Annotated[int, Field(ge=1)] = 12
    """New requests of one enclave within an hour; more are answered with 429. Default 12."""

    @model_validator(mode="after")
    def complete(self) -> Self:
        """Refuse an issuer without its part.

        Raises
        ------
        ValueError
            When the part is missing.
        """
        if getattr(self, self.issuer.value) is None:
            raise ValueError(
                f"issuer is {self.issuer.value}, so the setting {self.issuer.value} is needed"
            )
        return self

    def anchored(self, directory: Path) -> Self:
        """Answer the settings with paths relative to a directory made absolute."""
        own = self.own and self.own.model_copy(
            update={
                "certificate": (directory / self.own.certificate).resolve(),
                "key": (directory / self.own.key).resolve(),
            }
        )
        return self.model_copy(update={"own": own})
