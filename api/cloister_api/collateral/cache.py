"""The cache of collateral: in memory, bounded, one request at a time for one address.

An older answer never replaces a newer one that is valid (`collateral.editions`): a mirror or proxy
may be stale, or hide what was revoked since. The newest stands in the ledger, so that it counts at
every replica and after a restart. Each replica asks the makers itself: another one's mirror may be
the stale one.
"""

import asyncio
import logging
from collections import Counter, OrderedDict, defaultdict
from datetime import datetime, timedelta
from typing import Self
from weakref import WeakValueDictionary

import httpx
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from cloister_api.collateral.editions import CollateralEdition
from cloister_api.collateral.makers import CollateralPiece, UnusableAnswer, piece_of, valid_until
from cloister_api.collateral.newest import CollateralAnswer, NewestCollateral
from cloister_api.collateral.settings import CollateralSettings
from cloister_api.collateral.signatures import MakerRoots, is_signed
from cloister_api.errors import ApiError, bad_request, unavailable
from cloister_clients.clock import Clock
from cloister_clients.outbound import ResponseTooLarge, fetch, trust

__all__ = ["CollateralCache", "CollateralCounts"]

logger = logging.getLogger(__name__)

MOST = 2048
"""Answers that are kept; beyond that the one whose use is longest ago goes. A processor has one of
its own, all others are of a product line."""
MOST_BYTES = 256 * 1024
FRESH = timedelta(days=1)
"""Longest time for which an answer is given without a look at the maker."""
FRESH_UNSIGNED = timedelta(hours=1)
"""The same for one that the maker has not signed."""
PAUSE = timedelta(minutes=1)
"""Time for which a maker is left alone about an address after a failure."""
SKEW = timedelta(minutes=10)
"""How far an answer may be of the future: the maker's clock may be ahead."""
AT_ONCE = 4
"""Requests to one service at a time: AMD refuses callers that ask too often."""
WHOLE = 3
"""Longest time for a whole answer, in times of `CollateralSettings.timeout_seconds`, which is for
one piece of it alone: who sends a byte at a time would hold a turn for days."""
OK = 200
CollateralCounts = Counter[tuple[str, str]]
"""Answers by the maker's host and what became of them: taken, unsigned (taken, though the maker has
not signed it), older (than one that is valid), unusable."""


class OlderAnswer(UnusableAnswer):
    """An answer is older than one that is valid."""


def is_fresh(answer: CollateralAnswer, asked_at: datetime, now: datetime) -> bool:
    """Return whether a maker need not be asked again, with half of an answer's life left at least.

    Parameters
    ----------
    answer
        The newest answer.
    asked_at
        When this replica last asked the maker.
    now
        Present time in UTC.
    """
    longest = FRESH_UNSIGNED if answer.edition.startswith("0") else FRESH
    return now - asked_at < min(longest, (answer.valid_until - asked_at) / 2)


