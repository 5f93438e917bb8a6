"""Containers in every state, people, keys and usage, for pictures and for tests of pages."""

from typing import Any

import httpx

from cloister_api.usage.ingest import PATH
from cloister_api.utilization.buckets import SeriesKey, UsageInterval, add_interval
from cloister_api.utilization.store import UtilizationStore
from cloister_clients.clock import utc_now
from cloister_clients.kube.kinds import of
from cloister_crds.kinds import Domain, Organization
from tests.support.builders.usage import event, report, sign
from tests.support.cluster.clusters import unique
from tests.support.programs.facade import ADMIN, DOMAIN, Facade, FacadeInstallation, run_command
from tests.support.programs.facade_enclaves import register
from tests.support.waiting import until

__all__ = [
    "LONG",
    "LONG_USER",
    "PUBLIC_KEY",
    "SAMPLES",
    "fill_organization",
    "make_people",
    "make_samples",
    "pages_of",
]

LONG = "the-longest-name-that-a-label-may-have-0123456789-0123456789-01"
"""A name of 63 characters."""
LONG_USER = "https://id.example.test/realms/acme/" + "0123456789abcdef" * 13
"""A name of 244 characters without a place to break, as providers may give it."""
PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0dZGmGxVtPlb2rDdrqkOWzqOxGmUjjd2g6oWZwQ8aT ada"
"""A public key whose private one nobody has kept."""
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


ENTITLED = {"domainSuffixes": ["acme.test"], "privateRegistries": True, "hostSelection": True}
MODELS = ("north", "south", "a-model-with-a-rather-long-name-instruct-70b")


async def fill_organization(facade: Facade, world: FacadeInstallation) -> dict[str, str]:
    """Create containers, people, and some of everything that an organization may have."""
    await world.change_organization(
        entitlements=ENTITLED, billing={"tokenBilling": True, "containerSubscription": True}
    )
    async with facade.client(world.key) as client:

        async def entitled() -> bool:
            return (await client.get("/api/registry-credentials")).status_code == 200

        await until(entitled, what="the entitlements")
        await make_people(world)
        made = await make_samples(world, client)
        await make_belongings(world, client)
        await make_usage(facade, world, client)
    counts = {"status": {"counts": {"containers": 5, "ready": 2, "failed": 1}}}
    await world.kube.merge_patch(of(Organization), world.organization, counts, subresource="status")
    await make_utilization(world, made["web"])
    return made


async def make_belongings(world: FacadeInstallation, client: httpx.AsyncClient) -> None:
    """Create secrets, a key, a domain and credentials."""
    domain = f"{unique('app')}.acme.test"
    for path, body in (
        ("/api/secrets", {"name": "DATABASE_URL", "value": "made up"}),
        (
            "/api/secrets",
            {"name": "A_SECRET_WITH_A_RATHER_LONG_NAME_OF_SIXTY_LETTERS_X", "value": "m"},
        ),
        ("/api/ssh-keys", {"name": "ada-laptop", "public_key": PUBLIC_KEY}),
    ):
        answer = await client.post(path, json=body)
        assert answer.status_code == 201, answer.text
    answer = await register(world, client, domain)
    assert answer.status_code == 201, answer.text
    records = {
        "txtName": f"_cloister.{domain}",
        "txtValue": "cloister-verification=made-up",
        "cnameTarget": f"0123456789abcdef.{DOMAIN}",
    }
    status = {"status": {"records": records}}
    await world.kube.merge_patch(of(Domain), domain, status, world.namespace, subresource="status")
    credentials = {"username": "acme-robot", "token": "made-up-token"}
    answer = await client.put("/api/registry-credentials/ghcr", json=credentials)
    assert answer.status_code == 200, answer.text


async def make_usage(facade: Facade, world: FacadeInstallation, client: httpx.AsyncClient) -> None:
    """Create keys, and report what they used."""
    values = []
    for name, cap in (("search-service", 5_000), ("nightly-batch", None)):
        body = {"name": name, **({"max_tokens": cap} if cap else {})}
        answer = await client.post("/api/keys", json=body)
        assert answer.status_code == 200, answer.text
        values.append(answer.json()["key"])
    reporter = unique("router")
    config = ("--config", str(world.settings))
    secret = run_command("reporter", "create", reporter, *config).stdout.strip()
    nonce, now = unique("d"), utc_now()
    events: list[Any] = [
        event(
            f"{nonce}-{number}",
            now,
            api_key=values[number % 2],
            attributes={"model": MODELS[number % len(MODELS)]},
        )
        for number in range(12)
    ]
    sent = report(nonce, events)
    headers = sign(secret, nonce, sent, utc_now(), reporter)
    async with facade.client() as anybody:
        answer = await anybody.post(
            PATH, content=sent, headers={**headers, "content-type": "application/json"}
        )
    assert answer.status_code == 200, answer.text


async def make_utilization(world: FacadeInstallation, container: str) -> None:
    """Let a container have been busy for an hour."""
    sums: dict[tuple[int, SeriesKey, int], list[int]] = {}
    present = await world.kube.get(of(Organization), world.organization)
    series, now = (present["metadata"]["uid"], container), utc_now().timestamp()
    for minute in range(60):
        begin = now - 60 * (minute + 1)
        busy = 20 + (minute * 7) % 60
        memory = (2 << 20) + (minute << 14)
        add_interval(sums, UsageInterval(series, begin, begin + 60, busy, 100, memory, 8 << 20))
    async with world.ledger() as engine:
        await UtilizationStore(engine).add(sums)


def pages_of(world: FacadeInstallation, made: dict[str, str]) -> dict[str, str]:
    """Return the paths of all pages by name, for who is signed in as an administrator."""
    base = f"/o/{world.organization}"
    places = (
        "containers", "deployments", "secrets", "ssh-keys", "domains", "registries", "api-keys",
        "usage", "models", "billing", "admin-keys", "members", "audit", "hosts", "settings",
    )  # fmt: skip
    web = f"{base}/containers/{made['web']}"
    return {
        **{place: f"{base}/{place}" for place in places},
        "usage": f"{base}/usage?time=1h&what=tokens",
        "new-container": f"{base}/containers/new",
        "container": web,
        "container-failed": f"{base}/containers/{made['shop']}",
        "container-long": f"{base}/containers/{made[LONG]}",
        "utilization": f"{web}/metrics",
        "measurement": f"{web}/measurement",
        "events": f"{web}/events",
        "member": f"{base}/members/person?user={LONG_USER}",
        "organizations": "/organizations?all",
        "sign-in": "/session",
    }
