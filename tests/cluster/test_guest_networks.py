"""The packet matrix in real Pods: generated files, deployed by the operator, every pair tried.

``CLOISTER_MATRIX_FILES`` is the number of files (3), ``CLOISTER_MATRIX_SEED`` the first seed. The
expected result comes from `tests.support.builders.network_matrix`; an ordinary Pod proves that the
targets respond at all, so that a blocked path is blocked by the enclave.
"""

import json
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from dev.cluster import Cluster
from dev.cluster.guest import guest_binary
from dev.cluster.images import push
from dev.cluster.layout import Form
from tests.support.builders.network_matrix import ALLOWED_NAME, GeneratedFile, generate
from tests.support.programs.guest_test_program import (
    EnclaveContainers,
    container_file,
    guest_test_image,
)
from tests.support.programs.operator import Installation, operator_lock
from tests.support.programs.web_service import PageServices
from tests.support.stand_ins.internet import (
    ALLOWED,
    IPV6,
    METADATA,
    OTHERS,
    Internet,
    emulated_internet,
)
from tests.support.stand_ins.ipv6 import (
    connect_pod,
    lay_through,
    process_of,
    run_in,
    without_filter,
)
from tests.support.waiting import until_sync

FILES = int(os.environ.get("CLOISTER_MATRIX_FILES", "3"))
SEED = int(os.environ.get("CLOISTER_MATRIX_SEED", "20261120"))
logger = logging.getLogger(__name__)

SHIM_PORT = 8443
OPEN, SHUT = 60_000, 1_000
"""Timeouts in milliseconds for a path that must be open, and for one that must be blocked."""

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]


@dataclass(frozen=True, slots=True)
class Path:
    """A target and whether it may be reached."""

    what: str
    network: str
    address: str
    open: bool = False
    connect: bool = False

    def wire(self) -> dict[str, Any]:
        """Serialize it for the probing program."""
        return {
            "Network": self.network,
            "Address": self.address,
            "Milliseconds": OPEN if self.open else SHUT,
            "Connect": self.connect,
        }


@dataclass(frozen=True, slots=True)
class NetworkInstallation:
    """A cluster with an emulated internet, an operator and an ordinary Pod."""

    cluster: Cluster
    installation: Installation
    image: str
    plain: str
    """Address of the ordinary Pod."""
    internet: Internet

    @property
    def outside(self) -> tuple[Path, ...]:
        """Return the targets that an ordinary Pod reaches and no container may reach."""
        node = self.cluster.record.node_address
        service = self.cluster.record.service_range.rsplit(".", 1)[0] + ".1"
        server = self.cluster.kubectl(
            *("get", "endpointslices", "-n", "default", "-l"),
            "kubernetes.io/service-name=kubernetes",
            "-ojsonpath={.items[0].endpoints[0].addresses[0]}:{.items[0].ports[0].port}",
        )
        return (
            Path("the node", "tcp4", f"{node}:80"),
            Path("the node", "udp4", f"{node}:80"),
            Path("the metadata address", "tcp4", f"{METADATA}:80"),
            Path("another Pod", "tcp4", f"{self.plain}:8080"),
            Path("another Pod", "udp4", f"{self.plain}:8080"),
            Path("the API server", "tcp4", server, connect=True),
            Path("a Service", "tcp4", f"{service}:443", connect=True),
            Path("the kubelet", "tcp4", f"{node}:10250", connect=True),
        )

    def from_plain(self, paths: Sequence[Path]) -> list[bool]:
        """Probe targets from the ordinary Pod."""
        order = json.dumps([each.wire() for each in paths])
        where = ("-n", self.installation.system, "plain")
        responses: list[bool] = json.loads(
            self.cluster.kubectl("exec", *where, "--", "/bin/testprogram", "reach", order)
        )
        return responses


@pytest.fixture(scope="module")
def world(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[NetworkInstallation]:
    if cluster.form is not Form.NODE:
        pytest.skip("the emulated internet needs the node's network namespace on this machine")
    folder = tmp_path_factory.mktemp("matrix")
    image = push(guest_test_image(), cluster.registry, "tests/guest-testprogram")
    with operator_lock(cluster.name), emulated_internet(cluster, folder) as internet:
        installed = _installed(cluster, folder, internet)
        try:
            yield NetworkInstallation(
                cluster, installed, image, _plain_pod(installed, image), internet
            )
        finally:
            installed.end()


def _installed(cluster: Cluster, folder: Any, internet: Internet) -> Installation:
    settings = PageServices(cluster).settings | {
        "claimAgeSeconds": 1,
        "enclaveNetwork": {"resolvers": [internet.resolver]},
    }
    installed = Installation(cluster, folder, settings)
    installed.prepare()
    installed.create_organization()
    installed.operator().wait_until_it_leads()
    return installed


def _plain_pod(installed: Installation, image: str) -> str:
    """Start an ordinary Pod with an echo server, and return its address."""
    container = {"name": "main", "image": image, "args": ["serve", "", "8080"]}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 1}
    metadata = {"name": "plain", "namespace": installed.system}
    installed.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    installed.kubectl(
        *("wait", "pod/plain", "-n", installed.system, "--for=condition=Ready", "--timeout=120s")
    )
    return installed.kubectl(
        "get", "pod", "plain", "-n", installed.system, "-ojsonpath={.status.podIP}"
    )


