"""Certificates and collateral for enclaves.

Authentication, allowed names, signing, rates (spec 26.1 to 26.4).
"""

import contextlib
import logging
import math
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import ceil
from typing import TYPE_CHECKING

from cachetools import LRUCache

from cloister_api.auth.pod_tokens import PodIdentity, TokenReviews, read_pod_token
from cloister_api.auth.token_bucket import RateLimit, TokenBucket, consume
from cloister_api.cache import CachedEnclave
from cloister_api.certificates.authority import AuthorityError, authority_of
from cloister_api.certificates.request import (
    CertificateRequest,
    PermittedNames,
    RequestError,
    read_request,
)
from cloister_api.collateral import CollateralAnswer, CollateralCache, CollateralSettings
from cloister_api.errors import ApiError, bad_request, conflict, forbidden, not_found, unavailable
from cloister_api.ledger.audit import AuditRow
from cloister_api.ledger.certificates import CertificateOrder, CertificateOrders, OrderState
from cloister_api.services.infrastructure import Infrastructure
from cloister_clients.clock import Clock
from cloister_clients.kube import KubeError
from cloister_clients.kube.kinds import EVENT, of
from cloister_crds.kinds import Container

if TYPE_CHECKING:
    from cloister_api.certificates.queue import CertificateQueue

logger = logging.getLogger(__name__)

HOUR = timedelta(hours=1)
REPORTER = "cloister.dev/api"
SOONEST, LATEST = 2, 300
"""Bounds of Retry-After, in seconds."""
UNKNOWN = ApiError(
    401,
    "UNAUTHORIZED",
    "no live enclave has this token; send Authorization: Bearer <token of the enclave's Pod>",
)


NO_ISSUER = unavailable(
    "no issuer signs certificates here: the administrator must set `certificates` in the "
    "settings of the API",
    retry_after=LATEST,
)


@dataclass(frozen=True, slots=True)
class IssuedCertificate:
    """A certificate."""

    certificate: str = field(repr=False)
    """Chain, PEM."""
    not_after: datetime
    """When it expires, in UTC."""


@dataclass(frozen=True, slots=True)
class PendingCertificate:
    """A certificate that is not issued yet."""

    retry_after: int
    """Seconds after which to send the same request again."""
    message: str
    """What it waits for."""


