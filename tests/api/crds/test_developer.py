"""What a developer with kubectl can do in an organization: deploy, and delete nothing."""

import pytest

from tests.api.crds.test_tenant import (
    CORE,
    FORBIDDEN,
    OURS,
    People,
    assert_refused,
    container,
    core,
    ours,
    people,
)

__all__ = ["people"]

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.spec("30.4")
async def test_a_developer_deploys_and_deletes_nothing(people: People) -> None:
    developer, path = people.developer, f"{OURS}/containers"
    assert (await developer.post(path, container("dev"))).accepted
    assert (await developer.patch(f"{path}/dev", {"spec": {"state": "Stopped"}})).accepted
    assert (await developer.delete(f"{path}/dev")).status == FORBIDDEN
    heir = container("heir")
    heir["spec"]["replaces"] = "dev"
    assert_refused(await developer.post(path, heir), "you may not delete it")
    assert (await people.tenant.post(path, heir)).accepted
    edited = await developer.patch(f"{path}/heir", {"spec": {"tag": "v1.1.0"}})
    assert edited.accepted, edited.message
    assert (await developer.get(f"{OURS}/secrets")).accepted
    value = core("Secret", "v1", "mine", stringData={"value": "1"})
    for refused in (
        await developer.get(f"{CORE}/secrets"),
        await developer.post(f"{CORE}/secrets", value),
        await developer.post(f"{OURS}/domains", ours("Domain", "app", {"domain": "a.example.com"})),
    ):
        assert refused.status == FORBIDDEN
    for name in ("heir", "dev"):
        assert (await people.tenant.delete(f"{path}/{name}")).accepted
