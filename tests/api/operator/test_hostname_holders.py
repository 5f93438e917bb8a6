"""Who has a generated host name when two Containers made by kubectl have one name."""

import json

from tests.support.programs.operator import CONTAINERS_DOMAIN, Installation
from tests.support.stand_ins.pod_status import run_pod
from tests.support.waiting import until_sync

REPO = "acme/web"


def holders(installation: Installation) -> dict[str, str]:
    """Return the claims of the organization: host name -> name of the Container."""
    claims = installation.objects("hostnameclaims.cloister.dev", every=True)
    held = {each["metadata"]["name"]: each["spec"]["holder"] for each in claims}
    return {
        hostname: holder["name"]
        for hostname, holder in held.items()
        if holder["namespace"] == installation.namespace
    }


def delete(installation: Installation, container: str) -> None:
    place = ("-n", installation.namespace, "--wait=false")
    installation.kubectl("delete", "ctr", container, *place)


def keep(installation: Installation, pod: str, *finalizers: str) -> None:
    """Set the finalizers of a Pod, as one that terminates slowly."""
    patch = json.dumps({"metadata": {"finalizers": finalizers}})
    place = ("-n", installation.namespace, "--type=merge")
    installation.kubectl("patch", "pod", pod, *place, "-p", patch)


def test_a_name_goes_to_its_object_or_to_who_claimed_before(operated: Installation) -> None:
    hostname = f"shop.{operated.slug}.{CONTAINERS_DOMAIN}"
    operated.create_container("earlier", name="shop", repo=REPO, tag="v1")
    until_sync(lambda: holders(operated) == {hostname: "earlier"}, what="a claim")
    operated.create_container("shop", repo=REPO, tag="v1")
    held = operated.wait_for("shop", "Stalled", reason="HostnameTaken")
    assert hostname in held.status.message
    delete(operated, "earlier")
    until_sync(lambda: bool(operated.enclaves("shop")), what="an Enclave of who waited")
    assert not holders(operated), "its object has the name already"

    # Where the object of the name is, another one waits, and longer: until no Pod has the name.
    (made,) = operated.enclaves("shop")
    enclave = made.metadata.name
    run_pod(operated, enclave)
    operated.wait_for("shop", "Ready", reason="Serving")
    operated.create_container("later", name="shop", repo=REPO, tag="v1")
    operated.wait_for("later", "Stalled", reason="HostnameTaken")
    keep(operated, enclave, "tests.cloister.dev/terminates-slowly")
    delete(operated, "shop")

    def terminating() -> bool:
        left = [each["metadata"]["name"] for each in operated.objects("ctr")]
        return left == ["later"] and "deletionTimestamp" in operated.objects("pods")[0]["metadata"]

    until_sync(terminating, what="the end of the Container, but not of its Pod")
    changed = [{"name": "GREETING", "value": "hello"}]
    operated.create_container("later", name="shop", repo=REPO, tag="v1", variables=changed)
    operated.wait_for("later", "Stalled", reason="HostnameTaken")
    assert not operated.enclaves("later")
    assert not holders(operated)
    keep(operated, enclave)
    until_sync(lambda: bool(operated.enclaves("later")), what="an Enclave of who waited")
    assert holders(operated) == {hostname: "later"}
    delete(operated, "later")
    until_sync(lambda: not holders(operated), what="the release of the name")
