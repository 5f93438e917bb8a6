"""The signature of a report of usage (spec 26.8). Pure.

It is HMAC-SHA256 in hex over six lines without a final newline: method, path, reporter, timestamp,
nonce, and the SHA-256 of the body in hex.
"""

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Self

from cloister_api.errors import ApiError

__all__ = ["ReportSignature", "refused", "signature_of"]

SKEW = timedelta(minutes=10)
"""How far the clock of a reporter may be off."""
SIGNATURE = re.compile(r"[0-9a-fA-F]{64}")
RFC_3339_UTC = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,9})?(Z|\+00:00)$")


def refused(message: str) -> ApiError:
    """Build a 401 with the reason; a reporter retries later, or its administrator fixes it."""
    return ApiError(401, "UNAUTHORIZED", message)


@dataclass(frozen=True, slots=True)
class ReportSignature:
    """The signature headers of a report."""

    reporter: str
    """Its reporter."""
    timestamp: str
    """When, as it was sent."""
    nonce: str
    """Identifier of the delivery."""
    signature: str
    """The signature in hex."""

    @classmethod
    def of(cls, headers: Mapping[str, str], service: str) -> Self:
        """Read the headers.

        Parameters
        ----------
        headers
            Headers, by names in lower case.
        service
            Name of the installation, which is part of the names of the headers.

        Raises
        ------
        ApiError
            401 when one is missing.
        """
        names = [
            f"x-{service}-{part}" for part in ("reporter-id", "timestamp", "nonce", "signature")
        ]
        values = [headers.get(name, "") for name in names]
        missing = [name for name, value in zip(names, values, strict=True) if not value]
        if missing:
            raise refused(f"the report is not signed: {', '.join(missing)} is missing")
        return cls(*values)

    def check_form(self) -> None:
        """Refuse what is no signature, whatever the body is.

        Raises
        ------
        ApiError
            401 when it is none.
        """
        if not SIGNATURE.fullmatch(self.signature):
            raise WRONG

    def check_time(self, now: datetime) -> None:
        """Refuse a report whose time is too far off.

        Raises
        ------
        ApiError
            401 when it is, or is not a time.
        """
        found = RFC_3339_UTC.match(self.timestamp)
        if found is None:
            raise refused("the timestamp is not RFC 3339 in UTC, such as 2027-01-31T00:00:00.5Z")
        try:
            at = datetime.fromisoformat(found[1]).replace(tzinfo=UTC)
        except ValueError as error:
            raise refused("the timestamp is not a time") from error
        if abs(at - now) > SKEW:
            raise refused("the timestamp is more than 10 minutes off; set the reporter's clock")

    def check(self, secret: bytes, method: str, path: str, body: bytes) -> bytes:
        """Refuse a wrong signature, and return the digest of the body.

        Raises
        ------
        ApiError
            401 when it is wrong.
        """
        digest = hashlib.sha256(body)
        right = signature_of(secret, method, path, self, digest.hexdigest())
        if not hmac.compare_digest(right.encode(), self.signature.lower().encode()):
            raise WRONG
        return digest.digest()


WRONG = refused("unknown reporter or wrong signature")
"""One response for both: it must not reveal which reporters exist."""


def signature_of(
    secret: bytes, method: str, path: str, signed: ReportSignature, digest: str
) -> str:
    """Return the signature that a report must have.

    Parameters
    ----------
    secret
        Secret of the reporter.
    method
        HTTP method.
    path
        Path of the request.
    signed
        The headers.
    digest
        SHA-256 of the body in hex.
    """
    parts = (method, path, signed.reporter, signed.timestamp, signed.nonce, digest)
    return hmac.new(secret, "\n".join(parts).encode(), hashlib.sha256).hexdigest()
