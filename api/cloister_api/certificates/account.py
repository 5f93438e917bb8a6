"""An account at an ACME authority (RFC 8555), on the library of certbot.

It blocks: call it in a thread.
Every step is idempotent or recorded in the ledger; the queue decides when to take it.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import requests
from acme import challenges, client, errors, messages
from cryptography import x509
from josepy.errors import Error as JoseError
from josepy.jwa import ES256, ES384
from josepy.jwk import JWKEC
from typing_extensions import override

from cloister_api.certificates.authority import SignedCertificate, read_key
from cloister_api.certificates.challenges import Proof
from cloister_api.certificates.settings import AcmeSettings
from cloister_clients.clock import utc_now

TIMEOUT = 30
"""Seconds for one request."""
POLLING = timedelta(seconds=90)
"""How long the authority may take to check a proof, and to sign."""
NONCES = 3
"""Requests, each sent twice by the library, that may fail for their nonces before the last."""
FINAL = frozenset({"badCSR", "badPublicKey", "caa", "rejectedIdentifier", "unsupportedIdentifier"})
"""Error types that no retry fixes (RFC 8555, 6.7)."""
PASSING = frozenset({"badNonce", "orderNotReady", "rateLimited", "serverInternal"})
"""Error types after which the order at the authority can be resumed."""


class AcmeError(Exception):
    """The authority refused a request, failed or did not respond."""

    def __init__(
        self, message: str, *, final: bool = False, resumes: bool = True, limited: bool = False
    ) -> None:
        super().__init__(message)
        self.final = final
        """Whether no retry will fix it."""
        self.resumes = resumes
        """Whether the order at the authority can be resumed."""
        self.limited = limited
        """Whether a rate limit of the authority was exceeded."""


@dataclass(frozen=True, slots=True)
class OpenOrder:
    """An order at the authority that is not finished."""

    resource: messages.OrderResource
    """The authority's description of it."""

    @property
    def url(self) -> str:
        """Its address."""
        return str(self.resource.uri)


class AcmeNetwork(client.ClientNetwork):
    """The library's HTTP client, with more retries when the authority refuses a nonce.

    The library retries a request once. An authority may refuse several nonces in a row, such as
    after a restart or behind a load balancer (RFC 8555, 6.5), and every order that is sent counts
    for its rate limits.
    """

    @override
    def post(self, *args: Any, **kwargs: Any) -> requests.Response:
        """Send a request, and retry it while its nonce is refused.

        Raises
        ------
        messages.Error
            When the authority refuses it for another reason, or the nonce for the last time.
        """
        for _ in range(NONCES):
            try:
                return super().post(*args, **kwargs)
            except messages.Error as error:
                if error.code != "badNonce":
                    raise
        return super().post(*args, **kwargs)


