"""The published measurement is what the operator starts, and what anybody computes offline.

There is no node: `tests.support.stand_ins.pod_status` writes the status of Pods as a kubelet would.
"""

import json
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from cloister_cli.config import config
from cloister_crds.measurement import Publication, published
from cloister_crds.names import config_map_name
from cloister_operator.commands.documents import documents
from dev.cluster import Cluster
from dev.cluster.images import Image, push
from tests.support.programs.operator import NO_IMAGE, Installation, file_text
from tests.support.stand_ins.pod_status import run_pod
from tests.support.waiting import until_sync

OTHER_IMAGE = "registry.invalid/other@sha256:" + "1" * 64
"""Another image of ours, as after an upgrade."""


@pytest.fixture
def image(api_cluster: Cluster) -> str:
    return push(Image(files={"/x": b"x"}, entrypoint=("/x",)), api_cluster.registry, "tests/x")


def computed(
    installation: Installation, documents: dict[str, str], *words: str, guest: str = NO_IMAGE
) -> dict[str, Any]:
    """Compute the measurement as an auditor does: from git, the Host, images and documents."""
    (installation.folder / "documents.json").write_text(json.dumps(documents))
    source = installation.folder / "source.yml"
    source.write_text(yaml.safe_dump({"kind": "git", "base": str(installation.repositories.path)}))
    host = installation.folder / "host.yml"
    host.write_text(installation.kubectl("get", f"host/{installation.host}", "-o", "yaml"))
    result = CliRunner().invoke(
        config,
        [
            *("measure", "--repo", "acme/web", "--tag", "v1", "--source", str(source)),
            *("--host", str(host), "--guest-image", guest, "--shim-image", NO_IMAGE),
            *("--documents", str(installation.folder / "documents.json"), *words),
        ],
    )
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.output)
    return found


def made(installation: Installation, image: str, *words: str) -> dict[str, str]:
    """Make the documents as an auditor does: from the file, the Host, registries and settings."""
    whole = yaml.safe_load(installation.write_settings().read_text())
    public = {name: whole[name] for name in ("shimImage", "guestImage", "registry")}
    (installation.folder / "published.yml").write_text(yaml.safe_dump(public))
    file = installation.folder / "service-config.yml"
    file.write_bytes(file_text(image))
    result = CliRunner().invoke(
        documents,
        [
            *(str(file), "--host", str(installation.folder / "host.yml")),
            *("--settings", str(installation.folder / "published.yml"), *words),
        ],
    )
    assert result.exit_code == 0, result.output
    found: dict[str, str] = json.loads(result.output)
    return found


def the_pod(installation: Installation) -> dict[str, Any]:
    """Wait for the one Pod."""
    return until_sync(lambda: installation.objects("pods"), within=60, what="a Pod")[0]


def publication_of(installation: Installation, pod: dict[str, Any]) -> Publication:
    """Read what was published of a Pod's Enclave, and compare it with the Pod's annotations."""
    name = config_map_name(pod["metadata"]["name"])
    found = installation.kubectl("get", f"configmap/{name}", "-n", installation.namespace, "-ojson")
    publication = published(json.loads(found)["data"])
    assert publication is not None
    assert pod["metadata"]["annotations"]["cloister.dev/measurement"] == publication.digest
    return publication


@pytest.mark.parametrize("debug", [False, True])
def test_the_published_measurement_is_computed_offline(
    installation: Installation, image: str, *, debug: bool
) -> None:
    installation.repository("acme/web").release("v1", file_text(image))
    installation.operator().wait_until_it_leads()
    installation.create_container("web", repo="acme/web", tag="v1", debug=debug)
    pod = the_pod(installation)
    found = publication_of(installation, pod)
    wanted = computed(installation, found.documents, *(["--debug"] if debug else []))
    assert found.document == wanted["document"]
    assert wanted["document"]["debug"] is debug
    assert made(installation, image, *(["--debug"] if debug else [])) == found.documents
    run_pod(installation, pod["metadata"]["name"])
    installation.wait_for("web", "Available")
    (enclave,) = installation.enclaves("web")
    assert (enclave.status.measurement, enclave.status.initdata) == (wanted["digest"], "")


def test_an_upgrade_between_publication_and_start_is_published(
    installation: Installation, image: str
) -> None:
    """No Pod can be created at first: a quota forbids it."""
    installation.repository("acme/web").release("v1", file_text(image))
    quota = {"name": "none", "namespace": installation.namespace}
    installation.apply(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": quota,
            "spec": {"hard": {"pods": "0"}},
        }
    )
    first = installation.operator()
    first.wait_until_it_leads()
    installation.create_container("web", repo="acme/web", tag="v1")
    until_sync(
        lambda: any(
            "measurement.json" in each.get("data", {})
            for each in installation.objects("configmaps")
        ),
        within=60,
        what="the publication",
    )
    assert first.stop() == 0
    assert installation.objects("pods") == []
    installation.settings["guestImage"] = OTHER_IMAGE
    installation.kubectl("delete", "resourcequota/none", "-n", installation.namespace)
    installation.operator().wait_until_it_leads()
    pod = the_pod(installation)
    assert OTHER_IMAGE in {each["image"] for each in pod["spec"]["initContainers"]}
    found = publication_of(installation, pod)
    wanted = computed(installation, found.documents, guest=OTHER_IMAGE)
    assert found.document == wanted["document"]


def test_the_runtime_class_of_a_host_has_to_exist(installation: Installation, image: str) -> None:
    installation.repository("acme/web").release("v1", file_text(image))
    name = f"kata-{installation.slug}"
    installation.create_organization(host={"runtimeClassName": name})
    installation.operator().wait_until_it_leads()
    installation.create_container("web", repo="acme/web", tag="v1")
    waiting = installation.wait_for("web", "Reconciling", reason="HostNotReady")
    assert f"There is no RuntimeClass {name}" in waiting.status.message
    body = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}}
    installation.apply({**body, "handler": "kata", "overhead": {"podFixed": {"memory": "160Mi"}}})
    try:
        # A change of the Host triggers a reconcile at once; else it is checked after a minute.
        installation.create_organization(host={"runtimeClassName": name, "cpuType": "new"})
        pod = the_pod(installation)
        assert pod["spec"]["runtimeClassName"] == name
        assert pod["spec"]["overhead"] == {"memory": "160Mi"}
        found = publication_of(installation, pod)
        wanted = computed(installation, found.documents)["document"]
        assert found.document == wanted
        assert wanted["host"]["runtimeClassName"] == name
    finally:
        installation.kubectl("delete", f"runtimeclass/{name}")
