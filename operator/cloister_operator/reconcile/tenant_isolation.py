"""Tenant isolation: what guards an organization's namespace, and who may act in it."""

import json
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from cloister_clients.kube import KindRef, NotFound
from cloister_clients.kube.kinds import (
    NETWORK_POLICY,
    POD_DISRUPTION_BUDGET,
    RESOURCE_QUOTA,
    ROLE_BINDING,
)
from cloister_crds.kinds import Organization
from cloister_crds.lifecycle.pause import is_paused
from cloister_operator.context import ProcessContext
from cloister_operator.enclave.network.network_policy import (
    build_network_policy,
    build_shells_policy,
)
from cloister_operator.enclave.network.service import build_reference_grant
from cloister_operator.enclave.tenant import (
    build_disruption_budget,
    build_resource_quota,
    build_role_bindings,
)
from cloister_operator.workqueue.triggers import Key


async def ensure_isolation(context: ProcessContext, key: Key, organization: Organization) -> None:
    """Apply the guards of a namespace, unless this process applied the same ones already.

    Called by the reconciler of the Organization and before a Pod is created: which of them is first
    is chance, and a Pod that runs before its network policy is reachable by everyone. The guards of
    a paused Organization are not changed.

    Parameters
    ----------
    organization
        The Organization; its namespace exists.

    Raises
    ------
    KubeError
        When the server refuses or cannot be reached.
    """
    if is_paused(organization):
        return
    applied = context.memory.organization(organization).applied
    for kind, body in await _guards(context, organization):
        name, manifest = f"{kind.kind} {body['metadata']['name']}", json.dumps(body, sort_keys=True)
        # Guards are not watched; the resync forgets what was applied, which repairs edits by hand.
        if applied.get(name) != manifest:
            await context.writer.apply(key, kind, body)
            applied[name] = manifest


async def delete_isolation(context: ProcessContext, key: Key, organization: Organization) -> None:
    """Delete the guards of a namespace that stays when its Organization goes.

    The operator's own RoleBinding goes last, since it permits the rest: without it nothing is left.

    Raises
    ------
    KubeError
        When the server refuses or cannot be reached.
    """
    guards, namespace = await _guards(context, organization), organization.spec.namespace
    own_kind, own = guards[0]
    with suppress(NotFound):
        await context.client.get(own_kind, own["metadata"]["name"], namespace)
        await _delete_guards(context, key, namespace, guards[::-1])


async def _delete_guards(
    context: ProcessContext,
    key: Key,
    namespace: str,
    guards: Iterable[tuple[KindRef, dict[str, Any]]],
) -> None:
    """Delete guards in this order, where they exist."""
    for kind, body in guards:
        name = body["metadata"]["name"]
        with suppress(NotFound):
            found = await context.client.get(kind, name, namespace)
            uid = found["metadata"]["uid"]
            await context.writer.delete(key, kind, namespace, name, uid=uid)


async def _guards(
    context: ProcessContext, organization: Organization
) -> list[tuple[KindRef, dict[str, Any]]]:
    """Build the guards of a namespace; its RoleBindings first, which permit the operator the rest.

    The authorizer knows a new RoleBinding some moments later: until then the server refuses the
    rest, and the key is repeated.
    """
    slug, namespace = organization.metadata.name, organization.spec.namespace
    resolvers = context.settings.enclave_network.named_resolvers()
    api = (await context.cluster_network.read()).api
    operator, limits = context.settings.operator_namespace, context.default_limits
    counted = context.memory.kinds_counted
    network_policy = build_network_policy(
        slug,
        namespace,
        resolvers,
        api,
        api_pods=context.settings.enclave_network.api_pods.read(operator),
        resolver_pods=context.settings.enclave_network.named_resolver_pods(operator),
    )
    bindings = build_role_bindings(
        slug,
        namespace,
        operator_namespace=operator,
        accounts=context.settings.accounts.by_role(),
    )
    guards: list[tuple[KindRef, dict[str, Any]]] = [
        *((ROLE_BINDING, each) for each in bindings),
        (NETWORK_POLICY, network_policy),
        (NETWORK_POLICY, build_shells_policy(slug, namespace)),
        (POD_DISRUPTION_BUDGET, build_disruption_budget(slug, namespace)),
        (RESOURCE_QUOTA, build_resource_quota(organization, limits, counted=counted)),
    ]
    gateway = context.gateway
    if gateway is not None:
        grant = build_reference_grant(
            gateway.grant, slug, namespace, routes=gateway.route, operator_namespace=operator
        )
        guards.append((gateway.grant, grant))
    return guards
