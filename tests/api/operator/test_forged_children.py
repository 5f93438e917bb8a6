"""What somebody created under the name of an enclave's child is never used."""

from cloister_clients.kube.kinds import CONFIG_MAP
from tests.support.cluster.direct_client import DirectClient
from tests.support.faults.crashing_operators import ProxiedInstallation
from tests.support.faults.fault_kinds import ApiRequest, HeldWrites
from tests.support.programs.operator import Installation, condition_of, file_text
from tests.support.waiting import until_sync


def test_a_config_map_with_the_uid_of_the_enclave_is_refused_by_name(
    behind_proxy: ProxiedInstallation, image_of_life: str
) -> None:
    installation, proxy = behind_proxy.installation, behind_proxy.proxy
    installation.repository("acme/web").release("v1", file_text(image_of_life))
    behind_proxy.operator("operator").wait_until_it_leads()
    held = HeldWrites(None, creates_config_map)
    proxy.faults = (held,)
    installation.create_container("web", repo="acme/web", tag="v1")
    until_sync(lambda: held.caught, what="the ConfigMap on its way")
    name = held.caught[0].name
    forge(installation, behind_proxy.direct, name)
    held.release()
    failed = installation.wait_for("web", "Stalled", within=60)
    ready = condition_of(failed, "Ready")
    assert ready is not None
    assert ready["reason"] == "EnclaveRefused"
    assert f"ConfigMap {name} exists and was not created by the operator" in ready["message"]
    assert installation.objects("pods") == []


def creates_config_map(request: ApiRequest) -> bool:
    return request.verb == "create" and request.kind == "configmaps"


def forge(installation: Installation, direct: DirectClient, name: str) -> None:
    """Create the ConfigMap first, owned by something else that has the uid of the Enclave."""
    enclave = installation.enclaves("web")[0].metadata
    container = installation.container("web")
    assert container is not None
    owner = {"apiVersion": "v1", "kind": "Secret", "name": "any", "uid": enclave.uid}
    # The garbage collector leaves an object that has an owner which exists.
    solid = {**container.owner_reference(), "controller": False}
    body = {
        "metadata": {
            "name": name,
            "namespace": installation.namespace,
            "ownerReferences": [{**owner, "controller": True}, solid],
        },
        "immutable": True,
        "data": {"service-config.yml": "ours"},
    }
    direct.create(CONFIG_MAP, body)
