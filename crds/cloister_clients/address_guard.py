"""The private-address guard: no tenant makes Cloister call inside the cluster.

Repositories and registries are named by tenants, so whatever connects to them resolves the
host itself, refuses addresses that are not public, and connects to the very address that was
checked (a second lookup could return another one). The providers of `sources` and the client of
`registry` use it; it knows neither of them.
"""

# ruff: noqa: N818 - the names say what is wrong; they are the words of conditions too

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

import httpcore
import httpx
from typing_extensions import override

from cloister_crds.blocked_ranges import BLOCKED_IPV4, BLOCKED_IPV6, GLOBAL_UNICAST

__all__ = [
    "Address",
    "AddressRefused",
    "Guard",
    "GuardedTransport",
    "HostUnknown",
    "Resolver",
    "host_port",
    "is_public",
    "named",
    "system_resolver",
]

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
"""An address of either family."""

Resolver = Callable[[str], Awaitable[tuple[str, ...]]]
"""Returns the addresses of a host name, in order of preference; raises ``OSError``."""

RESOLVE_SECONDS = 10.0
"""How long a look-up may take, in seconds."""

NEXT_SECONDS = 3.0
"""After how long the next address of a host is tried, in seconds: one family may lead nowhere."""

NAT64 = ipaddress.ip_network("64:ff9b::/96")
"""IPv4 addresses in IPv6 form (RFC 6052, section 2.1)."""


class AddressRefused(Exception):
    """The guard keeps a connection from being made.

    Waiting does not help: the host must be named in a setting.
    """


class HostUnknown(Exception):
    """A host name could not be resolved; a later look-up may succeed."""


def host_port(url: httpx.URL) -> tuple[str, int]:
    """Return where an address leads to.

    Returns
    -------
    tuple
        Host in lower case and the port, the scheme's own where none is written.
    """
    default = {"http": 80, "https": 443, "ssh": 22}.get(url.scheme, 0)
    return url.host.lower(), url.port or default


def named(host: str, port: int, names: Iterable[str]) -> bool:
    """Return whether a setting names this host.

    Parameters
    ----------
    host
        Host name or address, without brackets.
    names
        Entries of the form ``host`` (each port) or ``host:port`` (only this port); an IPv6
        address with a port is in brackets.
    """
    lowered = host.lower()
    bracketed = f"[{lowered}]" if ":" in lowered else lowered
    wanted = {lowered, bracketed, f"{bracketed}:{port}"}
    return any(name.lower() in wanted for name in names)


