"""The queue of an ACME account: takes orders from the ledger and brings them to their end.

Any number of processes may run it on one ledger. An order is held by one worker at a time, for a
minute that the worker renews; what a killed one left is taken up where it stood at the authority.
"""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncIterator, Callable
from datetime import timedelta

from cloister_api.certificates.account import AcmeAccount, AcmeError
from cloister_api.certificates.authority import SignedCertificate
from cloister_api.certificates.challenges import ChallengeError, ChallengeRecords
from cloister_api.certificates.limits import longest_window, permitted_at
from cloister_api.certificates.settings import AcmeSettings
from cloister_api.ledger.certificates import CertificateOrder, CertificateOrders
from cloister_clients.clock import Clock
from cloister_crds.backoff import Backoff

__all__ = ["CertificateQueue"]

logger = logging.getLogger(__name__)

WORKERS = 4
"""Orders that are worked on at once; most of their time they wait for name servers."""
HOLD = timedelta(seconds=60)
"""How long an order is held without a sign of life."""
LOOK_SECONDS = 5.0
"""Longest time between two looks at the ledger: another process may have added an order."""
LONGEST_PAUSE = timedelta(hours=1)
"""Longest pause between two attempts, and the pause after a rate limit was met."""
KEPT = timedelta(days=30)
"""How long orders that ended are kept."""
SWEEP_SECONDS = 3600.0
"""Time between two sweeps."""


class CertificateQueue:
    """The queue."""

    def __init__(
        self,
        settings: AcmeSettings,
        orders: CertificateOrders,
        clock: Clock,
        wanted: Callable[[str], bool],
    ) -> None:
        """Read the keys of the account and of the updates.

        Parameters
        ----------
        settings
            The account.
        orders
            Orders in the ledger.
        clock
            Tells the time.
        wanted
            Answers whether the Enclave with a uid still wants its certificate.

        Raises
        ------
        AuthorityError
            When a key cannot be read.
        """
        self._settings = settings
        self._orders = orders
        self._clock = clock
        self._wanted = wanted
        self._records = ChallengeRecords(settings.dns)
        self._accounts = [AcmeAccount(settings) for _ in range(WORKERS)]
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Look at the ledger now."""
        self._woken.set()

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for account in self._accounts:
                group.create_task(self._work(account))
            group.create_task(self._sweep())

    async def _work(self, account: AcmeAccount) -> None:
        """Take one order after the other."""
        holder = str(uuid.uuid4())
        while True:
            try:
                if await self._one(account, holder):
                    continue
                pause = await self._pause()
            except Exception:  # the ledger may be locked or away for a while
                logger.exception("the queue of certificates cannot go on; it tries again")
                pause = LOOK_SECONDS
            self._woken.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), pause)

    async def _pause(self) -> float:
        """Return how long there is nothing to do, in seconds."""
        due = await self._orders.next_due()
        if due is None:
            return LOOK_SECONDS
        left = (due - self._clock()).total_seconds()
        return min(max(left, 0.1), LOOK_SECONDS)

    async def _one(self, account: AcmeAccount, holder: str) -> bool:
        """Work on the next order; answer whether there was one."""
        now = self._clock()
        limits = self._settings.limits
        order = await self._orders.take(
            holder=holder,
            now=now,
            hold=HOLD,
            permits=permitted_at(limits, now),
            window=longest_window(limits),
        )
        if order is None:
            return False
        if not self._wanted(order.enclave_uid):
            await self._orders.note_refused(order, holder, "the enclave has ended")
            return True
        logger.info("certificate of %s: %s", order.enclave, ", ".join(order.names))
        try:
            async with self._held(order, holder):
                signed = await self._process(account, order, holder)
        except (AcmeError, ChallengeError) as error:
            await self._failed(order, holder, error)
        else:
            await self._orders.note_issued(order, holder, signed.chain, signed.not_after)
            logger.info("certificate of %s is there, until %s", order.enclave, signed.not_after)
        return True

    async def _process(
        self, account: AcmeAccount, order: CertificateOrder, holder: str
    ) -> SignedCertificate:
        """Bring an order to its end.

        Raises
        ------
        AcmeError, ChallengeError
            When a step does not work.
        """
        if order.order_url:
            opened = await asyncio.to_thread(account.resume, order.order_url, order.request)
        else:
            opened = await asyncio.to_thread(account.send, order.request)
            await self._orders.note_sent(order, holder, opened.url)
        proofs = account.proofs(opened)
        await self._records.publish(proofs)
        try:
            return await asyncio.to_thread(account.finish, opened)
        finally:
            try:
                await self._records.withdraw(proofs)
            except ChallengeError as error:
                logger.warning("a proof of %s stays in DNS: %s", order.enclave, error)

    @contextlib.asynccontextmanager
    async def _held(self, order: CertificateOrder, holder: str) -> AsyncIterator[None]:
        """Keep an order held as long as the block lasts."""

        async def beat() -> None:
            while True:
                await asyncio.sleep(HOLD.total_seconds() / 3)
                try:
                    await self._orders.hold(order, holder, self._clock() + HOLD)
                except Exception:  # as above; the hold lasts for two more beats
                    logger.exception("the ledger cannot be written")

        beating = asyncio.create_task(beat())
        try:
            yield
        finally:
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)

    async def _failed(
        self, order: CertificateOrder, holder: str, error: AcmeError | ChallengeError
    ) -> None:
        """Put an order off, or give it up."""
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

    async def _sweep(self) -> None:
        """Forget old orders from time to time."""
        while True:
            try:
                now = self._clock()
                await self._orders.sweep(
                    orders_before=now - KEPT,
                    submissions_before=now - longest_window(self._settings.limits),
                )
            except Exception:  # as above
                logger.exception("old orders of certificates cannot be forgotten")
            await asyncio.sleep(SWEEP_SECONDS)