class Certificates:
    """Handles certificate requests of enclaves."""

    def __init__(
        self,
        base: Infrastructure,
        orders: CertificateOrders,
        permitted: PermittedNames,
        queue: "CertificateQueue | None",
    ) -> None:
        """Prepare the service.

        Parameters
        ----------
        orders
            Orders in the ledger.
        permitted
            Which names an enclave may have certified now.
        queue
            Its trigger is called when an order was queued; None if there is none.

        Raises
        ------
        AuthorityError
            When the own authority cannot be used.
        """
        self._client, self._cache = base.client, base.cache
        self._orders, self._audit, self._clock = orders, base.audit, base.clock
        issuer = self._settings = base.settings.certificates
        self.authority = authority_of(issuer, development=base.settings.development)
        """The own authority; None if another issuer signs."""
        self._permitted = permitted
        # Has the API server judge tokens; None if nobody signs.
        rate = issuer and issuer.unknown_per_second
        self._reviews = TokenReviews(base.client, rate, time.monotonic) if rate else None
        self._trigger = queue.trigger if queue else lambda: None

    def authority_pem(self) -> str:
        """Return the certificates that clients must trust, PEM.

        Raises
        ------
        ApiError
            404 when no own authority signs.
        """
        if self.authority is None:
            raise not_found("own certificate authority")
        return self.authority.pem

    async def request(
        self, enclave: CachedEnclave, csr: str, request_id: str
    ) -> IssuedCertificate | PendingCertificate:
        """Return the certificate of a request, or what its order waits for.

        Parameters
        ----------
        enclave
            The enclave, from `holder`.

        Raises
        ------
        ApiError
            400 when the request is invalid; 403 when it names a host that its container does not
            have now, or is of a second key; 409 when the authority refused it; 429 when the
            enclave requests too often; 503 when no issuer can sign at present.
        """
        try:
            checked = read_request(csr)
        except RequestError as error:
            raise bad_request("csr", str(error)) from error
        unknown = [name for name in checked.names if name not in enclave.hostnames]
        if unknown:
            raise forbidden(
                f"{', '.join(unknown)}: not a host name of this enclave; it may request "
                f"{', '.join(enclave.hostnames) or 'none'}"
            )
        refusal = self._permitted.refusal(enclave, checked.names)
        if refusal:
            raise forbidden(refusal)
        order = await self._orders.find(enclave.uid, checked.digest)
        if order is None:
            await self._check_key(enclave, checked, request_id)
            order = await self._new_order(enclave, checked, request_id)
        return self._outcome(order)

    async def holder(self, authorization: str | None) -> CachedEnclave:
        """Return the live Enclave whose Pod an Authorization header is a token of.

        Raises
        ------
        ApiError
            401 when there is none; 429 when too many tokens were sent that nobody knows; 503 when
            nobody signs, and until the cache has been filled and the API server can be asked.
        """
        if not self._permitted.ready:
            raise unavailable("the facade has not read the cluster yet; try again")
        scheme, _, token = (authorization or "").partition(" ")
        token = token.strip()
        said = read_pod_token(token) if scheme.lower() == "bearer" else None
        enclave = self._enclave_of(said.pod) if said is not None else None
        # Users who cannot read an Enclave do not know its uid, and cost the API server nothing.
        if said is None or enclave is None or not said.is_for(enclave.uid):
            raise UNKNOWN
        if self._reviews is None:
            raise NO_ISSUER
        if await self._reviews.identify(token, said, enclave.uid) != said.pod:
            raise UNKNOWN
        return enclave

    def _enclave_of(self, pod: PodIdentity) -> CachedEnclave | None:
        """Return the live Enclave of a Pod, which has its name; None if there is none."""
        entry = self._cache.enclaves.get(pod.name, pod.namespace)
        enclave = entry.value if entry is not None else None
        if enclave is None or not enclave.live or not enclave.signed:
            return None
        return enclave if enclave.pod_uid in {"", pod.uid} else None

    async def _new_order(
        self, enclave: CachedEnclave, request: CertificateRequest, request_id: str
    ) -> CertificateOrder:
        """Sign a request, or queue it.

        Raises
        ------
        ApiError
            429 when the enclave requests too often, 503 when the authority cannot sign.
        """
        assert self._settings is not None
        now = self._clock()
        await self._check_rate(enclave, self._settings.requests_per_hour, now)
        certificate, not_after = None, None
        if self.authority is not None:
            assert self._settings.own is not None
            lifetime = timedelta(seconds=self._settings.own.lifetime_seconds)
            try:
                signed = self.authority.sign(request, lifetime, now)
            except AuthorityError as error:
                logger.error("no certificate can be signed: %s", error)  # noqa: TRY400 - has its reason
                raise unavailable(str(error), retry_after=LATEST) from error
            certificate, not_after = signed.chain, signed.not_after
        order = await self._orders.add(
            enclave_uid=enclave.uid,
            enclave=f"{enclave.namespace}/{enclave.name}",
            request_digest=request.digest,
            request=request.pem,
            names=request.names,
            now=now,
            certificate=certificate,
            not_after=not_after,
        )
        result = "200" if order.state is OrderState.ISSUED else "202"
        await self._record(enclave, "certificate.order", result, request_id, now)
        if order.state is OrderState.QUEUED:
            self._trigger()
        return order

    async def _check_key(
        self, enclave: CachedEnclave, request: CertificateRequest, request_id: str
    ) -> None:
        """Bind an enclave to the first key that it has a certificate requested for.

        Raises
        ------
        ApiError
            403 for another key.
        """
        now = self._clock()
        bound = await self._orders.bound_key(enclave.uid)
        if bound is None:
            bound = await self._orders.bind_key(enclave.uid, request.key_digest, now)
        if bound == request.key_digest:
            return
        if await self._orders.note_second_key(enclave.uid, now, again_after=HOUR):
            logger.warning(
                "the token of enclave %s/%s was used with a second key",
                enclave.namespace,
                enclave.name,
            )
            await self._record(enclave, "certificate.second_key", "403", request_id, now)
            await self._create_event(enclave, now)
        raise forbidden(
            "this enclave is bound to the key of its first request, and this request is of another "
            "one; only a new enclave can have a new key: relaunch the container, and find out who "
            "else has read its token"
        )

    async def _create_event(self, enclave: CachedEnclave, now: datetime) -> None:
        """Report the use of a token with a second key where `kubectl describe` shows it."""
        body = {
            "metadata": {"name": f"{enclave.uid}.second-key.{int(now.timestamp())}"},
            "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": REPORTER,
            "reportingInstance": REPORTER,
            "action": "SignCertificate",
            "reason": "SecondKey",
            "regarding": {
                "apiVersion": of(Container).api_version,
                "kind": "Container",
                "namespace": enclave.namespace,
                "name": enclave.container,
                "uid": enclave.container_uid,
            },
            "note": f"The token of enclave {enclave.name} was used with a second key, which was "
            "refused: somebody else may have read the token. Relaunch the container.",
            "type": "Warning",
        }
        try:
            await self._client.create(EVENT, body, enclave.namespace)
        except KubeError as error:
            logger.warning("the Event about a second key was not written: %s", error)

    async def _check_rate(self, enclave: CachedEnclave, most: int, now: datetime) -> None:
        """Refuse more new requests of an enclave within an hour than are allowed.

        Raises
        ------
        ApiError
            429.
        """
        times = await self._orders.times_since(enclave.uid, now - HOUR)
        if len(times) < most:
            return
        seconds = math.ceil((times[-most] + HOUR - now).total_seconds())
        raise ApiError(
            429,
            "RATE_LIMITED",
            f"this enclave has made {len(times)} new requests within an hour, {most} are allowed; "
            "send the last one again, or wait",
            retry_after=max(SOONEST, seconds),
        )

    def _outcome(self, order: CertificateOrder) -> IssuedCertificate | PendingCertificate:
        """Return the outcome of an order so far.

        Raises
        ------
        ApiError
            409 when the authority refused it.
        """
        if order.state is OrderState.REFUSED:
            raise conflict(f"no certificate: {order.message}; send a new request")
        if order.certificate is None or order.not_after is None:
            left = (order.due_at - self._clock()).total_seconds()
            seconds = min(max(math.ceil(left), SOONEST), LATEST)
            return PendingCertificate(
                seconds, order.message or "the order is in the queue of the authority"
            )
        return IssuedCertificate(order.certificate, order.not_after)

    async def _record(
        self, enclave: CachedEnclave, action: str, result: str, request_id: str, now: datetime
    ) -> None:
        """Write an audit row."""
        found = (
            one.value
            for one in self._cache.organizations.all()
            if one.value.spec.namespace == enclave.namespace
        )
        organization = next(found, None)
        await self._audit.add(
            AuditRow(
                at=now,
                request_id=request_id,
                organization=organization.metadata.name if organization else enclave.namespace,
                actor=f"enclave {enclave.name}"[:253],
                key_id=None,
                action=action,
                target=enclave.uid,
                result=result,
                organization_id=organization.identifier if organization else None,
            )
        )


