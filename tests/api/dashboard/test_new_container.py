"""A container is created in the dashboard, after its release was checked."""

import re
from html import unescape

import yaml

from tests.support.programs.dashboard import Dashboard, Person
from tests.support.programs.facade import ADMIN, Facade, FacadeInstallation, config_file
from tests.support.waiting import until


async def opened(person: Person, world: FacadeInstallation) -> str:
    """Wait until the person may open the page, and return its path."""
    path = f"/o/{world.organization}/containers/new"

    async def there() -> bool:
        page = await person.get(path)
        return page.status_code == 200 and 'action="' in page.text

    await until(there, what="the page of a new container")
    return path


async def test_a_wrong_file_is_shown_at_its_lines_and_a_right_one_runs(
    dashboard: Dashboard, facade: Facade, world: FacadeInstallation
) -> None:
    document = yaml.safe_load(config_file(world.image))
    document["containers"][0]["ports"] = ["<script>"]
    document["cpus"] = "many"
    world.repository.release("broken", yaml.safe_dump(document).encode())
    async with dashboard.signed_in(ADMIN) as person:
        path = await opened(person, world)
        typed = {"name": "web", "repo": world.repo, "variables": "GREETING=hello"}
        found = await person.fill(f"{path}/check", **typed, tag="broken")
        assert found.status_code == 200
        assert "problems in this release" in found.text
        line = re.search(r'href="#line-(\d+)"', found.text)
        assert line is not None
        assert f'id="line-{line[1]}"' in found.text
        assert "<script>" not in found.text
        assert 'value="broken"' in found.text, "what was typed stays"
        assert '<option value="v1.1.0">' in found.text, "what could be typed instead"
        assert await world.containers() == []
        good = await person.fill(f"{path}/check", **typed, tag="v1.0.0")
        assert "Ready to create" in good.text
        assert f"web.{world.organization}." in good.text
        assert "2 CPU, 8192 MB" in good.text
        made = await person.fill(path, **typed, tag="v1.0.0", retry="one")
        assert made.status_code == 303, made.text
        where = made.headers["location"]
        assert (await person.get(where)).status_code == 200
        again = await person.fill(path, **typed, tag="v1.0.0", retry="one")
        assert again.headers["location"] == where, "the same form again"
    (container,) = await world.containers()
    assert container["spec"]["tag"] == "v1.0.0"
    assert container["spec"]["variables"] == [{"name": "GREETING", "value": "hello"}]
    rows = [(row.action, row.result) for row in await world.audit()]
    assert ("container.create", "201") in rows


async def test_a_missing_secret_is_created_beside_the_form(
    dashboard: Dashboard, facade: Facade, world: FacadeInstallation
) -> None:
    document = yaml.safe_load(config_file(world.image))
    document["containers"][0]["secrets"] = ["PASSWORD", "TOKEN"]
    world.repository.release("secret", yaml.safe_dump(document).encode())
    secrets = f"/o/{world.organization}/secrets"
    async with dashboard.signed_in(ADMIN) as person:
        path = await opened(person, world)
        typed = {"name": "web", "repo": world.repo, "tag": "secret"}
        made = await person.fill(secrets, name="TOKEN", value="not-a-real-one", retry="token")
        assert made.status_code == 303, made.text
        await person.shows(path, "Secrets</legend>")
        found = await person.fill(f"{path}/check", **typed)
        assert "Organization secret: select it" in found.text
        link = re.search(
            r'<a class="button tiny" href="([^"]*)" target="_blank"[^>]*>Create secret<.*PASSWORD',
            found.text,
        )
        assert link is not None
        page = await person.get(unescape(link[1]))
        assert '<input id="name" name="name" type="text" value="PASSWORD"' in page.text
        assert f'<input id="repo" name="repo" type="text" value="{world.repo}"' in page.text
        own = {"name": "PASSWORD", "repo": world.repo, "value": "not-a-real-one", "retry": "word"}
        assert (await person.fill(secrets, **own)).status_code == 303
        ticked = {"secret:TOKEN": "on"}

        async def checked() -> str:
            text = (await person.fill(f"{path}/check", **typed, **ticked)).text
            return text if "Repository secret" in text else ""

        text = await until(checked, what="the new secret in the check")
        assert "Organization secret, selected" in text
        assert "Ready to create" in text
        hostile = await person.get(f"{secrets}?name=%22%3E%3Cscript%3E&repo=x")
        assert "<script>" not in hostile.text
        assert 'value="&#34;&gt;&lt;script&gt;"' in hostile.text


async def test_every_wrong_field_is_named_and_nothing_is_made(
    dashboard: Dashboard, facade: Facade, world: FacadeInstallation
) -> None:
    async with dashboard.signed_in(ADMIN) as person:
        path = await opened(person, world)
        for place in (path, f"{path}/check"):
            refused = await person.fill(place, name="Web!", repo="nowhere", tag="")
            assert refused.status_code == 400
            assert "Not saved" in refused.text
            for field in ("repo", "tag"):
                assert f'id="{field}-error"' in refused.text
        lines = await person.fill(path, name="web", repo="a/b", tag="v1", variables="NO")
        assert lines.status_code == 400
        assert "write NAME=value" in lines.text
        missing = await person.fill(path, name="web", repo=world.repo, tag="v9")
        assert missing.status_code == 400
        assert "v9" in missing.text
        assert (await person.get(f"{path}/check")).status_code in {404, 405}
    assert await world.containers() == []
    assert await world.claims() == []


async def test_a_member_creates_nothing(
    dashboard: Dashboard, facade: Facade, world: FacadeInstallation
) -> None:
    member = f"{world.organization}@example.test"
    await world.change_organization(members=[{"user": member, "role": "Member"}])
    async with dashboard.signed_in(member) as person:
        path = f"/o/{world.organization}/containers/new"

        async def told() -> bool:
            return "You can view this organization" in (await person.get(path)).text

        await until(told, what="the page of a member")
        assert "New container</a>" not in (await person.get(path.rpartition("/")[0])).text
        for place in (path, f"{path}/check"):
            refused = await person.fill(place, name="web", repo=world.repo, tag="v1.0.0")
            assert refused.status_code == 403
    assert await world.containers() == []
