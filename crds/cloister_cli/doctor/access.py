"""The rights that the two accounts need, and checks of them by the API server's authorizer."""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from cloister_clients.findings import Finding, failed, passed, warned
from cloister_clients.kube import Forbidden, KindRef, KubeClient, KubeConfig


class Scope(StrEnum):
    """Where a right is needed."""

    EVERYWHERE = "everywhere"
    ORGANIZATION = "in namespaces of organizations"
    SYSTEM = "in the namespace of the operator"
    NODE_LEASES = "in kube-node-lease"


@dataclass(frozen=True, slots=True)
class Right:
    """Verbs on resources of one group."""

    scope: Scope
    """Where."""
    group: str
    """API group; empty for the core group."""
    resources: str
    """Resources, separated by spaces."""
    verbs: str
    """Verbs, separated by spaces."""
    names: str = ""
    """Names of the objects, separated by spaces; empty means all."""


EVERYWHERE, ORGANIZATION = Scope.EVERYWHERE, Scope.ORGANIZATION
SYSTEM, NODE_LEASES = Scope.SYSTEM, Scope.NODE_LEASES
NEEDED: Final[dict[str, tuple[Right, ...]]] = {
    "operator": (
        Right(
            EVERYWHERE,
            "cloister.dev",
            "organizations hosts containers enclaves deployments secrets sshkeys "
            "registrycredentials domains hostnameclaims",
            "get list watch",
        ),
        Right(
            EVERYWHERE,
            "cloister.dev",
            "organizations/status hosts/status containers/status enclaves/status "
            "deployments/status secrets/status sshkeys/status "
            "registrycredentials/status domains/status",
            "patch",
        ),
        Right(EVERYWHERE, "cloister.dev", "enclaves", "create patch delete"),
        Right(EVERYWHERE, "cloister.dev", "deployments hostnameclaims", "create delete"),
        Right(EVERYWHERE, "cloister.dev", "hostnameclaims", "patch"),
        Right(EVERYWHERE, "cloister.dev", "organizations", "patch"),
        Right(
            EVERYWHERE,
            "cloister.dev",
            "organizations/finalizers containers/finalizers enclaves/finalizers",
            "update",
        ),
        Right(EVERYWHERE, "", "pods services", "get list watch"),
        Right(EVERYWHERE, "", "namespaces", "get list watch create delete"),
        Right(EVERYWHERE, "rbac.authorization.k8s.io", "rolebindings", "create"),
        Right(
            EVERYWHERE,
            "rbac.authorization.k8s.io",
            "rolebindings",
            "get patch delete",
            "cloister-api-organization cloister-operator-organization",
        ),
        Right(
            EVERYWHERE,
            "rbac.authorization.k8s.io",
            "clusterroles",
            "bind",
            "cloister-api-organization cloister-operator-organization",
        ),
        Right(EVERYWHERE, "", "nodes", "list watch"),
        Right(EVERYWHERE, "events.k8s.io", "events", "create"),
        Right(EVERYWHERE, "discovery.k8s.io", "endpointslices", "list watch"),
        Right(EVERYWHERE, "networking.k8s.io", "servicecidrs", "list"),
        Right(EVERYWHERE, "scheduling.k8s.io", "priorityclasses", "get create patch"),
        Right(EVERYWHERE, "gateway.networking.k8s.io", "tlsroutes", "get list watch"),
        Right(EVERYWHERE, "node.k8s.io", "runtimeclasses", "get"),
        Right(
            EVERYWHERE,
            "admissionregistration.k8s.io",
            "validatingadmissionpolicies validatingadmissionpolicybindings",
            "list",
        ),
        Right(EVERYWHERE, "apiextensions.k8s.io", "customresourcedefinitions", "get"),
        Right(ORGANIZATION, "", "pods", "create delete"),
        Right(ORGANIZATION, "", "services", "create patch delete"),
        Right(ORGANIZATION, "", "secrets", "get list create delete"),
        Right(ORGANIZATION, "", "configmaps", "get create delete"),
        Right(ORGANIZATION, "resource.k8s.io", "resourceclaims", "get create delete"),
        Right(ORGANIZATION, "networking.k8s.io", "networkpolicies", "get create patch delete"),
        Right(ORGANIZATION, "policy", "poddisruptionbudgets", "get create patch delete"),
        Right(ORGANIZATION, "", "resourcequotas", "get create patch delete"),
        Right(
            ORGANIZATION, "gateway.networking.k8s.io", "referencegrants", "get create patch delete"
        ),
        Right(SYSTEM, "coordination.k8s.io", "leases", "get create update"),
        Right(SYSTEM, "", "configmaps", "create patch", "cloister-installation"),
        Right(SYSTEM, "", "resourcequotas", "get", "cloister-kinds"),
        Right(SYSTEM, "gateway.networking.k8s.io", "tlsroutes", "create patch delete"),
        Right(NODE_LEASES, "coordination.k8s.io", "leases", "get"),
    ),
    "api": (
        Right(
            EVERYWHERE,
            "cloister.dev",
            "containers secrets registrycredentials domains",
            "get list watch create patch delete",
        ),
        Right(EVERYWHERE, "cloister.dev", "deployments", "get list watch create patch"),
        Right(EVERYWHERE, "cloister.dev", "sshkeys", "get list watch create delete"),
        Right(EVERYWHERE, "cloister.dev", "organizations enclaves", "get list watch"),
        Right(EVERYWHERE, "cloister.dev", "hosts", "list watch"),
        Right(EVERYWHERE, "cloister.dev", "hostnameclaims", "get list watch create patch"),
        Right(EVERYWHERE, "cloister.dev", "organizations", "patch"),
        Right(EVERYWHERE, "cloister.dev", "organizations/status", "patch"),
        Right(EVERYWHERE, "cloister.dev", "enclaves", "patch"),
        Right(EVERYWHERE, "authentication.k8s.io", "tokenreviews", "create"),
        Right(ORGANIZATION, "", "secrets", "get create patch delete"),
        Right(ORGANIZATION, "", "configmaps", "get"),
        Right(ORGANIZATION, "", "pods/log", "get"),
        Right(ORGANIZATION, "events.k8s.io", "events", "list create"),
        Right(SYSTEM, "", "configmaps", "list watch", "cloister-installation"),
    ),
}
"""What each program needs."""


