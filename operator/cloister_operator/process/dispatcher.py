"""Workers: take a key from the work queue, run the reconciler of its kind, requeue the key."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from pydantic import ValidationError

from cloister_clients.clock import monotonic
from cloister_clients.kube import Conflict, KindRef, KubeError
from cloister_clients.kube.kinds import POD, SERVICE
from cloister_clients.tracing.spans import is_on, span
from cloister_crds.kinds import Container, Enclave
from cloister_crds.lifecycle.tracing import traceparent_of
from cloister_operator.cache.projections import (
    CLAIM,
    CONTAINER,
    DEPLOYMENT,
    DOMAIN,
    ENCLAVE,
    HOST,
    ORGANIZATION,
    REGISTRY_CREDENTIAL,
    SECRET_KIND,
    SSH_KEY,
)
from cloister_operator.context import ProcessContext
from cloister_operator.reconcile.children import ChildrenMissing
from cloister_operator.reconcile.container import reconcile_container
from cloister_operator.reconcile.credentials import (
    reconcile_credential,
    reconcile_secret,
    reconcile_ssh_key,
)
from cloister_operator.reconcile.deployment import reconcile_deployment
from cloister_operator.reconcile.domain import reconcile_domain, reconcile_route
from cloister_operator.reconcile.enclave import reconcile_enclave
from cloister_operator.reconcile.host import reconcile_host
from cloister_operator.reconcile.hostname_claims import reconcile_claim
from cloister_operator.reconcile.organization import reconcile_organization
from cloister_operator.reconcile.orphans import reconcile_service
from cloister_operator.reconcile.results import Result, report_invalid
from cloister_operator.telemetry.health import CURRENT_OBJECT
from cloister_operator.telemetry.metrics import FAILURES
from cloister_operator.workqueue.triggers import Key
from cloister_operator.writer import LeadershipLost

logger = logging.getLogger(__name__)

RECONCILERS: dict[str, Callable[[ProcessContext, Key], Awaitable[Result]]] = {
    "Container": reconcile_container,
    "Deployment": reconcile_deployment,
    "Domain": reconcile_domain,
    "Enclave": reconcile_enclave,
    "Host": reconcile_host,
    "HostnameClaim": reconcile_claim,
    "Organization": reconcile_organization,
    "RegistryCredential": reconcile_credential,
    "SSHKey": reconcile_ssh_key,
    "Secret": reconcile_secret,
    "Service": reconcile_service,
    "TLSRoute": reconcile_route,
}
"""The reconciler of each kind."""

_KINDS = {
    "Organization": ORGANIZATION,
    "Host": HOST,
    "Container": CONTAINER,
    "Enclave": ENCLAVE,
    "Deployment": DEPLOYMENT,
    "HostnameClaim": CLAIM,
    "Secret": SECRET_KIND,
    "SSHKey": SSH_KEY,
    "RegistryCredential": REGISTRY_CREDENTIAL,
    "Domain": DOMAIN,
}
_CONFLICT_DELAY = 0.2
"""Seconds until a reconcile that met a newer object is repeated."""


async def run_worker(context: ProcessContext) -> None:
    """Reconcile one key after the other, until cancelled."""
    while True:
        key = await context.queue.take()
        CURRENT_OBJECT.set(key.text)
        began = monotonic()
        result = await (_traced(context, key) if is_on() else _reconcile(context, key))
        context.metrics.reconciled(key.kind, result, monotonic() - began)
        context.liveness.heartbeat("workers")
        CURRENT_OBJECT.set("")


async def _traced(context: ProcessContext, key: Key) -> str:
    """Reconcile one key within a span, of the trace of the request that it follows from."""
    name, attributes = f"reconcile {key.kind}", {"cloister.object": key.text}
    with span(name, parent=_cause_of(context, key), attributes=attributes) as current:
        result = await _reconcile(context, key)
        current.set("cloister.result", result)
        if result in FAILURES:
            current.fail(result)
    return result


def _cause_of(context: ProcessContext, key: Key) -> str:
    """Return the span that an object's annotation names for this reconcile; empty if none."""
    store, models, place = context.store, context.models, (key.namespace, key.name)
    try:
        if key.kind == "Container" and (entry := store.get(CONTAINER, *place)) is not None:
            container = models.read(Container, entry)
            return traceparent_of(container, container.status)
        if key.kind == "Enclave" and (entry := store.get(ENCLAVE, *place)) is not None:
            enclave = models.read(Enclave, entry)
            return traceparent_of(enclave, enclave.status)
    except ValidationError:
        # The reconcile reports it.
        return ""
    return ""


