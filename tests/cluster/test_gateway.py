"""Requests through a real SNI gateway that TLSRoutes configure, during updates.

The gateway is Envoy, with a stand-in controller that observes each change a second late, or the
real Envoy Gateway, which works while Cloister's admission policies do. Clients see the enclaves'
own certificates.
"""

import json
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import pytest

from dev.cluster import Cluster, KubectlError
from tests.support.clients.container_watch import watching
from tests.support.clients.gateway_clients import GatewayClient, KeepAliveClient
from tests.support.cluster.admission_policies import policies_in
from tests.support.cluster.gateway_crds import install_gateway_crds
from tests.support.programs.facade import run_command
from tests.support.programs.operator import CONTAINERS_DOMAIN, Installation, manifest, operator_lock
from tests.support.programs.web_service import PageServices, page_file
from tests.support.servers.envoy_gateway import EnvoyGateway, install_envoy_gateway
from tests.support.servers.gateway import RunningGateway, StandInGateway
from tests.support.servers.nameserver import NameServer, serve_zone
from tests.support.waiting import until_sync

REAL = os.environ.get("CLOISTER_TEST_GATEWAY", "stand-in") == "envoy-gateway"
"""Whether the controller is the real Envoy Gateway: ``make test-gateway``."""
pytestmark = [
    pytest.mark.node,
    pytest.mark.programs(*(("envoy-gateway", "helm") if REAL else ())),
]

UPDATES = int(os.environ.get("CLOISTER_GATEWAY_UPDATES", "3"))
"""Updates in a row; ``make test-gateway`` does ten."""
LAG = 1.0
"""Lag of the stand-in in seconds."""
DRAIN = 6
"""Seconds for which a replaced Pod drains: longer than a gateway on a busy machine lags."""
ZONE = "gateway.test"
CUSTOM = f"api.{ZONE}"


@pytest.fixture(scope="module")
def zone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NameServer]:
    with serve_zone(tmp_path_factory.mktemp("knot"), ZONE) as served:
        yield served


@pytest.fixture(scope="module")
def pages(cluster: Cluster) -> PageServices:
    return PageServices(cluster)


