"""Least privilege, proven from the audit log of an API server under an installation at work.

Both programs run in their Pods with the tokens of their accounts. What they request while
organizations do what organizations do is compared with the shipped roles: nothing is refused, and
what a role permits is used, or named with its reason in docs/accounts.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from dev.chart.helm import NAMESPACE as SYSTEM
from dev.chart.local import PATIENCE
from dev.demo import manifests, repository
from dev.demo.manifests import NAMESPACE
from tests.support.installed.chart import Chart, this_chart
from tests.support.installed.gateway import installed_with_gateway
from tests.support.installed.life import Tenant
from tests.support.installed.place import TAGS, Place, place_to_install
from tests.support.installed.rights import FORBIDDEN, ORGANIZATIONS, Use, granted, named, uses
from tests.support.waiting import until_sync

pytestmark = [
    pytest.mark.node,
    pytest.mark.images,
    pytest.mark.programs("helm"),
    pytest.mark.timeout(1800),
]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "accounts.md"
OF_EVERY_ACCOUNT = "system:basic-user"
"""ClusterRole that lets every account ask about itself."""


@dataclass(frozen=True, slots=True)
class Audited:
    """An installation on a cluster whose API server records what its accounts request."""

    place: Place
    chart: Chart


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Audited]:
    folder = tmp_path_factory.mktemp("rights")
    chart = this_chart(folder)
    settings = {
        "metering": True,
        "domains": {"target": "dns.example.com"},
        "claimAgeSeconds": 1,
        "drainSeconds": 1,
    }
    with (
        place_to_install("rights", folder, chart, audited=True) as made,
        installed_with_gateway(made, chart, tmp_path_factory.mktemp("envoy"), **settings),
    ):
        yield Audited(made, chart)


def work(audited: Audited) -> None:
    """Do through kubectl and REST what organizations do, until all of it has ended."""
    place = audited.place
    tenant = Tenant.create(
        place.with_chart(audited.chart),
        entitlements={
            "hostSelection": True,
            "privateRegistries": True,
            "domainSuffixes": ["example.com"],
        },
        limits={"containers": 10},
    )
    call = tenant.call
    call("PUT", "/api/registry-credentials/ghcr", {"username": "ada", "token": "never-used"})
    call("PUT", "/api/registry-credentials/ghcr", {"username": "ada", "token": "never-used-2"})
    call("POST", "/api/secrets", {"name": "GREETING", "value": "Hello"})
    call("POST", "/api/ssh-keys", {"name": "laptop", "public_key": public_key()})
    call("POST", "/api/domains", {"domain": "www.example.com"})
    call("POST", "/api/domains/www.example.com/verify")

    wanted = {"name": "web", "repo": repository.REPO, "tag": TAGS[0], "secrets": ["GREETING"]}
    made = call("POST", "/api/containers", wanted)
    mine = f"/api/containers/{made['id']}"
    tenant.wait_until_ready()
    call("GET", f"{mine}/measurement")
    call("POST", f"{mine}/relaunch", {"tag": TAGS[1]})
    until_sync(lambda: call("GET", mine)["current_tag"] == TAGS[1], within=PATIENCE)
    call("PUT", "/api/secrets/GREETING", {"value": "Bonjour"})
    call("POST", f"{mine}/stop")
    until_sync(lambda: call("GET", mine)["status"] == "stopped", within=PATIENCE)
    call("POST", f"{mine}/start")
    tenant.wait_until_ready()
    until_sync(lambda: utilization(tenant, mine), within=PATIENCE, what="utilization")
    call("POST", "/api/containers", {**wanted, "replace_container_id": made["id"]})
    until_sync(lambda: len(tenant.objects("ctr")) == 1, within=PATIENCE, what="the replacement")
    until_sync(
        lambda: [each["status"] for each in call("GET", "/api/containers")] == ["ready"],
        within=PATIENCE,
    )
    (deployment,) = call("GET", "/api/deployments")
    call("PATCH", f"/api/deployments/{deployment['id']}", {"default_staging": True})

    # The operator renews what an administrator deleted, and hands over to another leader.
    place.cluster.kubectl("delete", "networkpolicy,pdb", "--all", "-n", NAMESPACE)
    place.cluster.kubectl("delete", "pod", place.leader(), "-n", SYSTEM)

    (found,) = call("GET", "/api/containers")
    call("DELETE", f"/api/containers/{found['id']}")
    until_sync(lambda: not tenant.objects("encl,ctr,cdep"), within=PATIENCE, what="an end")
    call("DELETE", "/api/secrets/GREETING")
    call("DELETE", "/api/ssh-keys/laptop")
    call("DELETE", "/api/domains/www.example.com")
    call("DELETE", "/api/registry-credentials/ghcr")
    place.cluster.kubectl("delete", "org", manifests.ORGANIZATION, f"--timeout={PATIENCE:.0f}s")
    gone = place.cluster.kubectl("get", "namespace", NAMESPACE, "--ignore-not-found", "-oname")
    assert not gone or until_sync(
        lambda: (
            not place.cluster.kubectl("get", "namespace", NAMESPACE, "--ignore-not-found", "-oname")
        ),
        within=PATIENCE,
    )


def public_key() -> str:
    """Make a key pair, and return its public half as OpenSSH writes it."""
    key = Ed25519PrivateKey.generate().public_key()
    return key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def utilization(tenant: Tenant, container: str) -> bool:
    """Return whether the API knows what the Container's Pod uses."""
    points = tenant.call("GET", f"{container}/metrics?time=1h")["data_points"]
    return any(each["cpu_util"] is not None for each in points)


def words(used: Use) -> str:
    """Return a request in one line."""
    where = f" in {used.namespace}" if used.namespace else ""
    return f"{used.account}: {used.verb} {used.resource} {used.name}{where}: {used.code} {used.why}"


def test_both_accounts_use_what_they_may_and_request_nothing_else(audited: Audited) -> None:
    work(audited)
    seen = uses(audited.place.cluster.audit_log)
    rights = granted()
    accounts = {each.account for each in seen}
    assert accounts == {each.account for each in rights}, "nothing was recorded"

    # For moments after the operator made the RoleBindings of a namespace the authorizer does not
    # know them, and they go before their namespace does: what they permit is tried again, or ends.
    bound = {one for one in rights if one.place == ORGANIZATIONS}
    refused = sorted(
        {
            words(each)
            for each in seen
            if each.code == FORBIDDEN and not any(each.is_of(one) for one in bound)
        }
    )
    beyond = sorted(
        {
            words(each)
            for each in seen
            if OF_EVERY_ACCOUNT not in each.why and not any(each.is_of(one) for one in rights)
        }
    )
    unused = {one for one in rights if not any(each.is_of(one) for each in seen)}
    listed = named(PAGE)
    assert (refused, beyond) == ([], [])
    unexplained = "\n".join(map(str, sorted(unused - listed.keys())))
    assert not unexplained, f"mend the roles, or say in {PAGE.name} why:\n{unexplained}"
    assert sorted(listed.keys() - rights) == [], f"{PAGE.name} names what no role gives"
