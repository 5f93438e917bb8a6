"""The reconciler of a Domain: the records it needs, their state in DNS, who uses it."""

from collections.abc import Mapping

from cloister_crds.kinds import Container, Domain
from cloister_crds.lifecycle.names.domains import DomainDecision, decide_domain
from cloister_crds.lifecycle.state.conditions import ConditionUpdate, merge
from cloister_operator.cache.projections import CONTAINER, DOMAIN, domain_index
from cloister_operator.context import ProcessContext
from cloister_operator.reconcile.gather import organization_of
from cloister_operator.reconcile.result import DONE, Result
from cloister_operator.workqueue.keys import Key
from cloister_operator.writer.merge_patch import merge_patch

__all__ = ["reconcile_domain"]

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