DEFAULT_NAMES: Final[Mapping[str, str]] = {"operator": "cloister-operator", "api": "cloister-api"}
"""Names of the accounts, by program."""

ACCESS_REVIEW = KindRef(
    "authorization.k8s.io",
    "v1",
    "selfsubjectaccessreviews",
    "SelfSubjectAccessReview",
    namespaced=False,
)
USER_REVIEW = KindRef(
    "authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False
)
AT_ONCE: Final = 16
"""Concurrent reviews."""
SHOWN: Final = 8
"""Missing rights that a finding names."""
LEASE_NAMESPACE: Final = "kube-node-lease"

Question = dict[str, str]


async def check_access(
    config: KubeConfig,
    client: KubeClient,
    *,
    system: str,
    organization: str | None,
    names: Mapping[str, str] = DEFAULT_NAMES,
) -> list[Finding]:
    """Check that both accounts have the rights that this version needs.

    One of the accounts checks only itself; any other caller checks as each account.

    Parameters
    ----------
    config
        How the server is reached.
    organization
        Namespace of an organization; None if there is none yet.

    Raises
    ------
    KubeError
        When the server does not respond.
    """
    review = await client.create(USER_REVIEW, {})
    user = review["status"]["userInfo"]["username"]
    accounts = {
        program: f"system:serviceaccount:{system}:{name}" for program, name in names.items()
    }
    # The accounts of the product cannot impersonate each other.
    if user in accounts.values():
        (program,) = (each for each, account in accounts.items() if account == user)
        return [await _check(client, program, user, system, organization)]
    found = []
    for program, account in accounts.items():
        acting = replace(config, impersonate={"Impersonate-User": (account,)})
        async with KubeClient(
            acting, field_manager=client.field_manager, user_agent=client.field_manager
        ) as impersonating:
            found.append(await _check(impersonating, program, account, system, organization))
    return found


async def _check(
    client: KubeClient, program: str, account: str, system: str, organization: str | None
) -> Finding:
    """Check the rights of one account."""
    check = f"rights of {account.rpartition(':')[2]}"
    questions = [
        question
        for right in NEEDED[program]
        for question in _questions(right, system, organization)
    ]
    gate = asyncio.Semaphore(AT_ONCE)

    async def allowed(question: Question) -> bool:
        async with gate:
            body = {"spec": {"resourceAttributes": question}}
            answer = await client.create(ACCESS_REVIEW, body)
        return bool(answer["status"]["allowed"])

    try:
        answers = await asyncio.gather(*(allowed(question) for question in questions))
    except Forbidden as error:
        remedy = "run this as an administrator, who may impersonate accounts"
        return warned(check, f"they could not be checked: {error}", remedy)
    missing = [_text(each) for each, yes in zip(questions, answers, strict=True) if not yes]
    if not missing:
        return passed(check, f"{account} has all {len(questions)}")
    more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
    return failed(
        check,
        f"{account} may not {', '.join(missing[:SHOWN])}{more}",
        "apply crds/manifests/roles of this version, or upgrade the chart",
    )


def _questions(right: Right, system: str, organization: str | None) -> Iterator[Question]:
    """Yield the reviews of a right; none where there is no namespace to ask about."""
    namespace = {
        Scope.EVERYWHERE: "",
        Scope.SYSTEM: system,
        Scope.NODE_LEASES: LEASE_NAMESPACE,
        Scope.ORGANIZATION: organization,
    }[right.scope]
    if namespace is None:
        return
    for resource in right.resources.split():
        plural, _, subresource = resource.partition("/")
        for verb in right.verbs.split():
            for name in right.names.split() or ("",):
                question = {
                    "group": right.group,
                    "resource": plural,
                    "subresource": subresource,
                    "verb": verb,
                    "name": name,
                    "namespace": namespace,
                }
                yield {key: value for key, value in question.items() if value}


def _text(question: Question) -> str:
    """Return a right in words."""
    resource = question["resource"]
    if "subresource" in question:
        resource += f"/{question['subresource']}"
    if "group" in question:
        resource += f".{question['group']}"
    where = f" in {question['namespace']}" if "namespace" in question else ""
    return f"{question['verb']} {resource}{where}"
