"""Secrets, SSH keys, domains and credentials of registries in the dashboard."""

import base64
import re

import pytest

from cloister_clients.kube.kinds import SECRET
from tests.support.programs.dashboard import Dashboard, Person
from tests.support.programs.dashboard_samples import PUBLIC_KEY
from tests.support.programs.facade import ADMIN, Facade, FacadeInstallation
from tests.support.waiting import until

VALUE = "made up\n value of a secret\n"


async def opened(person: Person, world: FacadeInstallation, page: str, text: str) -> str:
    """Wait until a page shows a text, and return its path."""
    path = f"/o/{world.organization}/{page}"

    async def there() -> bool:
        return text in (await person.get(path)).text

    await until(there, what=f"{text} on {path}")
    return path


async def core_values(world: FacadeInstallation) -> list[str]:
    """Return all values of core Secrets of the organization."""
    found = await world.kube.list(SECRET, world.namespace)
    return [
        base64.b64decode(value).decode()
        for each in found.items
        for value in each.get("data", {}).values()
    ]


async def test_a_secret_is_written_used_and_deleted(
    dashboard: Dashboard, facade: Facade, world: FacadeInstallation
) -> None:
    async with dashboard.signed_in(ADMIN) as person, facade.client(world.key) as client:
        path = await opened(person, world, "secrets", "New secret")
        made = await person.fill(path, name="TOKEN", value=VALUE.replace("\n", "\r\n"), retry="r1")
        assert (made.status_code, made.headers["location"]) == (303, path), made.text
        again = await person.fill(path, name="TOKEN", value=VALUE.replace("\n", "\r\n"), retry="r1")
        assert again.status_code == 303, "the same form counts once"
        page = await person.get(path)
        assert "TOKEN" in page.text
        assert "value of a secret" not in page.text
        (secret,) = re.findall(rf'action="{path}/([^/"]+)/update"', page.text)

        async def known() -> bool:
            return (await client.get("/api/secrets/TOKEN")).status_code == 200

        await until(known, what="the secret at the other process")
        assert (await client.get("/api/secrets/TOKEN")).json()["id"] == secret
        assert VALUE in await core_values(world)
        written = await person.fill(f"{path}/{secret}/update", value="another made up value")
        assert written.status_code == 303
        assert "another made up value" in await core_values(world)
        body = world.body("web", secrets=["TOKEN"])
        user = (await client.post("/api/containers", json=body)).json()
        refused = await person.fill(f"{path}/{secret}/delete")
        assert refused.status_code == 409
        blocking = f'<a href="/o/{world.organization}/containers/{user["id"]}"><bdi>web</bdi></a>'
        assert f"Used by {blocking}" in refused.text
        await client.delete(f"/api/containers/{user['id']}")

        async def is_gone() -> bool:
            return (await person.fill(f"{path}/{secret}/delete")).status_code == 303

        await until(is_gone, what="the end of its use")
        assert "TOKEN" not in (await person.get(path)).text
    rows = {row.action: row for row in await world.audit()}
    assert rows["secret.create"].session_id
    assert {"secret.update", "secret.delete"} <= set(rows)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"name": "no name", "value": "x"}, "name"),
        ({"name": "EMPTY", "value": ""}, "value"),
        ({"name": "A", "value": "x", "repo": "nonsense"}, "repo"),
    ],
)
async def test_a_wrong_secret_is_refused_and_its_value_not_shown(
    dashboard: Dashboard, world: FacadeInstallation, fields: dict[str, str], why: str
) -> None:
    async with dashboard.signed_in(ADMIN) as person:
        path = await opened(person, world, "secrets", "New secret")
        refused = await person.fill(path, **fields)
        assert refused.status_code == 400
        assert why in refused.text
        assert "Not saved" in refused.text
        assert "No secrets yet." in refused.text


