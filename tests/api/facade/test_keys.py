"""Regular API keys at a real facade: records, masks, rules, and what is written about them."""

import asyncio
import json
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from cloister_api.ledger.keys.key_material import REGULAR_PREFIX, generate, well_formed
from cloister_api.routes.parameters import encode_cursor
from tests.support.programs.facade import ADMIN, Facade, FacadeInstallation, run_command
from tests.support.waiting import until

OTHER = "bob@example.test"
FIELDS = [
    "key",
    "id",
    "name",
    "disabled",
    "expires_at",
    "max_tokens",
    "metadata",
    "tokens_used",
    "input_tokens_used",
    "output_tokens_used",
    "request_count",
    "is_owner",
    "created_by",
    "created_at",
    "last_used_at",
]


@pytest.fixture
async def paying(world: FacadeInstallation) -> FacadeInstallation:
    """Return an organization with token billing and two administrators."""
    members = [{"user": ADMIN, "role": "Admin"}, {"user": OTHER, "role": "Admin"}]
    await world.change_organization(members=members, billing={"tokenBilling": True})
    return world


async def made(client: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    """Create a key, once the facade has seen that the organization pays."""

    async def tried() -> dict[str, Any]:
        answer = await client.post("/api/keys", json={"name": "ci", **body})
        if answer.status_code == 402:
            return {}
        assert answer.status_code == 200, answer.text
        record: dict[str, Any] = answer.json()
        return record

    return await until(tried)


@pytest.mark.spec("20.16")
async def test_keys_are_read_page_by_page(facade: Facade, paying: FacadeInstallation) -> None:
    async with facade.client(paying.key) as client:
        names = [f"key-{number}" for number in range(5)]
        for name in names:
            await made(client, name=name)
        whole = await client.get("/api/keys")
        assert "link" not in whole.headers
        found, following, asked = [], "/api/keys?limit=2", 0
        while following:
            answer = await client.get(following)
            assert answer.status_code == 200, answer.text
            found += answer.json()
            following = answer.links.get("next", {}).get("url", "")
            asked += 1
        assert (asked, found) == (3, whole.json())
        assert [each["name"] for each in found] == names
        for cursor in ("x", "", encode_cursor(("1", "2")), encode_cursor(("-1",))):
            refused = await client.get("/api/keys", params={"cursor": cursor})
            assert refused.status_code == 400, cursor
            assert refused.json()["details"][0]["field"] == "cursor"


@pytest.mark.spec("1.2", "1.3", "9.1", "9.2", "9.3", "24.8")
async def test_a_created_key_has_every_field_of_the_record(
    facade: Facade, paying: FacadeInstallation
) -> None:
    async with facade.client(paying.key) as client:
        record = await made(
            client,
            name="build bot_1.0-a",
            expires_at="2099-01-31T02:00:00+02:00",
            max_tokens=1000,
            metadata={"team": {"n": [1, None, "é"]}},
        )
        assert list(record) == FIELDS
        assert record["key"].startswith(REGULAR_PREFIX)
        assert well_formed(record["key"], REGULAR_PREFIX)
        assert record["expires_at"] == "2099-01-31T00:00:00Z"
        assert record["metadata"] == {"team": {"n": [1, None, "é"]}}
        assert (record["max_tokens"], record["tokens_used"], record["is_owner"]) == (1000, 0, True)
        assert (record["disabled"], record["last_used_at"]) == (False, None)
        plain = await made(client, name="plain", max_tokens=0)
        assert (plain["expires_at"], plain["max_tokens"], plain["metadata"]) == (None, None, {})
        listed = await client.get("/api/keys")
    assert listed.json() == [record, plain]
    assert listed.headers["cache-control"] == "no-store"


@pytest.mark.spec("20.18")
async def test_a_create_with_a_key_of_the_client_can_be_sent_again(
    facade: Facade, paying: FacadeInstallation
) -> None:
    body = {"name": "minted", "metadata": {"n": 2**70}, "expires_at": "2099-01-31T00:00:00Z"}
    once = {"Idempotency-Key": "one"}
    async with facade.client(paying.key) as client:
        await made(client, name="other")
        several = await asyncio.gather(
            *(client.post("/api/keys", json=body, headers=once) for _ in range(4))
        )
        assert {each.status_code for each in several} == {200}
        assert len({each.content for each in several}) == 1
        record = several[0].json()
        listed = (await client.get("/api/keys")).json()
        assert [each["name"] for each in listed] == ["other", "minted"]
        for headers, sent in (
            ({}, body),
            ({}, body),
            ({"Idempotency-Key": "two"}, body),
            (once, {**body, "max_tokens": 5}),
            (once, {**body, "metadata": {}}),
        ):
            another = await client.post("/api/keys", json=sent, headers=headers)
            assert another.status_code == 200, another.text
            assert another.json()["key"] != record["key"]
            path = f"/api/keys/{another.json()['key']}"
            assert (await client.delete(path)).status_code == 200
        for wrong in ("", "x" * 256):
            refused = await client.post("/api/keys", json=body, headers={"Idempotency-Key": wrong})
            assert refused.status_code == 400, refused.text

        renamed = {"key": record["key"], "name": "renamed"}
        assert (await client.post("/api/keys/update", json=renamed)).status_code == 200
        again = await client.post("/api/keys", json=body, headers=once)
        assert (again.status_code, again.json()) == (200, {**record, "name": "renamed"})
        async with facade.client(await paying.new_key(user=OTHER)) as other:

            async def theirs() -> dict[str, Any]:
                answer = await other.post("/api/keys", json=body, headers=once)
                return answer.json() if answer.status_code == 200 else {}

            # The text is that of one admin key: another one's makes a key of its own.
            assert (await until(theirs))["key"] != record["key"]
            (own,) = [each for each in (await other.get("/api/keys")).json() if each["is_owner"]]
            assert (await client.delete(f"/api/keys/{own['key']}")).status_code == 200

        assert (await client.delete(f"/api/keys/{record['key']}")).status_code == 200
        retried = await client.post("/api/keys", json=body, headers=once)
        assert retried.status_code == 200, retried.text
        assert retried.json()["key"] != record["key"]


@pytest.mark.spec("9.1", "9.4", "9.5", "9.6", "25.2", "25.3")
async def test_the_keys_of_others_are_masked(facade: Facade, paying: FacadeInstallation) -> None:
    async with facade.client(paying.key) as client:
        mine = await made(client)

    async with facade.client(await paying.new_key(user=OTHER)) as other:

        async def listed() -> list[dict[str, Any]]:
            answer = await other.get("/api/keys")
            return answer.json() if answer.status_code == 200 else []

        (seen,) = await until(listed)
        assert mine["created_by"] == ADMIN
        assert seen == {**mine, "key": mine["key"][:8] + "*" * 24, "is_owner": False}
        for masked in (seen["key"], mine["key"][:-1], "x"):
            answer = await other.post("/api/keys/update", json={"key": masked, "name": "n"})
            assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND")
            assert masked not in answer.text
            assert (await other.delete(f"/api/keys/{masked}")).status_code == 404
        update = {"key": mine["key"], "name": "renamed", "max_tokens": 7}
        done = await other.post("/api/keys/update", json=update)
        assert (done.status_code, list(done.json())) == (200, ["message"])
        (seen,) = (await other.get("/api/keys")).json()
        assert (seen["name"], seen["max_tokens"]) == ("renamed", 7)
        cleared = {"key": mine["key"], "max_tokens": 0, "name": None}
        assert (await other.post("/api/keys/update", json=cleared)).status_code == 200
        (seen,) = (await other.get("/api/keys")).json()
        assert (seen["name"], seen["max_tokens"]) == ("renamed", None)
        gone = await other.delete(f"/api/keys/{mine['key']}")
        assert (gone.status_code, list(gone.json())) == (200, ["message"])
        assert (await other.get("/api/keys")).json() == []
        assert (await other.delete(f"/api/keys/{mine['key']}")).status_code == 404


async def test_keys_of_others_are_changed_and_deleted_by_their_number(
    facade: Facade, paying: FacadeInstallation
) -> None:
    async with facade.client(paying.key) as client:
        mine = await made(client, name="of a leaver")
        second = await made(client, name="second")
        async with facade.client(await paying.new_key(user=OTHER)) as other:
            path = f"/api/keys/by-id/{mine['id']}"

            async def known() -> bool:
                return (await other.get("/api/keys")).status_code == 200

            await until(known)
            checked = {"api_key": mine["key"]}
            assert (await client.post("/api/shim/validate-key", json=checked)).status_code == 200
            off = await other.patch(path, json={"disabled": True})
            assert (off.status_code, off.headers["cache-control"]) == (200, "no-store")
            masked = {"key": mine["key"][:8] + "*" * 24, "is_owner": False}
            assert off.json() == {
                **mine,
                **masked,
                "disabled": True,
                "last_used_at": off.json()["last_used_at"],
            }
            assert mine["key"] not in off.text
            assert (await client.post("/api/shim/validate-key", json=checked)).status_code == 401
            on = await client.patch(path, json={"disabled": False, "name": "kept", "max_tokens": 9})
            assert (on.json()["key"], on.json()["name"], on.json()["max_tokens"]) == (
                mine["key"],
                "kept",
                9,
            )
            assert (await client.post("/api/shim/validate-key", json=checked)).status_code == 200
            cleared = await other.patch(path, json={"max_tokens": 0, "name": None})
            assert (cleared.json()["name"], cleared.json()["max_tokens"]) == ("kept", None)
            equal = await other.patch(path, json={"name": second["name"]})
            assert (equal.status_code, equal.json()["name"]) == (200, second["name"])
            gone = await other.delete(path)
            assert (gone.status_code, list(gone.json())) == (200, ["message"])
            assert (await other.delete(path)).status_code == 404
            assert (await other.patch(path, json={"name": "x"})).status_code == 404
            assert [each["id"] for each in (await client.get("/api/keys")).json()] == [second["id"]]
        for number in ("0", "-1", "x", "9" * 19, "1e3", "\N{ARABIC-INDIC DIGIT ONE}"):
            answer = await client.delete(f"/api/keys/by-id/{number}")
            assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND"), number
    rows = [row for row in await paying.audit() if row.target == str(mine["id"])]
    assert [(row.actor, row.action, row.result) for row in rows[1:]] == [
        (OTHER, "api_key.update", "200"),
        (ADMIN, "api_key.update", "200"),
        (OTHER, "api_key.update", "200"),
        (OTHER, "api_key.update", "200"),
        (OTHER, "api_key.delete", "200"),
        (OTHER, "api_key.delete", "404 NOT_FOUND"),
        (OTHER, "api_key.update", "404 NOT_FOUND"),
    ]


async def test_the_value_reaches_no_log_and_no_audit_row(
    facade: Facade, paying: FacadeInstallation
) -> None:
    async with facade.client(paying.key) as client:
        record = await made(client, name="quiet")
        missing = generate(REGULAR_PREFIX)
        assert (await client.delete(f"/api/keys/{missing}")).status_code == 404
        assert (await client.delete(f"/api/keys/{record['key']}")).status_code == 200
    rows = [row for row in await paying.audit() if row.action.startswith("api_key.")]
    kinds = [(row.action, row.result) for row in rows if row.result[:3] != "402"]
    assert kinds == [
        ("api_key.create", "200"),
        ("api_key.delete", "404 NOT_FOUND"),
        ("api_key.delete", "200"),
    ]
    for value in (record["key"], missing):
        assert value not in facade.log.read_text()
        assert value not in repr(rows)
        for file in paying.settings.parent.glob("ledger.db*"):
            assert value.encode() not in file.read_bytes()


@pytest.mark.spec("3.6", "9.3")
async def test_without_token_billing_no_key_is_made(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        answer = await client.post("/api/keys", json={"name": "ci"})
        assert (answer.status_code, answer.json()["code"]) == (402, "PAYMENT_REQUIRED")
        assert (await client.get("/api/keys")).json() == []


PAST = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()  # noqa: TID251 - the facade's clock


@pytest.mark.spec("9.3", "12.2")
@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": None}, "name"),
        ({"name": ""}, "name"),
        ({"name": "a/b"}, "name"),
        ({"name": "naïve"}, "name"),
        ({"name": "a" * 129}, "name"),
        ({"name": "line\n"}, "name"),
        ({"name": 5}, "name"),
        ({"expires_at": "tomorrow"}, "expires_at"),
        ({"expires_at": "2099-01-01T00:00:00"}, "expires_at"),
        ({"expires_at": "2099-13-01T00:00:00Z"}, "expires_at"),
        ({"expires_at": 4102444800}, "expires_at"),
        ({"expires_at": PAST}, "expires_at"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_tokens": 2**53}, "max_tokens"),
        ({"metadata": []}, "metadata"),
        ({"metadata": {"a": math.nan}}, "metadata"),
        ({"metadata": {"a": "é" * 2560}}, "metadata"),
        ({"owner": "me"}, "owner"),
    ],
)
async def test_a_body_that_breaks_a_rule_names_the_field(
    facade: Facade, paying: FacadeInstallation, change: dict[str, Any], field: str
) -> None:
    async with facade.client(paying.key) as client:
        await made(client, name="seen as paying")
        # The client's own writer refuses NaN.
        content = json.dumps({"name": "ci", **change})
        answer = await client.post(
            "/api/keys", content=content, headers={"content-type": "application/json"}
        )
        assert answer.status_code == 400, answer.text
        assert answer.json()["code"] == "BAD_REQUEST"
        assert [detail["field"] for detail in answer.json()["details"]] == [field]
        assert len((await client.get("/api/keys")).json()) == 1


@pytest.mark.spec("12.3", "25.2")
async def test_metadata_may_have_exactly_its_bound(
    facade: Facade, paying: FacadeInstallation
) -> None:
    filling = {"a": "é" * ((5120 - len('{"a":""}')) // 2)}
    async with facade.client(paying.key) as client:
        assert (await made(client, metadata=filling))["metadata"] == filling


@pytest.mark.spec("24.8")
async def test_keys_may_have_one_name(facade: Facade, paying: FacadeInstallation) -> None:
    """As back ends mint them: again at a renewal, and twice when two mints race."""
    async with facade.client(paying.key) as client:
        first = await made(client, name="one")
        other = await made(client, name="two")
        racing = await asyncio.gather(
            *(client.post("/api/keys", json={"name": "one"}) for _ in range(4))
        )
        assert {each.status_code for each in racing} == {200}
        keys = [first["key"], *(each.json()["key"] for each in racing)]
        assert len(set(keys)) == 5
        rename = {"key": other["key"], "name": "one"}
        assert (await client.post("/api/keys/update", json=rename)).status_code == 200
        pages: list[int] = []
        page = await client.get("/api/keys?limit=2")
        pages += [each["id"] for each in page.json()]
        while "next" in page.links:
            page = await client.get(page.links["next"]["url"])
            pages += [each["id"] for each in page.json()]
        listed = (await client.get("/api/keys")).json()
        assert [each["name"] for each in listed] == ["one"] * 6
        assert pages == [each["id"] for each in listed]
        # The losing side of a race is deleted by its value, and only that one.
        assert (await client.delete(f"/api/keys/{keys[1]}")).status_code == 200
        left = {each["key"] for each in (await client.get("/api/keys")).json()}
        assert left == {*keys, other["key"]} - {keys[1]}


@pytest.mark.spec("2.8", "9.2", "9.6")
async def test_another_organization_and_admin_keys_are_not_reached(
    facade: Facade, paying: FacadeInstallation, other_world: FacadeInstallation
) -> None:
    async with facade.client(paying.key) as client, facade.client(other_world.key) as other:
        record = await made(client)
        assert (await other.get("/api/keys")).json() == []
        for value in (record["key"], other_world.key):
            update = {"key": value, "name": "mine"}
            assert (await other.post("/api/keys/update", json=update)).status_code == 404
            assert (await other.delete(f"/api/keys/{value}")).status_code == 404
        assert (await client.get("/api/keys")).json() == [record]
        refused = await client.get(
            "/api/keys", headers={"Authorization": f"Bearer {record['key']}"}
        )
        assert refused.status_code == 401


async def test_commands_list_disable_and_enable_keys(
    facade: Facade, paying: FacadeInstallation
) -> None:
    config = ("--config", str(paying.settings))
    async with facade.client(paying.key) as client:
        record = await made(client, name="switched")
        listed = run_command("key", "list", "--organization", paying.organization, *config).stdout
        number = listed.split("\t")[0]
        assert "switched" in listed
        assert record["key"] not in listed
        run_command("key", "disable", number, *config)
        assert (await client.get("/api/keys")).json()[0]["disabled"] is True
        run_command("key", "enable", number, *config)
        assert (await client.get("/api/keys")).json()[0]["disabled"] is False
    unknown = run_command("key", "disable", "999999", *config, check=False)
    assert unknown.returncode == 1
    assert "cloister key list" in unknown.stderr


async def test_the_sealing_key_changes_beside_a_running_facade(
    facade: Facade, paying: FacadeInstallation
) -> None:
    config = ("--config", str(paying.settings))
    async with facade.client(paying.key) as client:
        before = await made(client, name="before")
        early = run_command("ledger", "rotate-key", "--finish", *config, check=False)
        assert "nothing to finish" in early.stderr
        run_command("ledger", "rotate-key", *config)

        async def readable() -> bool:
            return (await client.get("/api/keys")).status_code == 200

        await until(readable)
        during = await made(client, name="during")
        run_command("ledger", "rotate-key", *config)
        run_command("ledger", "rotate-key", "--finish", *config)

        async def complete() -> bool:
            answer = await client.get("/api/keys")
            return answer.status_code == 200 and answer.json() == [before, during]

        await until(complete)