@pytest.fixture(scope="module")
def gateway_api(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Install the kinds of the Gateway API; the real controller comes with its own."""
    if REAL:
        with install_envoy_gateway(cluster, tmp_path_factory.mktemp("envoy-gateway")):
            yield
    else:
        install_gateway_crds(cluster)
        yield


@pytest.fixture(scope="module")
def installation(
    cluster: Cluster,
    gateway_api: None,
    pages: PageServices,
    zone: NameServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Installation]:
    folder = tmp_path_factory.mktemp("installation")
    (folder / "key").write_bytes(secrets.token_bytes(32))
    settings = {
        "claimAgeSeconds": 1,
        "drainSeconds": DRAIN,
        "gateway": {"name": "public", "listener": "tls"},
        "domains": {
            "target": "dns.example.test",
            "installationKeyFile": str(folder / "key"),
            "checkSeconds": 1,
            "graceSeconds": 3,
            "dns": {"resolvers": [zone.address], "allowPrivate": [zone.address]},
        },
    }
    with operator_lock(cluster.name), ExitStack() as policies:
        installed = Installation(cluster, folder, pages.settings | settings)
        try:
            installed.prepare()
            installed.create_organization()
            allow_domains(installed)
            if REAL:
                policies.enter_context(policies_at_work(installed))
            repository = installed.repository("acme/web")
            for number in range(UPDATES + 2):
                repository.release(f"v1.{number}.0", page_file(pages.web, f"page {number}"))
            installed.operator().wait_until_it_leads()
            yield installed
        finally:
            policies.close()
            installed.end()


@contextmanager
def policies_at_work(installation: Installation) -> Iterator[None]:
    """Have the admission policies, under which another product's controller works too."""
    text = policies_in(installation.system)
    pod = ("run", "probe", "--image=registry.example/probe", "--dry-run=server")

    def refused() -> bool:
        try:
            installation.kubectl(*pod, "-n", installation.namespace)
        except KubectlError as error:
            return "ValidatingAdmissionPolicy" in str(error)
        return False

    installation.kubectl("apply", "--server-side", "-f", "-", stdin=text)
    try:
        until_sync(refused, what="the admission policies work")
        yield
    finally:
        installation.kubectl("delete", "-f", "-", stdin=text)


@pytest.fixture(scope="module")
def gateway(
    installation: Installation, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    running: RunningGateway
    if REAL:
        running = EnvoyGateway(cluster, namespace=installation.system)
    else:
        running = StandInGateway(
            cluster.kubeconfig,
            namespace=installation.system,
            name="public",
            folder=tmp_path_factory.mktemp("envoy"),
            lag=LAG,
        )
    try:
        yield running
    finally:
        running.end()


def allow_domains(installation: Installation) -> None:
    entitled = {"spec": {"entitlements": {"hostSelection": True, "domainSuffixes": [ZONE]}}}
    name = f"organizations.cloister.dev/{installation.slug}"
    installation.kubectl("patch", name, "--type=merge", "-p", json.dumps(entitled))


def prove_domain(installation: Installation, zone: NameServer) -> str:
    """Create a Domain and its records, wait until it is verified, and return the TXT name."""
    installation.apply(manifest("Domain", "api", {"domain": CUSTOM}, installation.namespace))

    def records() -> dict[str, str]:
        found = installation.kubectl(
            "get", "cdom", "api", "-n", installation.namespace, "-o", "jsonpath={.status.records}"
        )
        reported: dict[str, str] = json.loads(found or "{}")
        return reported

    reported = until_sync(records, what="the records of the domain")
    zone.put(reported["txtName"], "TXT", f'"{reported["txtValue"]}"')
    zone.put(CUSTOM, "CNAME", f"{reported['cnameTarget']}.")
    place = ("-n", installation.namespace, "cdom/api")
    installation.kubectl("wait", "--for=condition=Ready", "--timeout=60s", *place)
    return reported["txtName"]


def fetched(gateway: RunningGateway, host: str) -> str:
    """Send one request to a host name; return the page, or the error's name."""
    try:
        return GatewayClient(host, gateway.address).fetch()
    except OSError as error:
        return type(error).__name__


def wait_for_page(gateway: RunningGateway, host: str, page: str) -> None:
    """Wait until the gateway routes a host name to that page."""
    until_sync(lambda: fetched(gateway, host) == page, what=f"{page} at {host}")


def test_no_request_fails_while_releases_come_and_go(
    installation: Installation, gateway: RunningGateway, zone: NameServer
) -> None:
    text = prove_domain(installation, zone)
    spec = {"repo": "acme/web", "customDomain": CUSTOM}
    installation.create_container("web", tag="v1.0.0", **spec)
    installation.wait_for("web", "Ready")
    host = f"web.{installation.slug}.{CONTAINERS_DOMAIN}"
    wait_for_page(gateway, host, "page 0")
    wait_for_page(gateway, CUSTOM, "page 0")
    clients = (
        GatewayClient(host, gateway.address),
        GatewayClient(CUSTOM, gateway.address),
        KeepAliveClient(host, gateway.address),
    )
    available = '.status.conditions[?(@.type=="Available")].status'
    fields = (".status.phase", ".status.currentTag", available)
    with watching(installation, "web", *fields) as watched:
        for client in clients:
            client.start()
        try:
            for number in range(1, UPDATES + 1):
                update(installation, clients, number, **spec)
        finally:
            for client in clients:
                client.end()
    answered = sum(each.pages.total() for each in clients)
    failed = sum(len(each.failures) for each in clients)
    sys.stderr.write(f"\n{UPDATES} updates: {answered} requests succeeded, {failed} failed\n")
    for client in clients:
        assert not client.failures, f"{client.failures}\n{installation.logs()}"
        assert set(client.pages) == {f"page {number}" for number in range(UPDATES + 1)}
    for client in clients[:2]:
        assert {names for names, _ in client.certificates} == {(client.host,)}
        keys = {key for _, key in client.certificates}
        assert len(keys) == UPDATES + 1, "each enclave has a key of its own"
    rows = watched.rows
    assert {(phase, available) for phase, _, available in rows} == {("ready", "True")}, rows
    assert [tag for _, tag, _ in rows][-1] == f"v1.{UPDATES}.0"

    assert fetched(gateway, "web.nobody.example") in {"ConnectionResetError", "SSLEOFError"}
    drop_domain(installation, gateway, zone, text, host)


def update(
    installation: Installation, clients: tuple[GatewayClient, ...], number: int, **spec: str
) -> None:
    """Publish a release and wait until every client has seen it and its predecessor is deleted."""
    installation.create_container("web", tag=f"v1.{number}.0", **spec)

    def seen() -> bool:
        return all(each.pages[f"page {number}"] > 0 for each in clients)

    def alone() -> bool:
        return len(installation.objects("pods")) == 1

    for question, what in ((seen, "the release at all clients"), (alone, "one Pod")):
        try:
            until_sync(question, within=180, what=what)
        except AssertionError as error:
            failures = [each.failures for each in clients]
            raise AssertionError(f"{error} {failures}\n{installation.logs()}") from error
    installation.wait_for("web", "Ready")


def drop_domain(
    installation: Installation, gateway: RunningGateway, zone: NameServer, text: str, host: str
) -> None:
    """Remove the TXT record of the custom domain: the gateway no longer routes it."""
    zone.drop(text, "TXT")
    gone = {"ConnectionResetError", "SSLEOFError"}
    until_sync(lambda: fetched(gateway, CUSTOM) in gone, what="the end of the domain")
    assert fetched(gateway, host) == f"page {UPDATES}"
    container = installation.container("web")
    assert container is not None
    assert container.status.domain == host


def test_a_staged_release_is_reachable_only_at_its_preview_host_name(
    installation: Installation, gateway: RunningGateway
) -> None:
    last = f"v1.{UPDATES + 1}.0"
    host = f"web.{installation.slug}.{CONTAINERS_DOMAIN}"
    preview = f"web.preview.{installation.slug}.{CONTAINERS_DOMAIN}"
    installation.create_container("web", repo="acme/web", tag=f"v1.{UPDATES}.0", staging=True)
    installation.wait_for("web", "Ready")
    installation.create_container("web", repo="acme/web", tag=last, staging=True)
    installation.wait_for("web", "Ready", reason="AwaitingPromotion")
    wait_for_page(gateway, preview, f"page {UPDATES + 1}")
    assert fetched(gateway, host) == f"page {UPDATES}"


@pytest.mark.skipif(not REAL, reason="the stand-in has no Gateway object, only its name")
@pytest.mark.usefixtures("gateway")
def test_the_doctor_finds_the_gateway_programmed(
    installation: Installation, cluster: Cluster
) -> None:
    settings = installation.write_settings(cluster.kubeconfig)
    way = ("--kubeconfig", str(cluster.kubeconfig), "--output", "json")
    done = run_command("doctor", *way, "--operator-config", str(settings), check=False)
    found = {each["check"]: each for each in json.loads(done.stdout)["findings"]}
    assert found["gateway"]["level"] == "pass", found["gateway"]
    message = f"{installation.system}/public is programmed; routes are v1"
    assert found["gateway"]["message"] == message


def test_requests_fail_where_the_gateway_lags_behind_the_drain(
    installation: Installation, gateway: RunningGateway
) -> None:
    """Proves that the clients of the tests above would observe failed requests."""
    installation.create_container("late", repo="acme/web", tag="v1.0.0")
    installation.wait_for("late", "Ready")
    host = f"late.{installation.slug}.{CONTAINERS_DOMAIN}"
    wait_for_page(gateway, host, "page 0")
    clients = (GatewayClient(host, gateway.address), KeepAliveClient(host, gateway.address))
    for client in clients:
        client.start()
    try:
        with gateway.held():
            installation.create_container("late", repo="acme/web", tag="v1.1.0")
            for client in clients:
                until_sync(partial(has_failed, client), within=180, what="a failed request")
        for client in clients:
            until_sync(partial(is_seen, client, "page 1"), what="the release")
    finally:
        for client in clients:
            client.end()


def has_failed(client: GatewayClient) -> bool:
    """Return whether a request of a client has failed."""
    return bool(client.failures)


def is_seen(client: GatewayClient, page: str) -> bool:
    """Return whether a client has received a page."""
    return client.pages[page] > 0
