"""Applies the actions of a decision; each is idempotent."""

import logging
from base64 import b64decode
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import assert_never

from cloister_clients.clock import utc_text
from cloister_clients.kube import AlreadyExists, Conflict, NotFound
from cloister_clients.kube.kinds import CONFIG_MAP, SECRET, SERVICE
from cloister_clients.tracing.spans import traceparent
from cloister_crds.kinds import Deployment, Enclave, HostnameClaim
from cloister_crds.lifecycle.metering import FINALIZER
from cloister_crds.lifecycle.state.observed import Observed, SecretRefKey
from cloister_crds.lifecycle.tracing import FIRST_GENERATION, trace_annotation
from cloister_crds.names import (
    CONTAINER_LABEL,
    MANAGED_BY,
    MANAGED_BY_LABEL,
    ORGANIZATION_LABEL,
    config_map_name,
    deployment_name,
    distinct_label,
    preview_service_name,
    service_name,
    shells_service_name,
    snapshot_name,
)
from cloister_operator.cache.projections import CLAIM, DEPLOYMENT, ENCLAVE
from cloister_operator.context import ProcessContext
from cloister_operator.enclave import paths
from cloister_operator.enclave.built import BuiltEnclave
from cloister_operator.enclave.guest_config.ssh import build_shells_service
from cloister_operator.enclave.network.service import build_preview, build_service, build_tls_route
from cloister_operator.reconcile.children import (
    ApiUnresolved,
    EnclaveRefused,
    build_children,
    ensure_config_map,
    ensure_snapshot,
    needs_snapshot,
    translated_refusal,
)
from cloister_operator.reconcile.metering import record_demoted
from cloister_operator.rollout.decision import (
    Action,
    ClaimHostname,
    CreateEnclave,
    DeleteEnclave,
    DeleteRoute,
    DeleteService,
    EnsureDeployment,
    RecordDemoted,
    RecordServing,
    ReleaseHostname,
    RouteHostname,
    RouteTo,
    ServiceRole,
    TransferHostname,
)
from cloister_operator.workqueue.triggers import Key
from cloister_operator.writer import merge_patch

logger = logging.getLogger(__name__)


async def apply_action(
    context: ProcessContext, key: Key, observed: Observed, action: Action
) -> None:
    """Apply one action of the decision about a Container.

    Raises
    ------
    KubeError
        When the server refuses or cannot be reached; the key is then retried.
    """
    logger.info("%s: %s", key.text, _describe(action))
    match action:
        case CreateEnclave():
            try:
                await _create_enclave(context, key, observed, action)
            except EnclaveRefused as refused:
                logger.warning("%s: %s", key.text, refused)
                # Remembered, so that the next decision reports the refusal instead of another
                # attempt.
                context.memory.refuse(observed.container, action.spec.revision, str(refused))
                context.queue.add(key)
        case DeleteEnclave():
            await context.writer.delete(
                key,
                ENCLAVE,
                key.namespace,
                action.name,
                uid=action.uid,
                resource_version=action.resource_version,
                propagation="Foreground",
            )
        case ClaimHostname() | TransferHostname() | ReleaseHostname():
            await _apply_to_claim(context, key, action)
        case RouteTo() | DeleteService():
            await _apply_to_service(context, key, observed, action)
        case RouteHostname() | DeleteRoute():
            await _apply_to_route(context, key, observed, action)
        case EnsureDeployment():
            await _ensure_deployment(context, key, observed, action.repo)
        case RecordServing():
            serving = next(e for e in observed.enclaves if e.metadata.name == action.enclave)
            await _record_promoted(context, key, serving, action.at)
        case RecordDemoted():
            over = next(e for e in observed.enclaves if e.metadata.name == action.enclave)
            await record_demoted(context, key, over, action.at)
        case _:
            assert_never(action)


_SERVICES = {
    ServiceRole.SERVING: (build_service, service_name),
    ServiceRole.PREVIEW: (build_preview, preview_service_name),
    ServiceRole.SSH: (build_shells_service, shells_service_name),
}
"""How each Service is built, and its name from the Container's."""


async def _apply_to_service(
    context: ProcessContext,
    key: Key,
    observed: Observed,
    action: RouteTo | DeleteService,
) -> None:
    """Point a Service of a Container to an Enclave, or delete it."""
    build, name = _SERVICES[action.role]
    if isinstance(action, RouteTo):
        body = build(observed.container, _slug(observed), action.enclave)
        await context.writer.apply(key, SERVICE, body)
    else:
        await _delete_service(context, key, name(key.name), action.uid)


