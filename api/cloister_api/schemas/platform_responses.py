"""Responses to enclaves, probes and the webhooks of others."""

from typing import Literal

from pydantic import Field

from cloister_api.schemas.response import Count, Omittable, ResponseBody, Timestamp

__all__ = [
    "CertificateResponse",
    "HealthResponse",
    "PaymentEventResponse",
    "QueuedCertificateResponse",
    "ReadinessResponse",
    "ReleaseEventResponse",
]


class CertificateResponse(ResponseBody):
    """A signed certificate."""

    certificate: str
    """Chain in PEM."""
    not_after: Timestamp
    """When it expires."""


class QueuedCertificateResponse(ResponseBody):
    """The order of a certificate waits."""

    status: Literal["queued"]
    """Always `queued`."""
    message: str
    """What it waits for."""
    retry_after: int
    """Seconds until the next try, also in Retry-After."""


class ReleaseEventResponse(ResponseBody):
    """What a release event did."""

    deployments: Count
    """Deployments whose source is checked now."""


class PaymentEventResponse(ResponseBody):
    """What an event of the payment processor did."""

    organizations: Count
    """Organizations whose subscriptions were checked."""


class HealthResponse(ResponseBody):
    """The process lives."""

    status: Literal["ok"]
    """Always `ok`."""


class ReadinessResponse(ResponseBody):
    """What the process waits for."""

    status: Literal["waiting", "ending"]
    """Why it takes no requests."""
    for_: Omittable[list[str]] = Field(default=None, alias="for")
    """What it waits for."""