def _embedded(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address leads to, else the address itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if address in NAT64:
        return ipaddress.IPv4Address(address.packed[-4:])
    return address


def is_public(address: Address) -> bool:
    """Return whether an address belongs to the public internet.

    Not public are the ranges of `cloister_crds.blocked_ranges`. IPv6 forms that carry an IPv4
    address count as that address.
    """
    target = _embedded(address)
    if isinstance(target, ipaddress.IPv4Address):
        return all(target not in network for network in BLOCKED_IPV4)
    return target in GLOBAL_UNICAST and all(target not in network for network in BLOCKED_IPV6)


_RESOLVING = ThreadPoolExecutor(64, thread_name_prefix="resolve")
"""Threads that resolve names. The system's resolver waits for a name server that does not respond
long after its caller gave up; in threads of its own it takes none from the rest of the program."""


async def system_resolver(host: str) -> tuple[str, ...]:
    """Resolve by the system's own means.

    Raises
    ------
    OSError
        When the name has no address or no name server responded.
    """
    loop = asyncio.get_running_loop()
    lookup = partial(socket.getaddrinfo, host, None, type=socket.SOCK_STREAM)
    found = await loop.run_in_executor(_RESOLVING, lookup)
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


@dataclass(frozen=True, slots=True)
class Guard:
    """Which hosts may be called."""

    allow_private: frozenset[str] = frozenset()
    """Hosts (``host`` or ``host:port``) whose addresses may be private; empty: none."""
    plain_http: frozenset[str] = frozenset()
    """Hosts (``host`` or ``host:port``) that may be called without TLS; empty: none."""
    resolver: Resolver = field(default=system_resolver)
    """How names become addresses."""

    async def addresses(self, host: str, port: int) -> tuple[str, ...]:
        """Resolve a host and check each of its addresses.

        Returns
        -------
        tuple
            Addresses that may be connected to, at least one.

        Raises
        ------
        AddressRefused
            When one of the addresses is not public and the host is not named. One bad address
            among good ones refuses the host, since nobody has a good reason for such a mix.
        HostUnknown
            When the name has no address, or the look-up failed or took too long.
        """
        try:
            async with asyncio.timeout(RESOLVE_SECONDS):
                found = await self._resolve(host)
        except (OSError, UnicodeError) as error:
            raise HostUnknown(f"the host {host} could not be resolved: {error}") from error
        if not found:
            raise HostUnknown(f"the host {host} has no address")
        # A host that the administrator allows may have any address.
        if named(host, port, self.allow_private):
            return found
        # Every address must be public: the connection may use any of them.
        for text in found:
            if not is_public(ipaddress.ip_address(text.partition("%")[0])):
                what = "is" if text == host else f"leads to {text}, which is"
                raise AddressRefused(
                    f"{host} {what} not a public address; "
                    "an administrator can allow this host in the setting allowPrivate"
                )
        return found

    async def _resolve(self, host: str) -> tuple[str, ...]:
        """Return an address literal as it is, a name through the resolver."""
        try:
            return (str(ipaddress.ip_address(host)),)
        except ValueError:
            return await self.resolver(host)

    def check_scheme(self, url: httpx.URL) -> None:
        """Check that a request is encrypted, or its host named.

        Raises
        ------
        AddressRefused
            When the scheme is neither https nor, for a named host, http.
        """
        host, port = host_port(url)
        if url.scheme == "https":
            return
        if url.scheme == "http" and named(host, port, self.plain_http):
            return
        raise AddressRefused(
            f"{url.scheme}://{host}:{port} is not called without TLS; "
            "an administrator can allow plain HTTP for this host in the setting plainHttp"
        )


class GuardedBackend(httpcore.AsyncNetworkBackend):
    """Opens connections to checked addresses only."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._inner = httpcore.AnyIOBackend()

    @override
    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Resolve, check, and connect to the first address that accepts.

        Raises
        ------
        AddressRefused
            When the guard refuses the host.
        httpcore.ConnectError
            When the host has no address or no address accepts.
        """
        try:
            addresses = await self._guard.addresses(host, port)
        except HostUnknown as error:
            late = isinstance(error.__cause__, TimeoutError)
            raise (httpcore.ConnectTimeout if late else httpcore.ConnectError)(
                str(error)
            ) from error
        last: Exception | None = None
        for number, address in enumerate(addresses, 1):
            wait = timeout
            # Only the last address gets the whole timeout, so that a dead one costs little.
            if number < len(addresses) and (timeout is None or timeout > NEXT_SECONDS):
                wait = NEXT_SECONDS
            try:
                return await self._inner.connect_tcp(
                    address, port, wait, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                last = error
        assert last is not None
        raise last

    @override
    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Refuse: nothing outside speaks through a socket of this machine.

        Raises
        ------
        AddressRefused
            Always.
        """
        raise AddressRefused(f"the socket {path} is not called")

    @override
    async def sleep(self, seconds: float) -> None:
        """Wait, as httpcore does between its own attempts."""
        await self._inner.sleep(seconds)


class GuardedTransport(httpx.AsyncHTTPTransport):
    """The transport of httpx on guarded connections; redirects pass through it too."""

    def __init__(self, guard: Guard, context: ssl.SSLContext) -> None:
        super().__init__(verify=context, trust_env=False)
        self._guard = guard
        # httpx has no argument for the network backend; its pool is replaced before first use.
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=context,
            max_connections=128,
            max_keepalive_connections=8,
            keepalive_expiry=30.0,
            network_backend=GuardedBackend(guard),
        )

    @override
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request, or one step of a redirect.

        Raises
        ------
        AddressRefused
            When the guard refuses the scheme or the host.
        """
        self._guard.check_scheme(request.url)
        return await super().handle_async_request(request)