async def _apply_to_route(
    context: ProcessContext, key: Key, observed: Observed, action: RouteHostname | DeleteRoute
) -> None:
    """Create or delete a TLSRoute of the gateway."""
    kinds, gateway = context.gateway, observed.settings.gateway
    assert kinds is not None
    assert gateway is not None
    namespace = context.settings.operator_namespace
    match action:
        case RouteHostname():
            body = build_tls_route(
                kinds.route,
                observed.container,
                _slug(observed),
                namespace=namespace,
                hostname=action.hostname,
                service=action.service,
                gateway=gateway,
            )
            await context.writer.apply(key, kinds.route, body)
        case DeleteRoute():
            await context.writer.delete(
                key,
                kinds.route,
                namespace,
                action.hostname,
                uid=action.uid,
                resource_version=action.resource_version,
            )


async def _delete_service(context: ProcessContext, key: Key, name: str, uid: str) -> None:
    """Delete a Service in its cached version: one that was pointed elsewhere since stays."""
    entry = context.store.get(SERVICE, key.namespace, name)
    version = None if entry is None else str(entry.version)
    await context.writer.delete(
        key, SERVICE, key.namespace, name, uid=uid, resource_version=version
    )


def _describe(action: Action) -> str:
    """Describe an action for the log: its kind and its subject, never contents."""
    subjects = ("name", "enclave", "hostname", "repo")
    subject = next((str(getattr(action, name)) for name in subjects if hasattr(action, name)), "")
    return f"{type(action).__name__} {subject}"


def _slug(observed: Observed) -> str:
    """Return the slug of the organization; empty if there is none."""
    return observed.organization.metadata.name if observed.organization else ""


async def _create_enclave(
    context: ProcessContext, key: Key, observed: Observed, action: CreateEnclave
) -> None:
    """Create an Enclave with its ConfigMap and snapshot, or whichever of them is missing."""
    enclave = await _ensure_enclave(context, key, observed, action)
    file = action.file
    if file is None:
        file = await _copy_file(context, key, action)
    try:
        built = await build_children(context, enclave, file)
        await _create_children(context, key, action, built)
    except EnclaveRefused as refused:
        context.memory.attempt(enclave).refused = str(refused)
        context.queue.add(Key("Enclave", key.namespace, action.name))


async def _create_children(
    context: ProcessContext, key: Key, action: CreateEnclave, built: BuiltEnclave
) -> None:
    """Create the snapshot and the ConfigMap of an Enclave."""
    plan, enclave = built.plan, built.plan.enclave
    if needs_snapshot(plan):
        values = await _secret_values(context, key, action, plan.secrets)
        await ensure_snapshot(context, key, plan, values)
    state = context.memory.attempt(enclave)
    try:
        await ensure_config_map(context, key, built)
    except ApiUnresolved as missing:
        state.missing_api = str(missing)
        context.queue.add(Key("Enclave", key.namespace, action.name))
        raise
    state.missing_api, state.children_complete = "", True
    context.queue.add(Key("Enclave", key.namespace, action.name))


async def _ensure_enclave(
    context: ProcessContext,
    key: Key,
    observed: Observed,
    action: CreateEnclave,
) -> Enclave:
    """Create the Enclave by POST; one of that name that is ours is adopted."""
    container = observed.container
    signed = {"signedCertificate": True} if context.settings.signed_certificates else {}
    # The annotation lets later reconciles of the Enclave continue this trace.
    traced = trace_annotation(traceparent(), FIRST_GENERATION)
    body = {
        "metadata": {
            "name": action.name,
            "namespace": key.namespace,
            "labels": {
                MANAGED_BY_LABEL: MANAGED_BY,
                ORGANIZATION_LABEL: distinct_label(_slug(observed)),
                CONTAINER_LABEL: service_name(container.metadata.name),
            },
            "ownerReferences": [container.owner_reference()],
            **({"annotations": traced} if traced else {}),
            **({"finalizers": [FINALIZER]} if context.settings.metering else {}),
        },
        "spec": action.spec.wire() | signed,
    }
    try:
        with translated_refusal(f"the Enclave {action.name}"):
            return Enclave.read(await context.writer.create(key, ENCLAVE, body))
    except AlreadyExists as taken:
        # An earlier reconcile may have created it and failed before the cache showed it.
        found = await context.writer.refresh(ENCLAVE, key.namespace, action.name)
        if found is None:
            raise
        enclave = Enclave.read(dict(found))
        owners = {each.uid for each in enclave.metadata.owner_references if each.controller}
        if container.metadata.uid not in owners:
            raise Conflict(
                taken.status, taken.reason, f"Enclave {action.name} belongs to another Container"
            ) from taken
        return enclave


async def _copy_file(context: ProcessContext, key: Key, action: CreateEnclave) -> bytes:
    """Read the file from the ConfigMap of the Enclave that is copied."""
    source = action.copy_from or action.name
    try:
        found = await context.client.get(CONFIG_MAP, config_map_name(source), key.namespace)
    except NotFound:
        _mark_incomplete(context, key, source)
        raise
    return b64decode(found["binaryData"][paths.CONFIG_KEY])


