"""Checks of the cluster: API server, clock, kinds, nodes, admission policies."""

import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Final

import yaml

from cloister_clients.findings import Finding, failed, passed, warned
from cloister_clients.kube import Forbidden, KubeClient, NotFound
from cloister_clients.kube.kinds import (
    CUSTOM_RESOURCE_DEFINITION,
    LEASE,
    POLICY,
    POLICY_BINDING,
    SECRET,
    lapsed_policies,
)
from cloister_crds.crd_manifests import manifests
from cloister_crds.kinds.meta import GROUP, VERSION
from cloister_crds.names import RESTORE_HOLDER, RESTORES_ANNOTATION

USER_NAMESPACES: Final = (
    "use Linux 6.3 or newer with containerd 2.0 and runc 1.2 or newer; or Hosts whose Pods are "
    "virtual machines, or that allow a privileged launcher"
)


def check_nodes(nodes: Iterable[Mapping[str, Any]]) -> list[Finding]:
    """Check that nodes are ready, and run Pods in user namespaces of their own."""
    found, good = [], 0
    for node in nodes:
        name, status = node["metadata"]["name"], node.get("status") or {}
        problems = [*_not_ready(name, status), *_without_user_namespaces(name, status)]
        good += not problems
        found += problems
    if good:
        found.append(passed("nodes", f"{good} nodes are ready and have user namespaces"))
    if not found:
        found.append(warned("nodes", "there is no node", "join one: enclaves need a place"))
    return found


def _not_ready(name: str, status: Mapping[str, Any]) -> list[Finding]:
    """Return that a node is not ready."""
    conditions = {each["type"]: each["status"] for each in status.get("conditions") or ()}
    if conditions.get("Ready") == "True":
        return []
    remedy = f"see why: kubectl describe node {name}"
    return [warned(f"node {name}", "it is not ready", remedy)]


def _without_user_namespaces(name: str, status: Mapping[str, Any]) -> list[Finding]:
    """Return that a node's default runtime has no user namespaces, where the kubelet says so."""
    defaults = [each for each in status.get("runtimeHandlers") or () if not each.get("name")]
    if any((each.get("features") or {}).get("userNamespaces") for each in defaults):
        return []
    info = status.get("nodeInfo") or {}
    runs = f"kernel {info.get('kernelVersion')}, {info.get('containerRuntimeVersion')}"
    return [warned(f"node {name}", f"it has no user namespaces ({runs})", USER_NAMESPACES)]


APPLY_POLICIES: Final = "apply crds/manifests/policies of this version, or upgrade the chart"
POLICY_WORDS: Final = "ValidatingAdmissionPolicy 'cloister-"
"""What the API server begins the denial of one of our policies with."""
FORBIDDEN: Final[dict[str, Any]] = {
    "metadata": {
        "name": "cloister-doctor",
        "annotations": {"kubernetes.io/service-account.name": "default"},
    },
    "type": "kubernetes.io/service-account-token",
}
"""What nobody may write in the namespace of an organization, whatever rights they have."""


async def check_policies(client: KubeClient) -> list[Finding]:
    """Check that every policy exists, fails closed and denies.

    Raises
    ------
    KubeError
        When the server does not respond, or refuses.
    """
    policies = await client.list(POLICY)
    bindings = await client.list(POLICY_BINDING)
    lapsed = lapsed_policies(policies.items, bindings.items)
    wrong = [failed(f"policy {name}", why, APPLY_POLICIES) for name, why in lapsed.items()]
    return wrong or [passed("policies", "all admission policies are bound and fail closed")]


async def try_policy(client: KubeClient, namespace: str | None) -> Finding:
    """Try a forbidden write, without anything being kept.

    Parameters
    ----------
    namespace
        Namespace of an organization; None if there is none yet.

    Raises
    ------
    KubeError
        When the server does not respond.
    """
    check = "forbidden write"
    if namespace is None:
        return warned(
            check,
            "no namespace of an organization exists, so that none could be tried",
            "run this again when there is an organization",
        )
    try:
        await client.create(SECRET, FORBIDDEN, namespace, dry_run=True)
    except Forbidden as error:
        # An account of ours is refused by the policy of its account too, and one of both is named.
        if POLICY_WORDS in str(error):
            return passed(check, f"a token of an account is refused in {namespace}")
        return warned(check, f"it could not be tried: {error}", "run this as an administrator")
    return failed(
        check,
        f"{namespace} takes a Secret that the control plane fills with a token of an account",
        APPLY_POLICIES,
    )


