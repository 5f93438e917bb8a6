"""The ResourceQuota of an organization's namespace, made and kept by the operator."""

from collections.abc import Iterator

import pytest

from dev.cluster import Cluster
from dev.cluster.layout import LocalClusterError
from tests.support.programs.operator import Installation, manifest, operator_lock
from tests.support.waiting import until_sync

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1mgm8ZSvTX0UuU1yV7c5vC6tbTfvpgYLfSyYpzdyz7 ada"
COUNT = "count/sshkeys.cloister.dev"


@pytest.fixture(scope="module")
def operated(
    api_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    with operator_lock(api_cluster.name):
        folder = tmp_path_factory.mktemp("installation")
        limits = {"defaultLimits": {"sshKeys": 2}}
        installation = Installation(api_cluster, folder, limits)
        try:
            installation.prepare()
            installation.create_organization()
            installation.operator().wait_until_it_leads()
            yield installation
        finally:
            installation.end()


def add_key(operated: Installation, name: str) -> None:
    operated.apply(manifest("SSHKey", name, {"publicKey": KEY}, operated.namespace))


def await_quota(operated: Installation, most: int) -> None:
    """Wait until the cluster enforces a number of SSH keys."""

    def enforced() -> bool:
        found = operated.objects("resourcequotas")
        quotas = [each for each in found if each["metadata"]["name"] == "cloister-limits"]
        assert quotas, found
        status = quotas[0].get("status", {})
        assert status.get("hard", {}).get(COUNT) == str(most), status
        assert COUNT in status.get("used", {}), status
        return True

    until_sync(enforced, within=120, what=f"a quota of {most}")


def await_condition(operated: Installation, status: str, reason: str, part: str) -> None:
    def reported() -> bool:
        (body,) = (
            each
            for each in operated.objects("organizations.cloister.dev", every=True)
            if each["metadata"]["name"] == operated.slug
        )
        conditions = body.get("status", {}).get("conditions", [])
        found = next((each for each in conditions if each["type"] == "WithinLimits"), None)
        assert found is not None, conditions
        assert (found["status"], found["reason"]) == (status, reason), found
        assert part in found["message"], found
        return True

    until_sync(reported, within=60, what=f"WithinLimits {status}")


def limit(operated: Installation, keys: int | None) -> None:
    change = f'{{"spec": {{"limits": {{"sshKeys": {"null" if keys is None else keys}}}}}}}'
    operated.kubectl("patch", f"org/{operated.slug}", "--type=merge", "-p", change)


def test_kubectl_creates_no_more_than_the_limit(operated: Installation) -> None:
    await_quota(operated, 2)
    add_key(operated, "one")
    add_key(operated, "two")
    await_condition(operated, "True", "WithinLimits", "")
    with pytest.raises(LocalClusterError, match=r"exceeded quota: cloister-limits.*limited: .*=2"):
        add_key(operated, "three")
    # A change of one that exists is no create.
    add_key(operated, "two")
    limit(operated, 3)
    await_quota(operated, 3)
    add_key(operated, "three")


def test_what_exists_above_a_lowered_limit_stays_and_is_reported(operated: Installation) -> None:
    limit(operated, 3)
    await_quota(operated, 3)
    for name in ("one", "two", "three"):
        add_key(operated, name)
    limit(operated, 1)
    await_quota(operated, 1)
    await_condition(operated, "False", "AboveLimits", "sshKeys 3 of 1")
    kept = {each["metadata"]["name"] for each in operated.objects("sshkeys.cloister.dev")}
    assert kept == {"one", "two", "three"}
    operated.kubectl("delete", "sshkeys", "two", "three", "-n", operated.namespace)
    await_condition(operated, "True", "WithinLimits", "")
    limit(operated, None)
    await_quota(operated, 2)