async def _secret_values(
    context: ProcessContext, key: Key, action: CreateEnclave, wanted: Collection[str]
) -> Mapping[str, bytes]:
    """Read the values of secrets: from the snapshot that is copied, else from core Secrets.

    They are dropped after the reconcile and never logged.
    """
    if not wanted:
        return {}
    if action.copy_from is not None:
        try:
            found = await context.client.get(SECRET, snapshot_name(action.copy_from), key.namespace)
        except NotFound:
            _mark_incomplete(context, key, action.copy_from)
            raise
        return {name: b64decode(value) for name, value in (found.get("data") or {}).items()}
    return await _core_values(context, key.namespace, action.secrets)


def _mark_incomplete(context: ProcessContext, key: Key, source: str) -> None:
    """Remember that an Enclave lost its ConfigMap or its snapshot.

    The next reconcile builds its successor from the repository and the core Secrets instead.
    """
    entry = context.store.get(ENCLAVE, key.namespace, source)
    if entry is not None:
        logger.info(
            "%s/%s cannot be copied: its ConfigMap or snapshot is gone", key.namespace, source
        )
        context.memory.attempt(context.models.read(Enclave, entry)).children_complete = False


async def _core_values(
    context: ProcessContext, namespace: str, refs: tuple[SecretRefKey, ...]
) -> Mapping[str, bytes]:
    """Read the values of secrets from core Secrets."""
    values: dict[str, bytes] = {}
    for name in sorted({ref.secret for ref in refs}):
        found = await context.client.get(SECRET, name, namespace)
        data = found.get("data") or {}
        values |= {
            ref.name: b64decode(data[ref.key])
            for ref in refs
            if ref.secret == name and ref.key in data
        }
    return values


async def _apply_to_claim(
    context: ProcessContext, key: Key, action: ClaimHostname | TransferHostname | ReleaseHostname
) -> None:
    """Claim a host name, transfer it from the Container that is replaced, or release it."""
    match action:
        case ClaimHostname():
            await _claim(context, key, action.hostname)
        case TransferHostname():
            await _transfer(context, key, action)
        case ReleaseHostname():
            await _release(context, key, action)


async def _claim(context: ProcessContext, key: Key, hostname: str) -> None:
    """Claim a host name; one that is taken is read into the cache, for the next decision."""
    claim = HostnameClaim.read(
        {
            "metadata": {"name": hostname},
            "spec": {"holder": {"namespace": key.namespace, "name": key.name}},
        }
    )
    try:
        await context.writer.create(key, CLAIM, claim.manifest())
    except AlreadyExists:
        await context.writer.refresh(CLAIM, "", hostname)


async def _transfer(context: ProcessContext, key: Key, action: TransferHostname) -> None:
    """Become the holder of a claim, in the version that was decided on."""
    patch = {
        "metadata": {"resourceVersion": action.resource_version},
        "spec": {"holder": {"name": key.name}},
    }
    await context.writer.patch(key, CLAIM, "", action.hostname, patch)


async def _release(context: ProcessContext, key: Key, action: ReleaseHostname) -> None:
    """Release a claim after its grace period, and after a live read."""
    found = await context.writer.refresh(CLAIM, "", action.hostname)
    if found is None or found["metadata"]["uid"] != action.uid:
        return
    created = datetime.fromisoformat(found["metadata"]["creationTimestamp"])
    left = context.settings.claim_age_seconds - (context.clock() - created).total_seconds()
    if left > 0:
        context.queue.add(key, after=left)
        return
    await context.writer.delete(
        key,
        CLAIM,
        "",
        action.hostname,
        uid=action.uid,
        resource_version=found["metadata"]["resourceVersion"],
    )


async def _ensure_deployment(
    context: ProcessContext, key: Key, observed: Observed, repo: str
) -> None:
    """Create the Deployment of a repository with our label; one that exists is not changed."""
    name = deployment_name(context.decision.repositories.key(repo))
    deployment = Deployment.read(
        {
            "metadata": {
                "name": name,
                "namespace": key.namespace,
                "labels": {
                    MANAGED_BY_LABEL: MANAGED_BY,
                    ORGANIZATION_LABEL: distinct_label(_slug(observed)),
                },
            },
            "spec": {"repo": repo},
        }
    )
    try:
        await context.writer.create(key, DEPLOYMENT, deployment.manifest())
    except AlreadyExists:
        await context.writer.refresh(DEPLOYMENT, key.namespace, name)


async def _record_promoted(
    context: ProcessContext, key: Key, enclave: Enclave, at: datetime
) -> None:
    """Record when an Enclave began to serve, together with what else is new of its status.

    One that is gone needs no record.
    """
    name = enclave.metadata.name
    entry = context.store.get(ENCLAVE, key.namespace, name)
    known = context.models.read(Enclave, entry) if entry is not None else enclave
    news = merge_patch(known.status.wire(), enclave.status.wire())
    patch = {"status": {**news, "serving": True, "promotedAt": utc_text(at)}}
    try:
        await context.writer.patch_status(key, ENCLAVE, key.namespace, name, patch)
    except NotFound:
        logger.info("Enclave %s/%s is gone; promotedAt is not written", key.namespace, name)
