"""Rate limits of an ACME authority: when an order may be sent. Pure.

The limits are those that the authority publishes, less a reserve; submissions are recorded in the
ledger, so that the limits hold over restarts and replicas.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from cloister_api.certificates.settings import AcmeLimits, RateWindow
from cloister_api.ledger.certificates import CertificateOrder, Submission

__all__ = ["longest_window", "permitted_at"]


def longest_window(limits: AcmeLimits) -> timedelta:
    """Return how long a submission counts."""
    every = (limits.orders, limits.domain, limits.names)
    return timedelta(seconds=max(limit.seconds for limit in every))


def permitted_at(
    limits: AcmeLimits, now: datetime
) -> Callable[[CertificateOrder, Sequence[Submission]], datetime | None]:
    """Return a function that computes when an order may be sent.

    Parameters
    ----------
    limits
        The authority's limits.
    now
        Present time in UTC.

    Returns
    -------
    Callable
        Takes an order and the submissions; returns when it may be sent, None = now.
    """

    def when(order: CertificateOrder, sent: Sequence[Submission]) -> datetime | None:
        mine = domains(order.names)
        waits = [
            freed(limits.orders, [one.at for one in sent], now),
            freed(limits.names, [one.at for one in sent if one.names == order.names], now),
            *(
                freed(limits.domain, [one.at for one in sent if each in domains(one.names)], now)
                for each in mine
            ),
        ]
        return max((wait for wait in waits if wait is not None), default=None)

    return when


def freed(limit: RateWindow, times: Sequence[datetime], now: datetime) -> datetime | None:
    """Return when a limit permits another order; None = now."""
    window = timedelta(seconds=limit.seconds)
    counted = sorted(at for at in times if at > now - window)
    if len(counted) < limit.count:
        return None
    return counted[-limit.count] + window


def domains(names: Sequence[str]) -> frozenset[str]:
    """Return the last two labels of each name.

    A registered domain has at least two labels, so that a limit per registered domain is never
    exceeded. Under a suffix of two labels (co.uk) the count is stricter than necessary.
    """
    return frozenset(".".join(name.split(".")[-2:]) for name in names)
