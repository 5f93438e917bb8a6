"""Keys and certificates of the issuer, read or created at the start of the facade."""

import logging

from cloister_api.certificates.authority import CertificateAuthority
from cloister_api.certificates.settings import CertificateSettings
from cloister_clients.clock import utc_now

__all__ = ["authority_of", "check_issuer"]

logger = logging.getLogger(__name__)

AUTHORITY_NAME = "Cloister development authority"
"""Common name of the authority that a development installation creates."""


def authority_of(
    settings: CertificateSettings | None, *, development: bool
) -> CertificateAuthority | None:
    """Read the own authority; in development it is created at the first start.

    Returns
    -------
    CertificateAuthority or None
        None = another issuer signs, or none does.

    Raises
    ------
    AuthorityError
        When it is missing or cannot be used.
    """
    own = settings and settings.own
    if not own:
        return None
    if development and not own.key.exists() and not own.certificate.exists():
        logger.warning("development: creating a certificate authority in %s", own.certificate)
        return CertificateAuthority.create(
            own.certificate, own.key, name=AUTHORITY_NAME, now=utc_now()
        )
    return CertificateAuthority.read(own.certificate, own.key)


def check_issuer(settings: CertificateSettings | None, *, development: bool) -> None:
    """Read every key and certificate that signing needs, to fail at the start and not later.

    Raises
    ------
    AuthorityError
        When one cannot be used.
    """
    authority_of(settings, development=development)
    acme = settings and settings.acme
    if acme:
        from cloister_api.certificates.account import (  # noqa: PLC0415 - imports the ACME library
            AcmeAccount,
        )
        from cloister_api.certificates.challenges import (  # noqa: PLC0415 - as above
            ChallengeRecords,
        )

        AcmeAccount(acme)
        ChallengeRecords(acme.dns)
