"""Evidence of a real enclave on a node that says it has SNP, and what the maker publishes of it.

A program stands in for the node's attestation service and for AMD's: it signs with a root of the
tests. The rest is the product: agent, `guest certificate`, the API's cache, the packet filter.
"""

import contextlib
import hashlib
import json
import secrets
import shutil
import subprocess
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509

from dev.cluster import Cluster
from tests.support.cluster.accounts import account_kubeconfig
from tests.support.programs.attestation import bound_key, report_data
from tests.support.programs.facade import start_facade
from tests.support.programs.operator import CONTAINERS_DOMAIN, Installation, operator_lock
from tests.support.programs.published_settings import publish
from tests.support.programs.web_service import PageServices, page_file
from tests.support.waiting import until_sync

pytestmark = [
    pytest.mark.node,
    pytest.mark.skipif(shutil.which("go") is None, reason="Go is not installed"),
]

REPORT_DATA, MEASUREMENT = slice(0x50, 0x90), slice(0x90, 0xC0)


@dataclass(frozen=True)
class Node:
    """The stand-in of a node with SNP."""

    socket: Path
    """Its attestation service."""
    maker: str
    """Address of the maker's service."""
    roots: Path
    """The maker's root certificates."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    folder = tmp_path_factory.mktemp("node")
    program = folder / "testnode"
    build = ["go", "build", "-o", str(program), "./testnode"]
    subprocess.run(build, cwd="operator/guest", check=True)
    socket, roots = folder / "aa.sock", folder / "roots.pem"
    command: list[str | Path] = [program, "-socket", socket, "-roots", roots]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield Node(socket, json.loads(process.stdout.readline())["maker"], roots)
        process.kill()


@pytest.fixture(scope="module")
def pages(cluster: Cluster) -> PageServices:
    return PageServices(cluster)


@pytest.fixture(scope="module")
def api(cluster: Cluster, node: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Provide an API that enclaves reach, and that fetches from the stand-in."""
    folder = tmp_path_factory.mktemp("api")
    own = {"certificate": "ca.pem", "key": "ca.key"}
    settings = {
        "kubeconfig": str(account_kubeconfig(cluster, "api", folder)),
        "listen": {"host": cluster.host_address, "port": 0},
        "ledger": {"path": "ledger.db", "keyMaterial": "keys.json"},
        "sources": {"kind": "git", "base": str(folder)},
        "certificates": {"issuer": "own", "own": own, "requestsPerHour": 1000},
        "collateral": {"amd": node.maker},
        "development": True,
    }
    publish(cluster, CONTAINERS_DOMAIN, metering=True)
    path = folder / "api.yml"
    path.write_text(yaml.safe_dump(settings))
    with contextlib.ExitStack() as running:
        yield running.enter_context(start_facade(path)).base


@pytest.fixture(scope="module")
def installation(
    cluster: Cluster,
    pages: PageServices,
    api: str,
    node: Node,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Installation]:
    folder = tmp_path_factory.mktemp("installation")
    signed = {"apiAddress": api, "signedCertificates": True, "metering": True}
    socket = f"unix://{node.socket}"
    machine = {"tee": "SNP", "teeUnit": "Node", "attestationService": socket}
    with operator_lock(cluster.name):
        installed = Installation(cluster, folder, pages.settings | signed | {"claimAgeSeconds": 1})
        try:
            installed.prepare()
            installed.create_organization(host=machine)
            installed.repository("acme/web").release("v1.0.0", page_file(pages.web, "one"))
            installed.operator().wait_until_it_leads()
            installed.create_container("web", repo="acme/web", tag="v1.0.0")
            installed.wait_for("web", "Ready")
            yield installed
        finally:
            installed.end()


def fetched(pages: PageServices, installation: Installation, nonce: str) -> tuple[Any, bytes]:
    """Fetch the document, and return it with the TLS key of the connection."""
    path = f"/.well-known/cloister-attestation?nonce={nonce}"
    page = pages.fetch_page(installation, "web", path)
    assert page is not None
    assert page.status == 200, page.body
    return json.loads(page.body), page.key


@pytest.mark.filterwarnings("ignore:Parsed a serial number")  # AMD's have the number 0
def test_one_fetch_has_evidence_and_what_the_maker_publishes(
    installation: Installation, pages: PageServices, node: Node
) -> None:
    nonce = secrets.token_hex(32)

    def complete() -> tuple[dict[str, Any], bytes] | None:
        document, key = fetched(pages, installation, nonce)
        return (document, key) if len(document["collateral"]) == 3 else None

    found = until_sync(complete, what="the collateral")
    assert found is not None
    document, key = found
    assert document["cpu_evidence"]["format"].endswith("/sev-snp/v1")
    report = b64decode(document["cpu_evidence"]["report_base64"])
    assert report[REPORT_DATA].hex() == report_data(document, bytes.fromhex(nonce))
    assert report[MEASUREMENT] == bytes([9]) * 48
    assert bound_key(document) == hashlib.sha256(key).hexdigest()
    held = {each["type"]: b64decode(each["data"]) for each in document["collateral"]}
    assert held.keys() == {"amd-vcek", "amd-cert-chain", "amd-crl"}
    assert held["amd-cert-chain"] == node.roots.read_bytes()
    ask, ark = x509.load_pem_x509_certificates(held["amd-cert-chain"])
    x509.load_der_x509_certificate(held["amd-vcek"]).verify_directly_issued_by(ask)
    assert x509.load_der_x509_crl(held["amd-crl"]).issuer == ark.subject


def test_an_attested_node_is_not_called_confidential(installation: Installation) -> None:
    container = installation.container("web")
    assert container is not None
    conditions = {each.type: each for each in container.status.conditions}
    confidential = conditions["Confidential"]
    assert (confidential.status, confidential.reason) == ("False", "NodeAttested")
