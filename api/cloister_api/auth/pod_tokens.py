"""Tokens of enclaves' Pods: what they claim, and bounded TokenReviews by the API server."""

import asyncio
import binascii
import hashlib
import logging
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

import msgspec
from cachetools import LRUCache, TLRUCache

from cloister_api.auth.token_bucket import RateLimit, TokenBucket, consume
from cloister_api.errors import ApiError, unavailable
from cloister_clients.kube import Forbidden, KubeClient, KubeError
from cloister_clients.kube.kinds import TOKEN_REVIEW
from cloister_crds.names import ACCOUNT, token_audience

MOST_CHARACTERS = 8_192
"""Length of the longest token that is read; those of kubelets have some 1,300 characters."""
PARTS = 3
POD_NAME = "authentication.kubernetes.io/pod-name"
POD_UID = "authentication.kubernetes.io/pod-uid"


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """The Pod that a token is of."""

    namespace: str
    """Its namespace."""
    name: str
    """Its name."""
    uid: str
    """Its uid."""


@dataclass(frozen=True, slots=True)
class PodToken:
    """What a token says; nobody has confirmed it."""

    pod: PodIdentity
    """Pod that it is bound to."""
    audiences: tuple[str, ...]
    """Audiences that it is for."""
    expires_at: float
    """When it expires, in seconds since 1970."""

    def is_for(self, enclave_uid: str) -> bool:
        """Return whether it is for requests of an Enclave."""
        return token_audience(enclave_uid) in self.audiences


class _BoundPod(msgspec.Struct):
    name: str
    uid: str


class _Binding(msgspec.Struct):
    namespace: str
    pod: _BoundPod


class _Claims(msgspec.Struct):
    aud: list[str] | str
    exp: float
    binding: _Binding = msgspec.field(name="kubernetes.io")


def read_pod_token(token: str) -> PodToken | None:
    """Read what a token says of itself; None if it is not the token of a Pod."""
    parts = token.split(".") if len(token) <= MOST_CHARACTERS else []
    if len(parts) != PARTS or not all(parts):
        return None
    try:
        payload = urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        claims = msgspec.json.decode(payload, type=_Claims)
    except (binascii.Error, ValueError, msgspec.MsgspecError, RecursionError):
        return None
    bound = claims.binding
    pod = PodIdentity(bound.namespace, bound.pod.name, bound.pod.uid)
    audiences = (claims.aud,) if isinstance(claims.aud, str) else tuple(claims.aud)
    return PodToken(pod, audiences, claims.exp)


def reviewed_identity(status: Mapping[str, Any], audience: str) -> PodIdentity | None:
    """Return the Pod that a TokenReview confirms; None if it refuses the token.

    Parameters
    ----------
    status
        ``status`` of the TokenReview.
    audience
        The audience that was asked for. A server that ignores audiences names none.
    """
    if not status.get("authenticated") or audience not in (status.get("audiences") or ()):
        return None
    user = status.get("user") or {}
    words = str(user.get("username", "")).split(":")
    if words[:2] != ["system", "serviceaccount"] or words[3:] != [ACCOUNT]:
        return None
    extra = user.get("extra") or {}
    names, uids = list(extra.get(POD_NAME) or ()), list(extra.get(POD_UID) or ())
    if len(names) != 1 or len(uids) != 1:
        return None
    return PodIdentity(words[2], names[0], uids[0])


logger = logging.getLogger(__name__)

ENCLAVE_RATE = RateLimit(per_second=0.2, burst=5.0)
"""Reviews of tokens that name one Enclave. Its own token needs one a minute at most, and only a
reader of the Enclave can send others: its uid is in the audience."""
BURST_SECONDS = 10.0
"""Seconds whose reviews, of all Enclaves, may come in one burst."""
AT_ONCE = 16
"""Reviews that run at the same time."""
DEADLINE = 10.0
"""Seconds until a review, its wait included, is given up."""
ACCEPTED_SECONDS, REFUSED_SECONDS = 60.0, 10.0
"""How long a verdict is remembered. That an Enclave ended is known without a review."""
VERDICTS, ENCLAVES = 16_384, 65_536
"""Verdicts and rates at most; the least recently used are forgotten."""


