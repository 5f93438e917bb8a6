"""Keys and certificates of the issuer, read or created at the start of the facade."""

import logging
from typing import TYPE_CHECKING

from cloister_api.certificates.authority import CertificateAuthority
from cloister_api.certificates.permitted_names import PermittedNames
from cloister_api.certificates.settings import CertificateSettings
from cloister_api.ledger.certificates import CertificateOrders
from cloister_clients.clock import Clock, utc_now

if TYPE_CHECKING:
    from cloister_api.certificates.queue import CertificateQueue

__all__ = ["authority_of", "check_issuer", "open_queue"]

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


def open_queue(
    settings: CertificateSettings | None,
    orders: CertificateOrders,
    clock: Clock,
    permitted: PermittedNames,
) -> "CertificateQueue | None":
    """Build the queue of the ACME account; None = there is no account.

    Parameters
    ----------
    settings
        How certificates are signed; None = nobody signs them.
    orders
        Orders in the ledger.
    clock
        The clock.
    permitted
        Which names an Enclave may have certified now.

    Raises
    ------
    AuthorityError
        When one of its keys cannot be read.
    """
    acme = settings and settings.acme
    if not acme:
        return None
    from cloister_api.certificates.queue import (  # noqa: PLC0415 - imports the ACME library
        CertificateQueue,
    )

    return CertificateQueue(acme, orders, clock, permitted)
