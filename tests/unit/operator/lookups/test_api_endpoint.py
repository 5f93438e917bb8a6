"""The API endpoint: its addresses, and whether it can be reached."""

import asyncio

from cloister_operator.lookups.cluster import ApiEndpointResolver


def reader(url: str) -> ApiEndpointResolver:
    found = ApiEndpointResolver.of(url)
    assert found is not None
    return found


async def test_an_api_that_accepts_connections_is_reachable() -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        place = reader(f"http://127.0.0.1:{port}")
        assert await place.unreachable_reason() == ""
        assert (await place.read()).addresses == ("127.0.0.1",)
    assert await place.unreachable_reason() == "", "it is not tried again at once"
    said = await reader(f"http://127.0.0.1:{port}").unreachable_reason()
    assert f"Nobody answers at apiAddress http://127.0.0.1:{port} (127.0.0.1: " in said
    assert said.endswith("or correct apiAddress in the operator's settings.")


async def test_an_api_name_without_an_address_is_reported() -> None:
    place = reader("https://api.invalid")
    assert (await place.read()).addresses == ()
    said = await place.unreachable_reason()
    assert "api.invalid has no IPv4 address" in said
    assert "Correct apiAddress" in said


def test_without_the_setting_there_is_no_api_endpoint() -> None:
    assert ApiEndpointResolver.of(None) is None