@dataclass(frozen=True, slots=True)
class _Verdict:
    """A verdict of the API server."""

    pod: PodIdentity | None
    """The Pod of the token; None if it was refused."""
    until: float
    """Monotonic time until which it holds."""


class TokenReviews:
    """Has the API server judge tokens.

    Parameters
    ----------
    per_second
        Reviews per second, by replica.
    monotonic
        Monotonic time in seconds.
    """

    def __init__(
        self, client: KubeClient, per_second: float, monotonic: Callable[[], float]
    ) -> None:
        self._client = client
        self._monotonic = monotonic
        self._rate = RateLimit(per_second, max(1.0, per_second * BURST_SECONDS))
        self._bucket = TokenBucket()
        self._buckets: LRUCache[str, TokenBucket] = LRUCache(ENCLAVES)
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._verdicts: TLRUCache[bytes, _Verdict] = TLRUCache(
            VERDICTS, ttu=lambda _key, verdict, _now: verdict.until, timer=monotonic
        )

    async def identify(self, token: str, said: PodToken, enclave_uid: str) -> PodIdentity | None:
        """Return the Pod that a token is of; None if the API server refuses the token.

        Parameters
        ----------
        token
            The token, for the audience of the Enclave by its own word.

        Raises
        ------
        ApiError
            429 when there were too many reviews, 503 when the API server cannot judge now.
        """
        # By the clock of the server that signed it.
        left = said.expires_at - self._client.clock().timestamp()
        if left <= 0:
            return None
        digest = hashlib.sha256(f"{enclave_uid} {token}".encode()).digest()
        known = self._verdicts.get(digest)
        if known is None:
            self._take(enclave_uid)
            pod = await self._review(token, token_audience(enclave_uid))
            seconds = REFUSED_SECONDS if pod is None else min(ACCEPTED_SECONDS, left)
            known = _Verdict(pod, self._monotonic() + seconds)
            self._verdicts[digest] = known
        return known.pod

    def _take(self, enclave_uid: str) -> None:
        """Count a review.

        Raises
        ------
        ApiError
            429 when there were too many.
        """
        now = self._monotonic()
        bucket = self._buckets.get(enclave_uid)
        if bucket is None:
            bucket = self._buckets[enclave_uid] = TokenBucket()
        wait = consume(bucket, ENCLAVE_RATE, now) or consume(self._bucket, self._rate, now)
        if wait:
            raise ApiError(
                429,
                "RATE_LIMITED",
                "too many tokens were sent that the API server has not judged yet; try again "
                "after Retry-After",
                retry_after=ceil(wait),
            )

    async def _review(self, token: str, audience: str) -> PodIdentity | None:
        """Have the API server judge a token.

        Raises
        ------
        ApiError
            503.
        """
        body = {"spec": {"token": token, "audiences": [audience]}}
        try:
            async with asyncio.timeout(DEADLINE), self._slots:
                found = await self._client.create(TOKEN_REVIEW, body)
        except Forbidden as error:
            logger.error(  # noqa: TRY400 - has its reason
                "this account may not create TokenReviews, so no enclave gets a certificate; apply "
                "the role cloister-api: %s",
                error.reason,
            )
            raise unavailable("the API may not judge tokens here", retry_after=60) from error
        except (TimeoutError, KubeError) as error:
            reason = error.reason if isinstance(error, KubeError) else "no response in time"
            logger.warning("the API server did not judge the token of an enclave: %s", reason)
            raise unavailable(
                "the API server cannot judge the token at present; try again", retry_after=2
            ) from error
        return reviewed_identity(found.get("status") or {}, audience)