def test_an_ordinary_pod_reaches_the_targets_that_enclaves_must_not(
    world: NetworkInstallation,
) -> None:
    public = [Path("the internet", "tcp4", f"{each}:80", open=True) for each in (ALLOWED, *OTHERS)]
    paths = [*public, *(Path(e.what, e.network, e.address, True, e.connect) for e in world.outside)]
    responses = world.from_plain(paths)
    assert [each.what for each, seen in zip(paths, responses, strict=True) if not seen] == []


@pytest.mark.spec("44.4")
@pytest.mark.attack("ipv6")
def test_no_packet_of_an_enclave_leaves_over_ipv6(world: NetworkInstallation) -> None:
    """Two Pods get an IPv6 route; only the enclave's packet filter blocks its own."""
    wanted = [Path("IPv6", each, f"[{IPV6}]:80", open=True) for each in ("tcp6", "udp6")]
    shut = [replace(each, open=False) for each in wanted]
    words = ("get", "pod", "plain", "-n", world.installation.system, "-ojson")
    plain = process_of(json.loads(world.cluster.kubectl(*words)), b"/bin/testprogram", b"serve")
    connect_pod(world.internet, plain, 2)
    assert world.from_plain(wanted) == [True, True], "the emulated internet answers over IPv6"
    one = {"name": "one", "image": world.image, "command": ["serve", "", "8080"]}
    file = container_file([one | {"networks": ["out"]}], networks={"out": {"egress": "open"}})
    world.installation.repository("acme/six").release("v1", file)
    world.installation.create_container("six", repo="acme/six", tag="v1")
    enclave = world.installation.wait_for("six", "Ready", within=300).status.active_enclave
    pod = EnclaveContainers(world.installation, enclave).pod()
    net, container = (
        process_of(pod, b"/guest", b"net"),
        process_of(pod, b"/bin/testprogram", b"serve"),
    )
    connect_pod(world.internet, net, 3)
    lay_through(net, container)
    public = Path("the internet", "tcp4", f"{ALLOWED}:80", open=True)
    assert _reached(container, [public, *shut]) == [True, False, False]
    for user in (0, 65532, 12345):
        assert _reached(net, shut, str(user)) == [False, False], f"user {user} beside the filter"
    without_filter(net)
    assert _reached(container, wanted) == [True, True], "nothing but the filter was in the way"
    world.installation.kubectl(
        "delete", "ctr", "six", "-n", world.installation.namespace, "--wait=false"
    )


def _reached(process: int, paths: Sequence[Path], *user: str) -> list[bool]:
    """Probe targets in the network namespace of a process, as a user of this machine."""
    order = json.dumps([each.wire() for each in paths])
    program = str(guest_binary("testprogram", "./testprogram"))
    responses: list[bool] = json.loads(run_in(process, program, "reach", order, *user))
    return responses


@pytest.mark.spec("44.5", "44.6")
@pytest.mark.attack("metadata-services")
@pytest.mark.parametrize("seed", range(SEED, SEED + FILES))
def test_packets_reach_exactly_the_targets_that_the_file_allows(
    world: NetworkInstallation, seed: int
) -> None:
    file = generate(seed)
    logger.info("seed %d: %s", seed, file)
    name = f"matrix-{seed}"
    text = container_file(list(file.entries(world.image)), **file.sections())
    world.installation.repository(f"acme/{name}").release("v1", text)
    world.installation.create_container(name, repo=f"acme/{name}", tag="v1")
    try:
        container = world.installation.wait_for(name, "Ready", within=300)
        inside = EnclaveContainers(world.installation, container.status.active_enclave)
        wrong = list(_unexpected(world, file, inside))
    finally:
        world.installation.kubectl(
            *("delete", "containers.cloister.dev", name, "--wait=false"),
            *("-n", world.installation.namespace),
        )
    assert wrong == [], text.decode()


