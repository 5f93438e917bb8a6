"""The cache of collateral: in memory, bounded, one request at a time for one address."""

import asyncio
import logging
from collections import OrderedDict, defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self
from weakref import WeakValueDictionary

import httpx

from cloister_api.collateral.makers import CollateralPiece, UnusableAnswer, piece_of, valid_until
from cloister_api.collateral.settings import CollateralSettings
from cloister_api.errors import ApiError, bad_request, unavailable
from cloister_clients.clock import Clock
from cloister_clients.outbound import ResponseTooLarge, fetch, trust

__all__ = ["Answer", "CollateralCache"]

logger = logging.getLogger(__name__)

MOST = 2048
"""Answers that are kept; beyond that the one whose use is longest ago goes. A processor has one of
its own, all others are of a product line."""
MOST_BYTES = 256 * 1024
FRESH = timedelta(days=1)
"""Longest time for which an answer is given without a look at the maker."""
PAUSE = timedelta(minutes=1)
"""Time for which a maker is left alone about an address after a failure."""
AT_ONCE = 4
"""Requests to one service at a time: AMD refuses callers that ask too often."""
WHOLE = 3
"""Longest time for a whole answer, in times of `CollateralSettings.timeout_seconds`, which is for
one piece of it alone: who sends a byte at a time would hold a turn for days."""
OK = 200


@dataclass(frozen=True, slots=True)
class Answer:
    """What a maker publishes at an address."""

    body: bytes
    """Its bytes."""
    headers: dict[str, str]
    """The header with the issuer's certificates, where there is one."""
    fetched_at: datetime
    """When it was fetched."""
    valid_until: datetime
    """Until when the maker's signature counts."""

    def is_fresh(self, now: datetime) -> bool:
        """Return whether it need not be fetched again, with half of its life left at least."""
        age = now - self.fetched_at
        return age < min(FRESH, (self.valid_until - self.fetched_at) / 2)


class CollateralCache:
    """The makers' answers.

    Parameters
    ----------
    settings
        Where the services are.
    clock
        The clock.

    Raises
    ------
    OSError
        When the file with the authorities cannot be read.
    """

    def __init__(self, settings: CollateralSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._client = httpx.AsyncClient(
            verify=trust(settings.ca_file),
            proxy=settings.proxy,
            timeout=settings.timeout_seconds,
            follow_redirects=False,
            headers={"User-Agent": "cloister", "Accept-Encoding": "identity"},
            trust_env=False,
        )
        self._answers: OrderedDict[str, Answer] = OrderedDict()
        # One for each address that somebody waits for: the same thing is not fetched twice at once.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._failures: OrderedDict[str, tuple[datetime, str]] = OrderedDict()
        # One for each service, so that a slow one delays no other.
        self._turns: defaultdict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(AT_ONCE)
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connections to the makers."""
        await self._client.aclose()

    async def get(self, address: str) -> Answer:
        """Return what a maker publishes at an address.

        While the maker is away, that is the last answer, as long as it is valid.

        Raises
        ------
        ApiError
            400 when there is no collateral at that address, 503 when it cannot be had.
        """
        piece = piece_of(address, self._settings)
        if piece is None:
            raise bad_request("address", "no collateral of AMD or Intel; see docs/measurement.md")
        lock = self._locks.setdefault(piece.url, asyncio.Lock())
        async with lock:
            return await self._answer(piece)

    async def _answer(self, piece: CollateralPiece) -> Answer:
        """Return an answer that is fresh, else a new one, else one that is still valid."""
        now, held = self._clock(), self._answers.get(piece.url)
        if held is not None and held.is_fresh(now):
            self._answers.move_to_end(piece.url)
            return held
        failed_at, problem = self._failures.get(piece.url, (now - PAUSE, ""))
        if now - failed_at >= PAUSE:
            try:
                return await self._fetched(piece, now)
            except UnusableAnswer as error:
                problem = str(error)
                logger.warning("collateral: %s: %s", piece.url, problem)
                self._failures[piece.url] = (now, problem)
                _bound(self._failures)
        if held is not None and now < held.valid_until:
            return held
        raise not_available(piece, problem)

    async def _fetched(self, piece: CollateralPiece, now: datetime) -> Answer:
        """Fetch an answer and keep it.

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
        answer = Answer(response.body, headers, now, end)
        self._answers[piece.url] = answer
        self._failures.pop(piece.url, None)
        _bound(self._answers)
        return answer


def not_available(piece: CollateralPiece, problem: str) -> ApiError:
    """503 with what is wrong at the maker's."""
    host = httpx.URL(piece.url).host
    return unavailable(
        f"{host}: {problem}; check the settings collateral", retry_after=PAUSE.total_seconds()
    )


def _bound(kept: OrderedDict[str, Answer] | OrderedDict[str, tuple[datetime, str]]) -> None:
    """Forget what was used longest ago beyond what may be kept."""
    while len(kept) > MOST:
        kept.popitem(last=False)