async def test_an_ssh_key_is_added_and_deleted(
    dashboard: Dashboard, world: FacadeInstallation
) -> None:
    async with dashboard.signed_in(ADMIN) as person:
        path = await opened(person, world, "ssh-keys", "New SSH key")
        refused = await person.fill(path, name="ada-laptop", public_key="-----BEGIN")
        assert refused.status_code == 400
        assert 'value="ada-laptop"' in refused.text, "what was typed stays"
        made = await person.fill(path, name="ada-laptop", public_key=PUBLIC_KEY)
        assert made.status_code == 303, made.text
        page = await person.get(path)
        assert "ada-laptop" in page.text
        assert "ssh-ed25519" in page.text
        assert (await person.fill(f"{path}/ada-laptop/delete")).status_code == 303
        assert "No SSH keys yet." in (await person.get(path)).text
        assert (await person.fill(f"{path}/ada-laptop/delete")).status_code == 404


async def test_a_domain_shows_the_records_to_create(
    dashboard: Dashboard, world: FacadeInstallation
) -> None:
    async with dashboard.signed_in(ADMIN) as person:
        path = await opened(person, world, "domains", "Custom domains aren't enabled")
        refused = await person.fill(path, domain="app.acme.test")
        assert refused.status_code == 403
        assert "domainSuffixes" in refused.text
        await world.change_organization(entitlements={"domainSuffixes": ["acme.test"]})
        await opened(person, world, "domains", "New domain")
        refused = await person.fill(path, domain="app.other.test")
        assert refused.status_code == 400
        assert "is not below one of" in refused.text
        # No operator publishes the records here: the domain is registered all the same.
        made = await person.fill(path, domain="app.acme.test")
        assert made.status_code == 503
        assert "has not published its DNS records yet" in made.text
        page = await person.get(path)
        assert "Waiting for DNS" in page.text
        assert "Preparing records" in page.text
        assert (await person.fill(f"{path}/app.acme.test/verify")).status_code == 303
        assert (await person.fill(f"{path}/app.acme.test/delete")).status_code == 303
        assert "app.acme.test" not in (await person.get(path)).text
    rows = [
        (row.target, row.result) for row in await world.audit() if row.action == "domain.create"
    ]
    assert ("app.acme.test", "403 FORBIDDEN") in rows, "what was refused is named too"


async def test_credentials_are_written_and_deleted(
    dashboard: Dashboard, world: FacadeInstallation
) -> None:
    token = "made-up-token-of-a-test"
    async with dashboard.signed_in(ADMIN) as person:
        path = await opened(person, world, "registries", "Private registries aren't enabled")
        assert (await person.fill(f"{path}/ghcr", username="ada", token=token)).status_code == 403
        await world.change_organization(entitlements={"privateRegistries": True})
        await opened(person, world, "registries", "Docker Hub")
        refused = await person.fill(f"{path}/ghcr", username="ada")
        assert refused.status_code == 400
        assert "token" in refused.text
        assert 'value="ada"' in refused.text
        put = await person.fill(f"{path}/ghcr", username="ada", token=token)
        assert put.status_code == 303, put.text
        page = (await person.get(path)).text
        assert "Replace" in page
        assert token not in page
        assert (await person.fill(f"{path}/gcr", key="no json")).status_code == 400
        assert (await person.fill(f"{path}/quay", username="a", token="b")).status_code == 404
        assert (await person.fill(f"{path}/ghcr/delete")).status_code == 303
        assert "Replace" not in (await person.get(path)).text


@pytest.mark.parametrize("page", ["secrets", "ssh-keys", "domains", "registries"])
async def test_members_read_and_strangers_do_not(
    dashboard: Dashboard, world: FacadeInstallation, other_world: FacadeInstallation, page: str
) -> None:
    user = "member@example.test"
    people = [{"user": ADMIN, "role": "Admin"}, {"user": user, "role": "Member"}]
    await world.change_organization(
        members=people, entitlements={"privateRegistries": True, "domainSuffixes": ["acme.test"]}
    )
    async with dashboard.signed_in(user) as person:
        path = await opened(person, world, page, "You can view this organization")
        shown = await person.get(path)
        assert "<form" not in shown.text.partition("<main")[2]
        refused = await person.fill(path, name="A", value="b", public_key=PUBLIC_KEY)
        assert refused.status_code in {403, 405}
        foreign = await person.get(f"/o/{other_world.organization}/{page}")
        assert foreign.status_code == 404