COUNTED_SECONDS = 3600.0
ENCLAVES = 65_536
"""Rates that are kept; the least recently used are forgotten."""


class EnclaveCollateral:
    """Gives enclaves what vendors publish.

    Parameters
    ----------
    per_hour
        Requests of one enclave in an hour, and in one burst after a pause.
    monotonic
        Monotonic time in seconds.
    """

    def __init__(
        self, cache: CollateralCache, per_hour: int, monotonic: Callable[[], float]
    ) -> None:
        self.cache = cache
        """What they publish."""
        self._rate = RateLimit(per_hour / COUNTED_SECONDS, float(per_hour))
        self._monotonic = monotonic
        self._buckets: LRUCache[str, TokenBucket] = LRUCache(ENCLAVES)

    async def get(self, enclave_uid: str, address: str) -> CollateralAnswer:
        """Return what a vendor publishes at an address.

        Raises
        ------
        ApiError
            429 when the enclave requests too much, else as `CollateralCache.get`.
        """
        self._take(enclave_uid)
        return await self.cache.get(address)

    def _take(self, uid: str) -> None:
        """Count a request.

        Raises
        ------
        ApiError
            429 when there were too many.
        """
        bucket = self._buckets.get(uid)
        if bucket is None:
            bucket = self._buckets[uid] = TokenBucket()
        wait = consume(bucket, self._rate, self._monotonic())
        if wait:
            raise ApiError(
                429,
                "RATE_LIMITED",
                "this enclave has requested collateral too often (collateral.requestsPerHour); "
                "keep what it has, and try again after Retry-After",
                retry_after=ceil(wait),
            )


@contextlib.asynccontextmanager
async def open_collateral(
    settings: CollateralSettings, clock: Clock
) -> AsyncIterator[EnclaveCollateral]:
    """Open the cache, and close its connections at the end.

    Raises
    ------
    OSError
        When the file with the authorities cannot be read.
    """
    async with CollateralCache(settings, clock) as cache:
        yield EnclaveCollateral(cache, settings.requests_per_hour, time.monotonic)