def _unexpected(
    world: NetworkInstallation, file: GeneratedFile, inside: EnclaveContainers
) -> Iterator[str]:
    """Yield every deviation from the file."""
    pod = inside.pod()["status"]["podIP"]
    addresses = {name: _addresses(inside, name) for name in file.containers}
    tried = 0
    for source in file.containers:
        names = _names(file, inside, source)
        yield from _wrong_names(file, source, names, addresses)
        paths = [*_paths(file, source, names, addresses), *_own_pod(pod, addresses[source])]
        paths += _public(file, source)
        paths += world.outside
        order = json.dumps([each.wire() for each in paths])
        responses = json.loads(inside.run(source, "/bin/testprogram", "reach", order))
        for path, seen in zip(paths, responses, strict=True):
            if seen != path.open:
                yield f"{source} -> {path.what} {path.network} {path.address}: reached {seen}"
        tried += len(paths)
    inward = [
        Path("the shim", "tcp4", f"{pod}:{SHIM_PORT}", open=True, connect=True),
        Path("a port of a container", "tcp4", f"{pod}:8080", connect=True),
        Path("the name server", "tcp4", f"{pod}:53", connect=True),
    ]
    for path, seen in zip(inward, world.from_plain(inward), strict=True):
        if seen != path.open:
            yield f"another Pod -> {path.what} {path.address}: reached {seen}"
    logger.info("%d paths tried", tried + len(inward))


def _addresses(inside: EnclaveContainers, container: str) -> list[str]:
    """Return the IPv4 addresses of a container, except the loopback one."""
    lines = inside.run(container, "ip", "-o", "-4", "addr", "show").splitlines()
    found = [line.split()[3].partition("/")[0] for line in lines]
    return [each for each in found if not each.startswith("127.")]


def _names(
    file: GeneratedFile, inside: EnclaveContainers, source: str
) -> dict[str, list[str] | None]:
    """Resolve every name; None = no response."""
    asked = (*file.containers, ALLOWED_NAME, "other.example", "rebind.example")
    asked += ("kubernetes.default.svc.cluster.local",)

    def answered() -> dict[str, Any] | None:
        found: dict[str, Any] = json.loads(
            inside.run(source, "/bin/testprogram", "lookups", *asked)
        )
        # An allowlist takes effect a moment after the start.
        waits = file.may_reach_public(source, allowed=True) and not found[ALLOWED_NAME]
        return None if waits else found

    found = until_sync(answered, every=1, what=f"names in {source}")
    assert found is not None
    return found


def _wrong_names(
    file: GeneratedFile,
    source: str,
    names: dict[str, list[str] | None],
    addresses: dict[str, list[str]],
) -> Iterator[str]:
    """Yield names that resolve but must not, or resolve wrongly."""
    if not file.has_names(source):
        yield from (f"{source}: {name} is answered" for name, found in names.items() if found)
        return
    for other in () if file.old else file.containers:
        found = names[other] or []
        shared = file.shared(source, other)
        if other != source and (len(found) != shared or not set(found) <= set(addresses[other])):
            yield f"{source}: {other} is {found}, {shared} networks are shared"
    for name, wanted in ((ALLOWED_NAME, ALLOWED), ("other.example", OTHERS[0])):
        may = file.may_reach_public(source, allowed=name == ALLOWED_NAME)
        if (names[name] or []) != ([wanted] if may else []):
            yield f"{source}: {name} is {names[name]}"
    for name in ("rebind.example", "kubernetes.default.svc.cluster.local"):
        if names[name]:
            yield f"{source}: {name} is {names[name]}"


def _paths(
    file: GeneratedFile,
    source: str,
    names: dict[str, list[str] | None],
    addresses: dict[str, list[str]],
) -> Iterator[Path]:
    """Yield the paths to containers: by the addresses of shared networks, and by all others."""
    for other in file.containers:
        port = file.port(other)
        for network in ("tcp4", "udp4"):
            own = other == source or file.old
            # Each container of a newer file listens on the same port of a loopback of its own.
            yield Path("the loopback", network, f"127.0.0.1:{port}", open=True)
            for address in addresses[other]:
                reached = own or address in (names[other] or ())
                yield Path(f"container {other}", network, f"{address}:{port}", open=reached)


def _own_pod(pod: str, addresses: list[str]) -> Iterator[Path]:
    """Yield the paths into the Pod's own namespace."""
    gateways = {f"{each.rsplit('.', 1)[0]}.1" for each in addresses} | {"172.31.255.1"}
    for address in sorted({pod, "169.254.20.53", *gateways}):
        for port in (SHIM_PORT, 8080, 22):
            yield Path("the Pod", "tcp4", f"{address}:{port}", connect=True)


def _public(file: GeneratedFile, source: str) -> Iterator[Path]:
    """Yield the paths to the internet."""
    for address in (ALLOWED, *OTHERS):
        may = file.may_reach_public(source, allowed=address == ALLOWED)
        for network in ("tcp4", "udp4"):
            for port in (80, 443):
                yield Path("the internet", network, f"{address}:{port}", open=may)
    yield Path("IPv6", "tcp6", f"[{IPV6}]:80", connect=True)
