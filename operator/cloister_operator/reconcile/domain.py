"""The reconcilers of Domains and of orphaned TLSRoutes."""

import logging
from collections.abc import Mapping

from cloister_clients.kube import NotFound
from cloister_crds.kinds import Container, Domain
from cloister_crds.lifecycle.names.domains import DomainDecision, decide_domain
from cloister_crds.lifecycle.state.conditions import ConditionUpdate, merge
from cloister_crds.names import CONTAINER_ANNOTATION
from cloister_operator.cache.projections import CONTAINER, DOMAIN, domain_index
from cloister_operator.context import ProcessContext
from cloister_operator.reconcile.gather import organization_of
from cloister_operator.reconcile.results import DONE, Result
from cloister_operator.workqueue.triggers import Key
from cloister_operator.writer import merge_patch

_UNSET = (
    "This installation has no settings for custom domains; ask the administrator to set domains in "
    "the operator's settings."
)


async def reconcile_domain(context: ProcessContext, key: Key) -> Result:
    """Look the records of a Domain up when that is due, and report its status.

    Raises
    ------
    KubeError
        When the write fails; the key is then retried.
    """
    entry = context.store.get(DOMAIN, key.namespace, key.name)
    if entry is None:
        return DONE
    domain = context.models.read(Domain, entry)
    decision = _decide(context, domain)
    if decision.need is not None:
        context.resolver.request(decision.need, key)
    patch: Mapping[str, object] = merge_patch(domain.status.wire(), decision.status.wire())
    if patch:
        await context.writer.patch_status(key, DOMAIN, key.namespace, key.name, {"status": patch})
    if decision.forget is not None:
        context.resolver.invalidate(decision.forget)
    return Result(decision.requeue_after, wrote=bool(patch))


def _decide(context: ProcessContext, domain: Domain) -> DomainDecision:
    """Decide about a Domain; without settings nothing is looked up."""
    namespace, now = domain.metadata.namespace or "", context.now()
    if context.domains is None:
        findings = [
            ConditionUpdate(
                kind, status=kind == "Stalled", reason="DomainsNotConfigured", message=_UNSET
            )
            for kind in ("Ready", "Stalled")
        ]
        generation = domain.metadata.generation
        conditions = merge(domain.status.conditions, findings, generation=generation, now=now)
        change = {"observed_generation": generation, "conditions": conditions}
        return DomainDecision(domain.status.model_copy(update=change))
    containers = [
        context.models.read(Container, each)
        for each in context.store.by_index(
            CONTAINER, "domain", domain_index(namespace, domain.spec.domain)
        )
    ]
    return decide_domain(
        domain,
        organization_of(context, namespace),
        containers,
        context.resolver.results,
        context.domains,
        now,
    )


logger = logging.getLogger(__name__)


async def reconcile_route(context: ProcessContext, key: Key) -> Result:
    """Delete a route when its Container is gone.

    Raises
    ------
    KubeError
        When a write or a confirming read fails; the key is then retried.
    """
    if context.gateway is None or key.namespace != context.settings.operator_namespace:
        return DONE
    entry = context.store.get(context.gateway.route, key.namespace, key.name)
    if entry is None:
        return DONE
    metadata = entry.decode()["metadata"]
    annotations = metadata.get("annotations", {})
    namespace, _, name = annotations.get(CONTAINER_ANNOTATION, "").partition("/")
    if not name:
        return DONE
    if context.store.get(CONTAINER, namespace, name) is not None:
        return DONE
    try:
        # The cache may lag: ask the server before a route that serves is deleted.
        context.store.put(CONTAINER, await context.client.get(CONTAINER, name, namespace))
    except NotFound:
        logger.info("%s: its container is gone", key.text)
        await context.writer.delete(
            key,
            context.gateway.route,
            key.namespace,
            key.name,
            uid=entry.uid,
            resource_version=metadata["resourceVersion"],
        )
        return Result(wrote=True)
    return DONE
