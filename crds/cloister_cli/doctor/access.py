"""Checks of the rights of the two accounts, by reviews of the API server's authorizer."""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from cloister_cli.doctor.rights import NEEDED, Right, Scope
from cloister_clients.findings import Finding, failed, passed, warned
from cloister_clients.kube import Forbidden, KindRef, KubeClient, KubeConfig

__all__ = ["DEFAULT_NAMES", "check_access"]

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
"""Reviews at once."""
SHOWN: Final = 8
"""Missing rights that a finding names."""
NODE_LEASES: Final = "kube-node-lease"

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

    Whoever is one of the accounts asks for itself alone, everybody else as each account.

    Parameters
    ----------
    config
        How the server is reached.
    client
        Whoever asks.
    system
        Namespace of the accounts.
    organization
        Namespace of an organization; None = there is none yet.
    names
        Names of the accounts, by program.

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
        Scope.NODE_LEASES: NODE_LEASES,
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
