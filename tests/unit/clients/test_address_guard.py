"""The guard: which addresses are public, and that the checked one is called."""

import asyncio
import ipaddress
import socket
import threading

import httpx
import pytest

from cloister_clients.address_guard import (
    AddressRefused,
    Guard,
    GuardedBackend,
    HostUnknown,
    host_port,
    is_public,
    named,
    system_resolver,
)
from cloister_clients.outbound import guarded_client, trust
from tests.support.stand_ins.http_server import Reply, Request, serve


@pytest.mark.parametrize(
    "text",
    [
        "8.8.8.8", "1.1.1.1", "140.82.121.4", "172.32.0.1", "100.128.0.1", "2606:4700::1111",
        "64:ff9b::8.8.8.8", "::ffff:8.8.8.8", "2002:808:808::1",
    ],
)  # fmt: skip
def test_addresses_of_the_internet_are_public(text: str) -> None:
    assert is_public(ipaddress.ip_address(text))


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1", "127.255.255.254", "0.0.0.0", "10.0.0.1", "172.16.0.1", "172.31.255.255",
        "192.168.1.1", "169.254.169.254", "169.254.169.253", "100.64.0.1", "100.100.100.200",
        "192.0.0.192", "192.0.2.1", "198.18.0.1", "203.0.113.1", "224.0.0.1", "239.255.255.250",
        "240.0.0.1", "255.255.255.255", "168.63.129.16", "::", "::1", "fe80::1", "fc00::1",
        "fd00:ec2::254", "fec0::1", "ff02::1", "2001:db8::1", "::ffff:10.0.0.1",
        "::ffff:169.254.169.254", "64:ff9b::10.0.0.1", "64:ff9b::a9fe:a9fe", "2002:a00:1::1",
        "2001:0:a9fe:a9fe:0:0:f5ff:fffe", "64:ff9b:1::1", "3fff::1", "5f00::1", "4000::1",
    ],
)  # fmt: skip
def test_addresses_of_a_network_are_not_public(text: str) -> None:
    assert not is_public(ipaddress.ip_address(text))


def resolving(*answers: tuple[str, ...]) -> Guard:
    """Build a guard whose name server gives these answers, one after the other."""
    left = list(answers)

    async def resolver(host: str) -> tuple[str, ...]:
        return left.pop(0)

    return Guard(resolver=resolver)


async def test_a_public_host_resolves_to_its_addresses() -> None:
    guard = resolving(("8.8.8.8", "2606:4700::1111"))
    assert await guard.addresses("example.test", 443) == ("8.8.8.8", "2606:4700::1111")


@pytest.mark.attack("redirect-inside")
@pytest.mark.parametrize(
    "answer", [("10.0.0.1",), ("8.8.8.8", "10.0.0.1"), ("::1",), ("fe80::1%eth0",)]
)
async def test_one_private_address_refuses_the_host(answer: tuple[str, ...]) -> None:
    with pytest.raises(AddressRefused, match=r"example\.test leads to .* setting allowPrivate"):
        await resolving(answer).addresses("example.test", 443)


@pytest.mark.parametrize("literal", ["127.0.0.1", "169.254.169.254", "::1"])
async def test_a_literal_address_is_checked_without_a_look_up(literal: str) -> None:
    with pytest.raises(AddressRefused, match="not a public address"):
        await resolving().addresses(literal, 80)


@pytest.mark.parametrize("literal", ["2130706433", "0x7f.1", "127.1", "0177.0.0.1"])
async def test_other_spellings_of_loopback_are_refused(literal: str) -> None:
    """The system's resolver reads them; what it answers is checked."""
    with pytest.raises((AddressRefused, HostUnknown)):
        await Guard().addresses(literal, 80)


async def test_a_named_host_may_be_private_on_its_port_only() -> None:
    async def resolver(host: str) -> tuple[str, ...]:
        return ("10.0.0.1",)

    guard = Guard(allow_private=frozenset({"git.example.test:8443"}), resolver=resolver)
    assert await guard.addresses("GIT.example.test", 8443) == ("10.0.0.1",)
    with pytest.raises(AddressRefused):
        await guard.addresses("git.example.test", 443)
    with pytest.raises(AddressRefused):
        await guard.addresses("evil.git.example.test", 8443)


async def test_a_host_without_address_is_unknown_and_not_refused() -> None:
    with pytest.raises(HostUnknown, match="has no address"):
        await resolving(()).addresses("example.test", 443)

    async def failing(host: str) -> tuple[str, ...]:
        raise OSError("no answer")

    with pytest.raises(HostUnknown, match="could not be resolved: no answer"):
        await Guard(resolver=failing).addresses("example.test", 443)


async def test_the_system_knows_its_own_name() -> None:
    assert "127.0.0.1" in await system_resolver("localhost")