async def _reconcile(context: ProcessContext, key: Key) -> str:
    """Reconcile one key, and requeue it where that is needed; return the result for the metrics."""
    try:
        await context.writer.read_uncertain(key)
        result = await RECONCILERS[key.kind](context, key)
    except Conflict as conflict:
        logger.info("%s: %s; reconciling again", key.text, conflict.message)
        await _refresh(context, key)
        # Not a failure: without a backoff, since the next reconcile sees the newer object.
        context.queue.done(key)
        context.queue.add(key, after=_CONFLICT_DELAY)
        return "conflict"
    except LeadershipLost as lost:
        logger.warning("%s: %s", key.text, lost)
        context.queue.failed(key)
        return "fenced"
    except (KubeError, ChildrenMissing) as error:
        delay = context.queue.failed(key)
        logger.warning("%s: %s; retrying in %.1f s", key.text, error, delay)
        return "error"
    except ValidationError as error:
        await _report_invalid(context, key, error)
        return "invalid"
    except Exception:
        delay = context.queue.failed(key)
        logger.exception("%s: the reconcile failed; retrying in %.1f s", key.text, delay)
        return "error"
    context.queue.done(key)
    if result.requeue_after is not None:
        context.queue.add(key, after=max(0.1, result.requeue_after.total_seconds()))
    return "changed" if result.wrote else "unchanged"


async def _report_invalid(context: ProcessContext, key: Key, error: ValidationError) -> None:
    """Report in the conditions of an object and in the log that it, or one it needs, is invalid."""
    delay = context.queue.failed(key)
    logger.error(
        "%s: %s breaks the rules of its kind: %d problems, the first at %s; retrying in %.1f s",
        key.text,
        error.title,
        error.error_count(),
        ".".join(str(part) for part in error.errors(include_input=False)[0]["loc"]),
        delay,
    )
    ref = _KINDS.get(key.kind)
    if ref is None:
        return
    try:
        await report_invalid(context, key, ref, error)
    except (KubeError, LeadershipLost) as failure:
        logger.warning("%s: its conditions cannot be written: %s", key.text, failure)


async def _refresh(context: ProcessContext, key: Key) -> None:
    """Read the object of a key live: the cache is behind the server."""
    try:
        kinds = _kinds(context) | {"Service": SERVICE}
        await context.writer.refresh(kinds[key.kind], key.namespace, key.name)
    except KubeError as error:
        logger.info("%s cannot be read: %s", key.text, error)


def _kinds(context: ProcessContext) -> dict[str, KindRef]:
    """Return the kinds that have a reconciler, owners first."""
    return _KINDS | ({"TLSRoute": context.gateway.route} if context.gateway else {})


def all_keys(context: ProcessContext) -> list[Key]:
    """Return the keys of all objects that have a reconciler, owners first, and of orphans."""
    return [
        *(
            Key(kind, entry.namespace, entry.name)
            for kind, ref in _kinds(context).items()
            for entry in context.store.entries(ref)
        ),
        *(
            Key(kind, entry.namespace, entry.name)
            for kind, ref in (("Service", SERVICE), ("Enclave", POD))
            for entry in context.store.by_index(ref, "ownerless", "true")
        ),
    ]


async def resync(context: ProcessContext) -> None:
    """Reconcile everything from time to time, until cancelled: level-triggered, not by events."""
    while True:
        await asyncio.sleep(context.settings.resync_seconds)
        context.memory.forget_applied()
        for key in all_keys(context):
            context.queue.add(key, low_priority=True)