OLDEST: Final = (1, 35)
"""Oldest version of Kubernetes that has what enclaves need."""
CLOCK: Final = timedelta(seconds=10)
"""How far the clocks may differ, as in the log of the programs."""
APPLY: Final = (
    "apply the kinds of this version: cloister crds print | kubectl apply --server-side -f -"
)


async def check_server(client: KubeClient) -> Finding:
    """Check that the API server responds, in a version that has what enclaves need.

    Raises
    ------
    KubeError
        When it does not respond.
    """
    version = await client.server_version()
    found = re.match(r"v(\d+)\.(\d+)", version)
    if found is None or (int(found[1]), int(found[2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        return failed(
            "kubernetes",
            f"the API server is Kubernetes {version}, and {oldest} is the oldest that works",
            f"upgrade the cluster to {oldest} or newer",
        )
    return passed("kubernetes", f"{client.config.server} is Kubernetes {version}")


def check_clock(client: KubeClient) -> Finding:
    """Compare this machine's clock with the API server's, after requests have been sent."""
    offset = client.clock.offset
    if abs(offset) <= CLOCK:
        return passed("clock", "this machine and the API server agree")
    return warned(
        "clock",
        f"the API server's clock differs from this machine's by {offset.total_seconds():.0f} s",
        "have both set by NTP",
    )


async def check_restore(client: KubeClient, namespace: str, lease: str) -> Finding:
    """Check that no restore is unfinished: no operator leads until it is complete.

    Raises
    ------
    KubeError
        When the server does not respond, or refuses.
    """
    try:
        found = await client.get(LEASE, lease, namespace)
    except NotFound:
        found = {}
    holder = (found.get("spec") or {}).get("holderIdentity") or ""
    if holder != RESTORE_HOLDER:
        return passed("restore", "none is unfinished")
    archive = (found["metadata"].get("annotations") or {}).get(RESTORES_ANNOTATION, "unknown")
    return failed(
        "restore",
        f"a restore was begun and is not complete (digest of its archive: {archive}); it holds the "
        f"Lease {namespace}/{lease}, so no operator leads",
        "run cloister restore with the same archive again, which completes it; to give it up, "
        "delete what it restored, then the Lease",
    )


async def check_kinds(client: KubeClient) -> list[Finding]:
    """Check that the kinds are served and stored as this version knows them.

    Raises
    ------
    KubeError
        When the server does not respond, or refuses.
    """
    wrong = []
    for name, text in manifests().items():
        wanted = yaml.safe_load(text)
        crd = f"{name.removesuffix('.yaml')}.{GROUP}"
        try:
            present = await client.get(CUSTOM_RESOURCE_DEFINITION, crd)
        except NotFound:
            wrong.append(failed(f"kind {crd}", "it does not exist", APPLY))
            continue
        wrong += kind_findings(crd, present, wanted)
    return wrong or [passed("kinds", f"{len(manifests())} kinds are served as {VERSION}")]


def kind_findings(crd: str, present: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[Finding]:
    """Return what is wrong with a kind.

    Parameters
    ----------
    present
        Its CustomResourceDefinition on the server.
    """
    check, status = f"kind {crd}", present.get("status") or {}
    conditions = {each["type"]: each["status"] for each in status.get("conditions") or ()}
    if conditions.get("Established") != "True":
        return [failed(check, "the API server does not serve it", APPLY)]
    versions = {each["name"]: each for each in present["spec"]["versions"]}
    stored = [each for each in status.get("storedVersions") or () if each not in versions]
    found = []
    if stored:
        found.append(
            failed(
                check,
                f"objects are stored as {', '.join(stored)}, which it does not have any more",
                "write every object of the kind once, then take the version out of "
                "status.storedVersions",
            )
        )
    if VERSION not in versions or not versions[VERSION]["served"]:
        return [*found, failed(check, f"it is not served as {VERSION}", APPLY)]
    if versions[VERSION]["schema"] != wanted["spec"]["versions"][0]["schema"]:
        found.append(warned(check, "its schema is not that of this version of cloister", APPLY))
    return found
