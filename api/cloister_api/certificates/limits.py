"""Rate limits of an ACME authority: which order is sent next, and when. Pure.

The limits are those that the authority publishes, less a reserve; submissions are recorded in the
ledger, so that the limits hold over restarts and replicas. All organizations share them, so that
one organization may use a part of them only, and another part is kept for renewals.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from cloister_api.certificates.settings import (
    AcmeLimits,
    RateWindow,
)
from cloister_api.ledger.certificates import (
    CertificateOrder,
    DueOrders,
    OrderChoice,
    OrderWait,
    Submission,
)

RENEWALS_PERCENT = 20
"""Part of the limits that only renewals use, in percent."""


def longest_window(limits: AcmeLimits) -> timedelta:
    """Return how long a submission counts."""
    every = (limits.orders, limits.domain, limits.names)
    return timedelta(seconds=max(limit.seconds for limit in every))


def next_order(
    limits: AcmeLimits, due: DueOrders, refusal: Callable[[CertificateOrder], str], now: datetime
) -> OrderChoice:
    """Choose the next order: renewals first, then the organization that sent the fewest.

    Parameters
    ----------
    due
        Orders that are due, and what was sent and issued.
    refusal
        Returns why an order is no longer needed; empty if it is.
    now
        Present time in UTC.
    """
    used = Counter(one.namespace for one in due.sent)
    renewals = {order.id for order in due.orders if renews(order, due, now)}
    waits: dict[str, OrderWait] = {}
    refused: dict[str, str] = {}
    for order in sorted(
        due.orders, key=lambda each: (each.id not in renewals, used[each.namespace])
    ):
        reason = refusal(order)
        if reason:
            refused[order.id] = reason
            continue
        renewal = order.id in renewals
        wait = (
            # An order that was submitted counts already, so finishing it needs no permission.
            None if order.order_url else permitted_at(limits, order, due.sent, now, renewal=renewal)
        )
        if wait is None:
            return OrderChoice(order, waits, refused)
        waits[order.id] = wait
    return OrderChoice(None, waits, refused)


def renews(order: CertificateOrder, due: DueOrders, now: datetime) -> bool:
    """Return whether an order renews a certificate of which more than half the life is over.

    Enclaves renew after two thirds. An earlier request counts as a new order, so that repeated
    requests do not pass others.
    """
    if order.enclave_uid not in due.certified:
        return False
    since, until = due.certified[order.enclave_uid]
    return now >= since + (until - since) / 2


def permitted_at(
    limits: AcmeLimits,
    order: CertificateOrder,
    sent: Sequence[Submission],
    now: datetime,
    *,
    renewal: bool,
) -> OrderWait | None:
    """Return what an order waits for; None if it may be sent now.

    Parameters
    ----------
    order
        The order.
    sent
        Orders that were sent.
    now
        Present time in UTC.
    renewal
        Whether it renews a certificate. A renewal may use the reserve, and no share bounds it.
    """
    same = [one.at for one in sent if one.names == order.names]
    counted = [("", limits.orders, list(sent))] + [
        (f" for {each}", limits.domain, [one for one in sent if each in domains(one.names)])
        for each in sorted(domains(order.names))
    ]
    waits = [(freed(limits.names, limits.names.count, same, now), "")]
    for what, limit, those in counted:
        # Part of each limit is kept for renewals, whose certificates are in use.
        reserve = 0 if renewal else limit.count * RENEWALS_PERCENT // 100
        waits.append((freed(limit, limit.count - reserve, [one.at for one in those], now), ""))
        if not renewal:
            share = max(1, limit.count * limits.organization_percent // 100)
            own = [one.at for one in those if one.namespace == order.namespace]
            reason = (
                f": this organization has used its share, {share} orders{what} in "
                f"{limit.seconds / 3600:g} hours; an administrator can raise it "
                "(certificates.acme.limits.organizationPercent)"
            )
            waits.append((freed(limit, share, own, now), reason))
    until, reason = max(
        ((until, reason) for until, reason in waits if until is not None), default=(None, "")
    )
    if until is None:
        return None
    text = f"waits for the rate limits of the authority until {until:%Y-%m-%dT%H:%M:%SZ}{reason}"
    return OrderWait(until, text)


def freed(
    limit: RateWindow, count: int, times: Sequence[datetime], now: datetime
) -> datetime | None:
    """Return when fewer than a number were sent within the window of a limit; None means now."""
    window = timedelta(seconds=limit.seconds)
    counted = sorted(at for at in times if at > now - window)
    if len(counted) < count:
        return None
    return counted[-count] + window


def domains(names: Sequence[str]) -> frozenset[str]:
    """Return the last two labels of each name.

    A registered domain has at least two labels, so that a limit per registered domain is never
    exceeded. Under a suffix of two labels (co.uk) the count is stricter than necessary.
    """
    return frozenset(".".join(name.split(".")[-2:]) for name in names)
