"""GET /api/releases, from a real git repository."""

from cloister_api.schemas.container_responses import ReleaseResponse
from tests.support.programs.facade import Facade, FacadeInstallation


async def test_the_releases_of_a_repository_are_listed_newest_first(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        answer = await client.get("/api/releases", params={"repo": world.repo})
        assert answer.status_code == 200, answer.text
        listed = answer.json()
        assert {each["tag"] for each in listed} >= {"v1.0.0", "v1.1.0"}
        assert set(listed[0]) == set(ReleaseResponse.model_fields)
        times = [each["published_at"] for each in listed]
        assert times == sorted(times, reverse=True)
        one = await client.get("/api/releases", params={"repo": world.repo, "limit": 1})
        assert one.json() == listed[:1]
        # What is listed is what a validate finds.
        release = {"repo": world.repo, "tag": listed[0]["tag"]}
        verdict = await client.post("/api/containers/validate", json=release)
        assert verdict.json()["valid"], verdict.text


async def test_a_repository_that_is_not_there_is_named(
    facade: Facade, world: FacadeInstallation
) -> None:
    async with facade.client(world.key) as client:
        for repo, code in (
            (f"{world.organization}/nothing", "RepositoryNotFound"),
            ("../etc", "NameInvalid"),
        ):
            answer = await client.get("/api/releases", params={"repo": repo})
            assert answer.status_code == 400, answer.text
            assert [(each["field"], each["code"]) for each in answer.json()["details"]] == [
                ("repo", code)
            ]
        for limit in ("0", "101", "many"):
            answer = await client.get("/api/releases", params={"repo": world.repo, "limit": limit})
            assert answer.status_code == 400, answer.text
            assert answer.json()["details"][0]["field"] == "limit"
        assert (await client.get("/api/releases")).json()["details"][0]["field"] == "repo"