class AcmeAccount:
    """The account."""

    def __init__(self, settings: AcmeSettings) -> None:
        """Read the account's key.

        Raises
        ------
        AuthorityError
            When its file cannot be used.
        """
        self._settings = settings
        key = read_key(settings.account_key)
        self._key = JWKEC(key=key)
        self._algorithm = ES256 if key.curve.name == "secp256r1" else ES384
        self._client: client.ClientV2 | None = None

    def send(self, request: str) -> OpenOrder:
        """Send a new order for the names of a request.

        Raises
        ------
        AcmeError
            When the authority does not accept it.
        """
        with self._translated():
            return OpenOrder(self._open().new_order(request.encode()))

    def resume(self, url: str, request: str) -> OpenOrder:
        """Return an order that was sent before.

        Raises
        ------
        AcmeError
            When the authority no longer knows it.
        """
        with self._translated():
            body = messages.Order.from_json(self._fetch(url).json())
            if body.status == messages.STATUS_INVALID:
                raise AcmeError("the authority has invalidated the order", resumes=False)
            authorizations = [
                messages.AuthorizationResource(
                    body=messages.Authorization.from_json(self._fetch(each).json()), uri=each
                )
                for each in body.authorizations
            ]
        return OpenOrder(
            messages.OrderResource(
                body=body, uri=url, authorizations=authorizations, csr_pem=request.encode()
            )
        )

    def proofs(self, order: OpenOrder) -> list[Proof]:
        """Return what must be proven by DNS.

        Raises
        ------
        AcmeError
            When the authority offers no DNS-01 for a name.
        """
        return [
            Proof(
                authorization.body.identifier.value,
                challenge.chall.validation(self._key),
            )
            for authorization in pending(order)
            for challenge in [dns_challenge(authorization)]
        ]

    def finish(self, order: OpenOrder) -> SignedCertificate:
        """Have the proofs checked and the request signed.

        Raises
        ------
        AcmeError
            When a proof does not hold or the authority does not sign.
        """
        with self._translated():
            opened = self._open()
            for authorization in pending(order):
                challenge = dns_challenge(authorization)
                if challenge.status == messages.STATUS_PENDING:
                    opened.answer_challenge(challenge, challenge.chall.response(self._key))
            # The library compares with local time without a zone.
            deadline = utc_now().astimezone().replace(tzinfo=None) + POLLING
            done = opened.poll_authorizations(order.resource, deadline)
            done = opened.poll_finalization(done, deadline + POLLING)
        chain = str(done.fullchain_pem)
        leaf = x509.load_pem_x509_certificate(chain.encode())
        return SignedCertificate(chain, leaf.not_valid_after_utc)

    def _open(self) -> client.ClientV2:
        """Return the registered client; an existing account is found by its key."""
        if self._client is not None:
            return self._client
        net = AcmeNetwork(
            self._key,
            alg=self._algorithm,
            user_agent="cloister",
            timeout=TIMEOUT,
        )
        net.session.trust_env = False
        if self._settings.ca_bundle is not None:
            # The library passes it on to requests, which also accepts a path.
            net.verify_ssl = cast("bool", str(self._settings.ca_bundle))
        opened = client.ClientV2(client.ClientV2.get_directory(self._settings.directory, net), net)
        new = messages.NewRegistration.from_data(terms_of_service_agreed=True)
        if self._settings.contact:
            new = new.update(contact=self._settings.contact)
        try:
            opened.new_account(new)
        except errors.ConflictError as conflict:
            net.account = messages.RegistrationResource(body=new, uri=conflict.location)
        self._client = opened
        return opened

    def _fetch(self, url: str) -> requests.Response:
        """Read something of the account (POST-as-GET, RFC 8555, 6.3)."""
        opened = self._open()
        return opened.net.post(url, None, new_nonce_url=opened.directory["newNonce"])

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """Translate the library's errors; after some of them the next call opens the account again.

        Raises
        ------
        AcmeError
            For each of them.
        """
        try:
            yield
        except AcmeError:
            raise
        except messages.Error as error:
            # The session may be stale: the next call opens the account again.
            self._client = None
            raise AcmeError(
                f"the authority answered {error.code or error.typ}: {error.detail or error.title}",
                final=error.code in FINAL,
                resumes=error.code in PASSING,
                limited=error.code == "rateLimited",
            ) from error
        except errors.ValidationError as error:
            raise AcmeError(failed_proofs(error), resumes=False) from error
        except errors.IssuanceError as error:
            reason = f"the authority did not sign: {error.error.detail}"
            raise AcmeError(reason, resumes=False) from error
        except errors.TimeoutError as error:
            raise AcmeError("the authority did not finish in time") from error
        except (errors.Error, JoseError, requests.RequestException, ValueError) as error:
            self._client = None
            reason = str(error).partition("\n")[0] or type(error).__name__
            where = f"the authority at {self._settings.directory}"
            raise AcmeError(
                f"{where} sent an unexpected response: {reason}", resumes=not forgotten(error)
            ) from error


def forgotten(error: Exception) -> bool:
    """Return whether an authority no longer knows an address, such as that of an order.

    Where the response has no problem document (RFC 7807), the library passes the response itself
    as the argument of its error.
    """
    response = error.args[0] if error.args else None
    return isinstance(response, requests.Response) and response.status_code in {
        requests.codes.not_found,
        requests.codes.gone,
    }


def pending(order: OpenOrder) -> list[messages.AuthorizationResource]:
    """Return the names of an order that are not proven yet."""
    return [
        one for one in order.resource.authorizations if one.body.status == messages.STATUS_PENDING
    ]


def dns_challenge(authorization: messages.AuthorizationResource) -> messages.ChallengeBody:
    """Return the DNS-01 challenge of an authorization.

    Raises
    ------
    AcmeError
        When the authority offers none.
    """
    for challenge in authorization.body.challenges:
        if isinstance(challenge.chall, challenges.DNS01):
            return challenge
    name = authorization.body.identifier.value
    raise AcmeError(f"the authority offers no proof by DNS for {name}", final=True)


def failed_proofs(error: errors.ValidationError) -> str:
    """Describe which names were not proven, with the authority's reasons."""
    reasons = []
    for authorization in error.failed_authzrs:
        name = authorization.body.identifier.value
        reasons += [
            f"{name}: {challenge.error.detail}"
            for challenge in authorization.body.challenges
            if challenge.error is not None
        ]
    return f"the authority saw no proof: {'; '.join(reasons)}"
