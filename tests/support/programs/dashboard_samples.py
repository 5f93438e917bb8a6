"""Containers in every state and people, with long names, for pictures and for tests of pages."""

from typing import Any

import httpx

from tests.support.programs.facade import ADMIN, FacadeInstallation

__all__ = ["LONG", "LONG_USER", "SAMPLES", "make_people", "make_samples"]

LONG = "the-longest-name-that-a-label-may-have-0123456789-0123456789-01"
"""A name of 63 characters."""
LONG_USER = "https://id.example.test/realms/acme/" + "0123456789abcdef" * 13
"""A name of 244 characters without a place to break, as providers may give it."""
AT = "2026-11-27T00:00:00Z"


def ready(status: str, reason: str, message: str) -> dict[str, Any]:
    """Return the condition Ready."""
    return {
        "type": "Ready", "status": status, "reason": reason, "message": message,
        "lastTransitionTime": AT, "observedGeneration": 1,
    }  # fmt: skip


SERVES = {
    "phase": "ready",
    "currentTag": "v1.0.0",
    "conditions": [
        ready("True", "Serving", "Tag v1.0.0 serves."),
        {**ready("True", "Serving", "A release serves."), "type": "Available"},
        {
            **ready("False", "NoTee", "The Host has no TEE, so nothing is confidential."),
            "type": "Confidential",
        },
    ],
}
SAMPLES: dict[str, dict[str, Any]] = {
    "web": SERVES,
    "shop": {
        "phase": "failed",
        "conditions": [
            ready(
                "False",
                "ImageNotFound",
                "The image ghcr.io/acme/shop@sha256:" + "0" * 64 + " is not in the registry.",
            ),
            {
                **ready("True", "ImageNotFound", "Push the image, or request another release."),
                "type": "Stalled",
            },
        ],
    },
    "worker": {
        "phase": "deploying",
        "conditions": [ready("False", "Deploying", "Tag v1.0.0 is starting: its Pod is not up.")],
    },
    "archive": {
        "phase": "stopped",
        "conditions": [ready("True", "Stopped", "It is stopped, as requested.")],
    },
    LONG: SERVES,
}
"""Statuses by name."""


async def make_samples(world: FacadeInstallation, client: httpx.AsyncClient) -> dict[str, str]:
    """Create the containers; return their identifiers by name."""
    found = {}
    for name, status in SAMPLES.items():
        made = await client.post("/api/containers", json=world.body(name))
        assert made.status_code == 201, made.text
        found[name] = made.json()["id"]
        await world.report(name, observedGeneration=1, **status)
    return found


async def make_people(world: FacadeInstallation) -> None:
    """Add an administrator with admin keys, one of them revoked, and a member."""
    people = [(ADMIN, "Admin"), (LONG_USER, "Admin"), ("mia@example.test", "Member")]
    await world.change_organization(members=[{"user": user, "role": role} for user, role in people])
    for days in (None, 30, None):
        value = await world.new_key(user=LONG_USER, days=days)
    await world.revoke(value)
