"""The queue of certificate orders, which replicas share by the ledger."""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta

from cloister_api.certificates.account import AcmeAccount, AcmeError
from cloister_api.certificates.authority import SignedCertificate
from cloister_api.certificates.challenges import ChallengeError, ChallengeRecords
from cloister_api.certificates.limits import longest_window, next_order
from cloister_api.certificates.request import PermittedNames
from cloister_api.certificates.settings import (
    AcmeSettings,
)
from cloister_api.ledger.certificates import (
    CertificateOrder,
    CertificateOrders,
)
from cloister_clients.clock import Clock
from cloister_crds.backoff import Backoff

logger = logging.getLogger(__name__)

WORKERS = 4
"""Orders that are processed concurrently; most of their time they wait for name servers."""
HOLD = timedelta(seconds=60)
"""How long an order is leased without a renewal."""
POLL_SECONDS = 5.0
"""Longest time between two polls of the ledger: another process may have added an order."""
YOUNG = timedelta(seconds=30)
"""For so long an order stands as it was judged when it was queued. Another process may have queued
it, and what that one knew the cache of this one may not show yet."""
LONGEST_PAUSE = timedelta(hours=1)
"""Longest backoff between two attempts, and the pause after a rate limit was exceeded."""


class CertificateQueue:
    """The work queue."""

    def __init__(
        self,
        settings: AcmeSettings,
        orders: CertificateOrders,
        clock: Clock,
        permitted: PermittedNames,
    ) -> None:
        """Read the keys of the account and of the updates.

        Parameters
        ----------
        orders
            Orders in the ledger.
        permitted
            Which names an Enclave may have certified now.

        Raises
        ------
        AuthorityError
            When a key cannot be read.
        """
        self._settings = settings
        self._orders = orders
        self._clock = clock
        self._permitted = permitted
        self._records = ChallengeRecords(settings.dns)
        self._accounts = [AcmeAccount(settings) for _ in range(WORKERS)]
        self._triggered = asyncio.Event()

    def trigger(self) -> None:
        """Poll the ledger now."""
        self._triggered.set()

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for account in self._accounts:
                group.create_task(self._work(account))

    async def _work(self, account: AcmeAccount) -> None:
        """Process one order after the other."""
        holder = str(uuid.uuid4())
        while True:
            try:
                if await self._next(account, holder):
                    continue
                pause = await self._pause()
            except Exception:  # the ledger may be locked or unreachable for a while
                logger.exception("the queue of certificates failed; it retries")
                pause = POLL_SECONDS
            self._triggered.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._triggered.wait(), pause)

    async def _pause(self) -> float:
        """Return how long nothing is due, in seconds."""
        due = await self._orders.next_due()
        if due is None:
            return POLL_SECONDS
        left = (due - self._clock()).total_seconds()
        return min(max(left, 0.1), POLL_SECONDS)

    async def _next(self, account: AcmeAccount, holder: str) -> bool:
        """Process the next order; return whether there was one."""
        now = self._clock()
        limits = self._settings.limits
        order = await self._orders.take(
            holder=holder,
            now=now,
            hold=HOLD,
            choose=lambda due: next_order(
                limits, due, lambda each: withdrawal(each, self._permitted, now), now
            ),
            window=longest_window(limits),
        )
        if order is None:
            return False
        logger.info("certificate of %s: %s", order.enclave, ", ".join(order.names))
        try:
            async with self._leased(order, holder):
                signed = await self._process(account, order, holder)
        except (AcmeError, ChallengeError) as error:
            await self._failed(order, holder, error)
        else:
            await self._orders.note_issued(order, holder, signed.chain, signed.not_after)
            logger.info(
                "certificate of %s was issued, valid until %s", order.enclave, signed.not_after
            )
        return True

    async def _process(
        self, account: AcmeAccount, order: CertificateOrder, holder: str
    ) -> SignedCertificate:
        """Complete an order: send or resume it, publish the proofs, finish it.

        Raises
        ------
        AcmeError, ChallengeError
            When a step fails.
        """
        if order.order_url:
            opened = await asyncio.to_thread(account.resume, order.order_url, order.request)
        else:
            opened = await asyncio.to_thread(account.send, order.request)
            await self._orders.note_sent(order, holder, opened.url)
        proofs = [
            replace(each, label=self._permitted.challenge_label(order.enclave_uid, each.name))
            for each in account.proofs(opened)
        ]
        await self._records.publish(proofs)
        try:
            return await asyncio.to_thread(account.finish, opened)
        finally:
            try:
                await self._records.withdraw(proofs)
            except ChallengeError as error:
                logger.warning("a proof of %s remains in DNS: %s", order.enclave, error)

    @contextlib.asynccontextmanager
    async def _leased(self, order: CertificateOrder, holder: str) -> AsyncIterator[None]:
        """Renew the lease of an order while the block runs."""

        async def renew() -> None:
            while True:
                await asyncio.sleep(HOLD.total_seconds() / 3)
                try:
                    await self._orders.hold(order, holder, self._clock() + HOLD)
                except Exception:  # as above; the lease outlasts two more renewals
                    logger.exception("the ledger cannot be written")

        renewing = asyncio.create_task(renew())
        try:
            yield
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)

    async def _failed(
        self, order: CertificateOrder, holder: str, error: AcmeError | ChallengeError
    ) -> None:
        """Schedule the next attempt of an order with backoff, or give it up."""
        of_authority = error if isinstance(error, AcmeError) else None
        given_up = order.failures + 1 >= self._settings.attempts
        if given_up or (of_authority and of_authority.final):
            logger.warning("certificate of %s is given up: %s", order.enclave, error)
            await self._orders.note_refused(order, holder, str(error))
            return
        backoff = Backoff(self._settings.first_retry_seconds, LONGEST_PAUSE.total_seconds())
        pause = timedelta(seconds=backoff.delay(order.failures + 1))
        if of_authority and of_authority.limited:
            pause = LONGEST_PAUSE
        logger.warning("certificate of %s: %s; again in %s", order.enclave, error, pause)
        await self._orders.note_failed(
            order,
            holder,
            str(error),
            self._clock() + pause,
            resumes=of_authority is None or of_authority.resumes,
        )


def withdrawal(order: CertificateOrder, permitted: PermittedNames, now: datetime) -> str:
    """Return why an order is no longer wanted; empty if it is. An order may wait for long.

    Parameters
    ----------
    order
        The order, which was permitted when it was queued.
    permitted
        Which names an Enclave may have certified, as far as this process knows.
    now
        The time, in UTC.
    """
    if not permitted.ready or now - order.created_at < YOUNG:
        return ""
    enclave = permitted.live(order.enclave_uid)
    if enclave is None:
        return "the enclave was terminated"
    return permitted.refusal(enclave, order.names)