class CollateralCache:
    """The makers' answers.

    Parameters
    ----------
    settings
        Where the services are.
    clock
        The clock.
    engine
        The ledger, by which replicas share the newest answers.
    roots
        Whose signatures count; None = the makers'.

    Raises
    ------
    OSError
        When the file with the authorities cannot be read.
    """

    def __init__(
        self,
        settings: CollateralSettings,
        clock: Clock,
        engine: AsyncEngine,
        roots: MakerRoots | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._newest = NewestCollateral(engine)
        self._roots = roots or MakerRoots.built_in()
        self._client = httpx.AsyncClient(
            verify=trust(settings.ca_file),
            proxy=settings.proxy,
            timeout=settings.timeout_seconds,
            follow_redirects=False,
            headers={"User-Agent": "cloister", "Accept-Encoding": "identity"},
            trust_env=False,
        )
        self._answers: OrderedDict[str, CollateralAnswer] = OrderedDict()
        # One for each address that somebody waits for: the same thing is not fetched twice at once.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._failures: OrderedDict[str, tuple[datetime, str]] = OrderedDict()
        self._told: OrderedDict[str, str] = OrderedDict()
        self._asked: OrderedDict[str, datetime] = OrderedDict()
        self.counts: CollateralCounts = Counter()
        # One for each service, so that a slow one delays no other.
        self._turns: defaultdict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(AT_ONCE)
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connections to the makers."""
        await self._client.aclose()

    async def get(self, address: str) -> CollateralAnswer:
        """Return what a maker publishes at an address.

        While the maker is away, or what it sends is older, that is the last answer, as long as it
        is valid.

        Raises
        ------
        ApiError
            400 when there is no collateral at that address, 503 when it cannot be had.
        """
        piece = piece_of(address, self._settings)
        if piece is None:
            raise bad_request("address", "no collateral of AMD or Intel; see docs/measurement.md")
        lock = self._locks.setdefault(piece.address, asyncio.Lock())
        async with lock:
            return await self._answer(piece)

    async def _answer(self, piece: CollateralPiece) -> CollateralAnswer:
        """Return an answer that is fresh, else a new one, else one that is still valid."""
        now = self._clock()
        held = await self._held(piece, now)
        asked_at = self._asked.get(piece.address)
        if held is not None and asked_at is not None and is_fresh(held, asked_at, now):
            self._answers.move_to_end(piece.address)
            return held
        failed_at, problem = self._failures.get(piece.address, (now - PAUSE, ""))
        if now - failed_at >= PAUSE:
            try:
                return await self._take(piece, await self._fetched(piece, now), now)
            except UnusableAnswer as error:
                problem = str(error)
                older = isinstance(error, OlderAnswer)
                self.counts[piece.maker, "older" if older else "unusable"] += 1
                self._tell(piece, problem)
                self._failures[piece.address] = (now, problem)
                _bound(self._failures)
                held = self._answers.get(piece.address)
        if held is not None and now < held.valid_until:
            return held
        raise not_available(piece, problem)

    async def _held(self, piece: CollateralPiece, now: datetime) -> CollateralAnswer | None:
        """Return the newest answer that any replica has; without the ledger, the one in memory."""
        held = self._answers.get(piece.address)
        if not piece.is_dated:
            return held
        valid = held if held is not None and now < held.valid_until else None
        try:
            found = await self._newest.newer(piece.address, valid)
        except SQLAlchemyError as error:
            self._tell(piece, f"the ledger does not respond ({type(error).__name__})")
            return held
        if found is not None and now < found.valid_until:
            held = self._keep(piece, found)
        return held

    async def _take(
        self, piece: CollateralPiece, answer: CollateralAnswer, now: datetime
    ) -> CollateralAnswer:
        """Keep an answer and return it.

        Raises
        ------
        OlderAnswer
            When there is a newer one that is valid; that is kept.
        """
        held = self._answers.get(piece.address)
        newer = held if held is not None and now < held.valid_until else None
        if newer is None or newer.edition <= answer.edition:
            newer = await self._offered(piece, answer, now)
        if newer is not None:
            self._keep(piece, newer)
            edition = CollateralEdition.read(newer.edition, piece.form)
            given = CollateralEdition.read(answer.edition, piece.form)
            raise OlderAnswer(
                f"it is older ({given}) than what there is ({edition}), which stays; the mirror, "
                "proxy or maker at that address is stale"
            )
        self._failures.pop(piece.address, None)
        self._asked[piece.address] = now
        _bound(self._asked)
        if piece.is_dated and not CollateralEdition.read(answer.edition, piece.form).is_signed:
            self.counts[piece.maker, "unsigned"] += 1
            self._tell(piece, "it is not signed by a root of the maker's that this release knows")
        else:
            self.counts[piece.maker, "taken"] += 1
            self._told.pop(piece.address, None)
        return self._keep(piece, answer)

    async def _offered(
        self, piece: CollateralPiece, answer: CollateralAnswer, now: datetime
    ) -> CollateralAnswer | None:
        """Offer an answer to all replicas; None = it is the newest, or the ledger is away."""
        if not piece.is_dated:
            return None
        try:
            return await self._newest.offer(piece.address, answer, now)
        except SQLAlchemyError as error:
            self._tell(piece, f"the ledger does not respond ({type(error).__name__})")
            return None

    def _keep(self, piece: CollateralPiece, answer: CollateralAnswer) -> CollateralAnswer:
        """Keep an answer in memory."""
        self._answers[piece.address] = answer
        _bound(self._answers)
        return answer

    def _tell(self, piece: CollateralPiece, problem: str) -> None:
        """Log a problem, once while it is the same."""
        if self._told.get(piece.address) != problem:
            self._told[piece.address] = problem
            _bound(self._told)
            logger.warning("collateral: %s: %s", piece.url, problem)

    async def _fetched(self, piece: CollateralPiece, now: datetime) -> CollateralAnswer:
        """Fetch an answer.

        Raises
        ------
        UnusableAnswer
            When there is none, or not what the maker publishes.
        """
        try:
            async with (
                self._turns[httpx.URL(piece.url).netloc.decode()],
                asyncio.timeout(WHOLE * self._settings.timeout_seconds),
            ):
                response = await fetch(self._client, "GET", piece.url, headers={}, limit=MOST_BYTES)
        except TimeoutError as error:
            raise UnusableAnswer("its answer took too long") from error
        except (httpx.HTTPError, httpx.InvalidURL, ResponseTooLarge) as error:
            raise UnusableAnswer(f"{type(error).__name__}: {error}") from error
        if response.status != OK:
            raise UnusableAnswer(f"it answered {response.status}")
        end = valid_until(piece.form, response.body)
        headers = {}
        if piece.header is not None:
            if not response.headers.get(piece.header):
                raise UnusableAnswer(f"its header {piece.header} is missing")
            headers[piece.header] = response.headers[piece.header]
        if end <= now:
            raise UnusableAnswer(f"it was to be replaced at {end:%Y-%m-%dT%H:%M:%SZ}")
        edition = self._edition(piece, response.body, headers, now) if piece.is_dated else ""
        return CollateralAnswer(edition, response.body, headers, now, end)

    def _edition(
        self, piece: CollateralPiece, body: bytes, headers: dict[str, str], now: datetime
    ) -> str:
        """Return the edition of an answer.

        Raises
        ------
        UnusableAnswer
            When it has none, or is of the future.
        """
        chain = headers.get(piece.header or "", "")
        signed = is_signed(piece, body, chain, self._roots, now)
        edition = CollateralEdition.of(piece.form, body, is_signed=signed)
        if edition.issued_at > now + SKEW:
            raise UnusableAnswer(f"it is of the future ({edition})")
        return edition.text


def not_available(piece: CollateralPiece, problem: str) -> ApiError:
    """503 with what is wrong at the maker's."""
    host = httpx.URL(piece.url).host
    return unavailable(
        f"{host}: {problem}; check the settings collateral", retry_after=PAUSE.total_seconds()
    )


def _bound(
    kept: OrderedDict[str, CollateralAnswer]
    | OrderedDict[str, tuple[datetime, str]]
    | OrderedDict[str, datetime]
    | OrderedDict[str, str],
) -> None:
    """Forget what was used longest ago beyond what may be kept."""
    while len(kept) > MOST:
        kept.popitem(last=False)