def test_names_match_exactly() -> None:
    assert named("a.test", 80, ["a.test"])
    assert named("A.test", 80, ["a.TEST:80"])
    assert not named("a.test", 81, ["a.test:80"])
    assert not named("b.a.test", 80, ["a.test", "*.a.test"])
    assert named("::1", 5000, ["[::1]:5000"])
    assert named("::1", 5000, ["::1"])


def test_the_port_of_an_address_is_its_schemes_own_unless_written() -> None:
    assert host_port(httpx.URL("https://A.test/x")) == ("a.test", 443)
    assert host_port(httpx.URL("http://a.test")) == ("a.test", 80)
    assert host_port(httpx.URL("ssh://git@a.test")) == ("a.test", 22)
    assert host_port(httpx.URL("https://[::1]:8443")) == ("::1", 8443)


@pytest.mark.parametrize("address", ["http://a.test", "ftp://a.test", "file:///etc/passwd"])
def test_without_tls_only_named_hosts_are_called(address: str) -> None:
    with pytest.raises(AddressRefused, match="setting plainHttp"):
        Guard().check_scheme(httpx.URL(address))
    Guard().check_scheme(httpx.URL("https://a.test"))
    Guard(plain_http=frozenset({"a.test"})).check_scheme(httpx.URL("http://a.test"))


def client_of(guard: Guard) -> httpx.AsyncClient:
    """Build a client that this guard watches over."""
    return guarded_client(guard, context=trust(None), timeout_seconds=5, user_agent="test")


@pytest.mark.attack("changing-address")
async def test_a_name_that_changes_its_address_gains_nothing() -> None:
    """The name is looked up once for a connection, and the checked address is called."""
    with serve(lambda request: Reply(200, b"inside")) as inside:
        calls: list[str] = []

        async def rebinding(host: str) -> tuple[str, ...]:
            calls.append(host)
            return ("127.0.0.1",) if len(calls) > 1 else ("203.0.113.1", "127.0.0.1")

        plain = frozenset({"evil.test"})
        async with client_of(Guard(plain_http=plain, resolver=rebinding)) as client:
            for _ in range(2):
                with pytest.raises(AddressRefused):
                    await client.get(f"http://evil.test:{inside.port}/")
        assert calls == ["evil.test", "evil.test"]
        assert inside.requests == []


async def test_the_first_address_that_accepts_is_used() -> None:
    async def resolver(host: str) -> tuple[str, ...]:
        return ("127.0.0.2", "127.0.0.1")

    with serve(lambda request: Reply(200, b"here")) as server:
        names = frozenset({"a.test"})
        guard = Guard(allow_private=names, plain_http=names, resolver=resolver)
        async with client_of(guard) as client:
            answer = await client.get(f"http://a.test:{server.port}/")
        assert answer.content == b"here"
        assert server.requests[0].headers["host"] == f"a.test:{server.port}"


@pytest.mark.attack("redirect-inside")
async def test_a_redirect_is_checked_like_a_first_request() -> None:
    def answer(request: Request) -> Reply:
        return Reply(302, headers={"Location": request.parts[0].replace("+", "/")})

    with serve(lambda request: Reply(200)) as inside, serve(answer) as server:
        hosts = frozenset({server.host})
        async with client_of(Guard(allow_private=hosts, plain_http=hosts)) as client:
            for target in (f"http:++{inside.host}+", f"https:++{inside.host}+", "ftp:++a.test+"):
                with pytest.raises(AddressRefused):
                    await client.get(f"{server.base}/{target}")
        assert inside.requests == []


async def test_sockets_of_this_machine_are_not_called() -> None:
    with pytest.raises(AddressRefused, match="is not called"):
        await GuardedBackend(Guard()).connect_unix_socket("/run/docker.sock")


async def test_an_unknown_host_is_an_error_of_the_connection() -> None:
    async with client_of(resolving(())) as client:
        with pytest.raises(httpx.ConnectError, match="has no address"):
            await client.get("https://example.test/")


async def test_a_look_up_that_does_not_end_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cloister_clients.address_guard.RESOLVE_SECONDS", 0.05)

    async def stuck(host: str) -> tuple[str, ...]:
        await asyncio.Event().wait()
        return ()

    with pytest.raises(HostUnknown, match="could not be resolved"):
        await Guard(resolver=stuck).addresses("example.test", 443)


async def test_names_whose_server_is_silent_take_no_thread_from_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    silent = threading.Event()

    def getaddrinfo(*_: object, **__: object) -> list[object]:
        silent.wait(30)
        return []

    # A real name server that is silent would hold the test's threads for as long as it says.
    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    names = [asyncio.create_task(system_resolver(f"n{number}.example")) for number in range(60)]
    await asyncio.sleep(0)  # all of them begin
    try:
        async with asyncio.timeout(25):
            assert await asyncio.to_thread(lambda: "parsed") == "parsed"
    finally:
        silent.set()
        await asyncio.gather(*names)
