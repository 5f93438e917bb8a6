"""Attestation of a real enclave: an external client recomputes every byte of its document.

There is no TEE here, so the evidence is the dummy: what hardware would sign is unsigned. No
certificates are signed here, so the key is the shim's own; `test_enclave_certificate` covers both.
"""

import hashlib
import json
import secrets
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from cloister_cli.config import config
from cloister_crds.measurement import published
from cloister_crds.names import config_map_name
from dev.cluster import Cluster
from tests.support.programs.attestation import bound_key, report_data, report_of
from tests.support.programs.operator import Installation, operator_lock
from tests.support.programs.web_service import PageServices, page_file

pytestmark = pytest.mark.node


@pytest.fixture(scope="module")
def pages(cluster: Cluster) -> PageServices:
    return PageServices(cluster)


@pytest.fixture(scope="module")
def installation(
    cluster: Cluster, pages: PageServices, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    folder = tmp_path_factory.mktemp("installation")
    with operator_lock(cluster.name):
        installed = Installation(cluster, folder, pages.settings | {"claimAgeSeconds": 1})
        try:
            installed.prepare()
            installed.create_organization()
            installed.repository("acme/web").release("v1.0.0", page_file(pages.web, "one"))
            installed.operator().wait_until_it_leads()
            yield installed
        finally:
            installed.end()


def computed(
    installation: Installation, pages: PageServices, enclave: str, *words: str
) -> dict[str, Any]:
    """Compute the measurement from git, the Host, the platform's images and the documents."""
    kept = ("get", f"configmap/{config_map_name(enclave)}", "-n", installation.namespace, "-ojson")
    publication = published(json.loads(installation.kubectl(*kept))["data"])
    assert publication is not None
    documents = installation.folder / "documents.json"
    documents.write_text(json.dumps(publication.documents))
    source = installation.folder / "source.yml"
    source.write_text(yaml.safe_dump({"kind": "git", "base": str(installation.repositories.path)}))
    host = installation.folder / "host.yml"
    host.write_text(installation.kubectl("get", f"host/{installation.host}", "-o", "yaml"))
    guest, shim = pages.settings["guestImage"], pages.settings["shimImage"]
    result = CliRunner().invoke(
        config,
        [
            *("measure", "--repo", "acme/web", "--tag", "v1.0.0", "--source", str(source)),
            *("--host", str(host), "--guest-image", guest, "--shim-image", shim),
            *("--documents", str(documents), *words),
        ],
    )
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.output)
    return found


def canonical(document: dict[str, Any]) -> bytes:
    """Serialize a document by RFC 8785."""
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def fetch_attestation(
    pages: PageServices, installation: Installation, name: str, nonce: str = ""
) -> Any:
    """Fetch the attestation document of an enclave."""
    query = f"?nonce={nonce}" if nonce else ""
    return pages.await_page(installation, name, f"/.well-known/cloister-attestation{query}")


@pytest.mark.spec("2.9", "28.2", "40.3")
@pytest.mark.parametrize("debug", [False, True])
def test_a_client_recomputes_the_attestation_document(
    installation: Installation, pages: PageServices, *, debug: bool
) -> None:
    name = "debug" if debug else "plain"
    installation.create_container(name, repo="acme/web", tag="v1.0.0", debug=debug)
    container = installation.wait_for(name, "Ready")
    active = container.status.active_enclave
    wanted = computed(installation, pages, active, *(["--debug"] if debug else []))
    enclaves = {each.metadata.name: each for each in installation.enclaves(name)}
    assert enclaves[active].status.measurement == wanted["digest"]
    nonce = secrets.token_hex(32)
    page = fetch_attestation(pages, installation, name, nonce)
    assert page.status == 200, page.body
    document = json.loads(page.body)
    assert document["format"] == "https://cloister.dev/attestation/v3"
    assert document["cpu_evidence"]["format"] == "https://cloister.dev/cpu-evidence/none/v1"
    assert document["challenge"]["nonce"] == nonce
    assert bound_key(document) == hashlib.sha256(page.key).hexdigest()
    assert document["measurement"].encode() == canonical(wanted["document"])
    assert json.loads(document["measurement"])["debug"] is debug
    bound = report_data(document, bytes.fromhex(nonce))
    assert report_of(document) == {"report_data": bound, "tee": "None"}
    again = json.loads(fetch_attestation(pages, installation, name, secrets.token_hex(32)).body)
    assert again["cpu_evidence"] != document["cpu_evidence"]


@pytest.mark.spec("47.2")
def test_the_containers_have_the_attestation_document(
    installation: Installation, pages: PageServices
) -> None:
    installation.create_container("plain", repo="acme/web", tag="v1.0.0")
    pod = installation.wait_for("plain", "Ready").status.active_enclave
    inside = ("exec", "-n", installation.namespace, pod, "-c", "web", "--")
    document = json.loads(installation.kubectl(*inside, "cat", "/cloister/attestation.json"))
    assert "nonce" not in document["challenge"]
    served = json.loads(fetch_attestation(pages, installation, "plain").body)
    assert served == document
    assert report_of(document)["report_data"] == report_data(document, b"")


@pytest.mark.spec("28.1")
@pytest.mark.parametrize("nonce", ["00", "zz" * 32, "0" * 66, "0" * 64])
def test_an_invalid_nonce_is_refused(
    installation: Installation, pages: PageServices, nonce: str
) -> None:
    installation.create_container("plain", repo="acme/web", tag="v1.0.0")
    installation.wait_for("plain", "Ready")
    page = fetch_attestation(pages, installation, "plain", nonce)
    assert page.status == 400
    assert json.loads(page.body)["error"]["type"] == "invalid_request_error"


def test_boot_stages_report_that_nothing_is_attested(
    installation: Installation, pages: PageServices
) -> None:
    installation.create_container("plain", repo="acme/web", tag="v1.0.0")
    container = installation.wait_for("plain", "Ready")
    page = pages.await_page(installation, "plain", "/.well-known/cloister-boot-stages")
    stages = {each["name"]: each for each in json.loads(page.body)["stages"]}
    for stage in ("cpu-attestation", "gpu-attestation"):
        assert stages[stage]["status"] == "skipped"
    assert "nothing is confidential" in stages["cpu-attestation"]["detail"]
    conditions = {each.type: each for each in container.status.conditions}
    assert (conditions["Confidential"].status, conditions["Confidential"].reason) == (
        "False",
        "NoTee",
    )
