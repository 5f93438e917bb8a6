"""The children of an Enclave: created once, under deterministic names; ours are adopted."""

from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from cloister_clients.kube import AlreadyExists, Conflict, KindRef, KubeError, NotFound
from cloister_clients.kube.kinds import CONFIG_MAP, POD, PRIORITY_CLASS, RESOURCE_CLAIM, SECRET
from cloister_crds.kinds import Enclave, Host
from cloister_crds.lifecycle.admission.host_selection import profile
from cloister_crds.names import ENCLAVE_LABEL, config_map_name
from cloister_operator.cache.projections import HOST
from cloister_operator.cache.store import CachedObject
from cloister_operator.context import ProcessContext
from cloister_operator.enclave import paths
from cloister_operator.enclave.built import BuiltEnclave, build_enclave, build_snapshot
from cloister_operator.enclave.container import build_gpu_claims
from cloister_operator.enclave.guest_config.certificate import is_signed
from cloister_operator.enclave.plan import EnclavePlan
from cloister_operator.enclave.tenant import build_priority_class
from cloister_operator.lookups.cluster import unresolved
from cloister_operator.reconcile.gather import organization_of
from cloister_operator.reconcile.tenant_isolation import ensure_isolation
from cloister_operator.workqueue.triggers import Key


class ChildrenMissing(Exception):  # noqa: N818 - it names the state
    """The Enclave lacks its ConfigMap, its snapshot, or what they are built from."""


class ApiUnresolved(ChildrenMissing):
    """The Enclave needs the API, and the API's address is not known at present."""


class EnclaveRefused(Exception):  # noqa: N818 - as above
    """The API server does not accept the Enclave or one of its children, however often it is sent.

    The message is a sentence for the user.
    """


@contextmanager
def translated_refusal(what: str) -> Iterator[None]:
    """Raise `EnclaveRefused` when the API server permanently refuses an object."""
    try:
        yield
    except KubeError as error:
        if not error.refuses_object:
            raise
        raise EnclaveRefused(
            f"The API server does not accept {what}: {error.message[:1000]}. Make the file, what "
            "its images say, its variables or its secrets smaller, or correct what is named."
        ) from error


async def build_children(context: ProcessContext, enclave: Enclave, file: bytes) -> BuiltEnclave:
    """Build the children of an Enclave.

    Parameters
    ----------
    file
        Bytes of the Enclave's file.

    Raises
    ------
    ChildrenMissing
        When its organization or Host is gone, or the file is not the one that was decided on.
    """
    parsed = await context.configs.parse(file)
    if parsed.config is None or parsed.digest != enclave.spec.config_digest:
        raise ChildrenMissing(
            f"the stored file of {enclave.metadata.name} is not the one it was created from"
        )
    organization = organization_of(context, enclave.metadata.namespace or "")
    host = context.store.get(HOST, "", enclave.spec.host)
    if organization is None or host is None:
        raise ChildrenMissing(f"the organization or Host of {enclave.metadata.name} is gone")
    plan = EnclavePlan(
        enclave=enclave,
        organization=organization.metadata.name,
        host=_host_of(context, enclave, host),
        config=parsed.config,
        file=file,
    )
    return build_enclave(plan, context.build)


def _host_of(context: ProcessContext, enclave: Enclave, entry: CachedObject) -> Host:
    """Return the Host of an Enclave as the Enclave may use it."""
    host = context.models.read(Host, entry)
    without_tee = enclave.spec.request.disable_confidential
    return host.model_copy(update={"spec": profile(host.spec, without_tee=without_tee)})


async def load_children(context: ProcessContext, key: Key, enclave: Enclave) -> BuiltEnclave:
    """Return the children of an Enclave that has its ConfigMap, before its Pod is created.

    What was published must be what the Pod is created from: when the Host or the platform changed
    since, the ConfigMap is created again.

    Raises
    ------
    ChildrenMissing
        When the ConfigMap or a needed snapshot does not exist.
    KubeError
        When the server cannot be reached.
    """
    name, namespace = enclave.metadata.name, enclave.metadata.namespace
    # Usually just built for the ConfigMap; otherwise, as after a restart, it is built again.
    built = context.memory.take_built(enclave)
    if built is None or not _is_current(context, built):
        try:
            found = await context.client.get(CONFIG_MAP, config_map_name(name), namespace)
        except NotFound as missing:
            raise ChildrenMissing(f"{name} has no ConfigMap") from missing
        _check_owner(found, enclave, CONFIG_MAP)
        built = await build_children(
            context, enclave, b64decode(found["binaryData"][paths.CONFIG_KEY])
        )
        # Deleted and created again, because an immutable ConfigMap cannot be changed.
        if not built.is_published_by(found):
            uid, config_map = found["metadata"]["uid"], built.plan.config_map
            await context.writer.delete(key, CONFIG_MAP, namespace or "", config_map, uid=uid)
            await ensure_config_map(context, key, built)
    plan = built.plan
    if needs_snapshot(plan) and not context.memory.attempt(enclave).children_complete:
        try:
            snapshot = await context.client.get(SECRET, plan.snapshot, namespace)
        except NotFound as missing:
            raise ChildrenMissing(f"{name} has no snapshot of its secrets") from missing
        _check_owner(snapshot, enclave, SECRET)
    return built


def _is_current(context: ProcessContext, built: BuiltEnclave) -> bool:
    """Return whether an Enclave would be built in the same way now."""
    host = context.store.get(HOST, "", built.plan.enclave.spec.host)
    if host is None or built.settings != context.build:
        return False
    return _host_of(context, built.plan.enclave, host) == built.plan.host


async def ensure_config_map(context: ProcessContext, key: Key, built: BuiltEnclave) -> None:
    """Create the ConfigMap of an Enclave.

    Raises
    ------
    ApiUnresolved
        When the Enclave needs the API and that has no address.
    EnclaveRefused
        When somebody else's object has the name.
    Conflict
        When another Enclave's object has the name.
    KubeError
        When the server refuses or cannot be reached.
    """
    network = await context.cluster_network.read()
    plan, api = built.plan, network.api
    if needs_api(plan) and not (api and api.addresses):
        raise ApiUnresolved(unresolved(api.url if api else None))
    found = await _ensure(context, key, plan, CONFIG_MAP, built.config_map(network))
    # An adopted one may publish what another version of the operator or of the Host meant.
    if built.is_published_by(found):
        context.memory.keep_built(built)


def needs_api(plan: EnclavePlan) -> bool:
    """Return whether an Enclave sends requests to the API: for its certificate or about keys."""
    return is_signed(plan) or bool(plan.config.shim.keyed_endpoints)


def needs_snapshot(plan: EnclavePlan) -> bool:
    """Return whether an Enclave has secrets."""
    return bool(plan.secrets)


async def ensure_snapshot(
    context: ProcessContext,
    key: Key,
    plan: EnclavePlan,
    values: Mapping[str, bytes],
) -> None:
    """Create the core Secret with the values of an Enclave's secrets.

    Parameters
    ----------
    values
        Value of each secret that the file names.

    Raises
    ------
    ChildrenMissing
        When a value was deleted since it was checked.
    Conflict
        When another owner's object has the name.
    KubeError
        When the server refuses or cannot be reached.
    """
    missing = [name for name in plan.secrets if name not in values]
    if missing:
        raise ChildrenMissing(f"the secrets {', '.join(missing)} no longer have a value")
    await _ensure(context, key, plan, SECRET, build_snapshot(plan, values))


async def ensure_pod(context: ProcessContext, key: Key, built: BuiltEnclave) -> None:
    """Create the Pod of an Enclave, after the network policies of its namespace and its claims.

    Raises
    ------
    ChildrenMissing
        When its organization is gone.
    Conflict
        When another owner's object has the name.
    KubeError
        When the server refuses or cannot be reached.
    """
    plan = built.plan
    organization = organization_of(context, plan.enclave.metadata.namespace or "")
    if organization is None:
        raise ChildrenMissing(f"the organization of {plan.name} is gone")
    await ensure_isolation(context, key, organization)
    if plan.enclave.spec.stop_first:
        await context.writer.apply(key, PRIORITY_CLASS, build_priority_class())
    for claim in build_gpu_claims(plan):
        await _ensure(context, key, plan, RESOURCE_CLAIM, claim)
    await _ensure(context, key, plan, POD, built.pod())


async def _ensure(
    context: ProcessContext,
    key: Key,
    plan: EnclavePlan,
    ref: KindRef,
    body: dict[str, Any],
) -> Mapping[str, Any]:
    """Create a child; one of that name that belongs to the Enclave is adopted unchanged."""
    try:
        with translated_refusal(f"the {ref.kind} of {plan.name}"):
            return await context.writer.create(key, ref, body)
    except AlreadyExists:
        metadata = body["metadata"]
        found = await context.writer.refresh(ref, metadata["namespace"], metadata["name"])
        if found is None:
            raise
        _check_owner(found, plan.enclave, ref)
        return found


def _check_owner(found: Mapping[str, Any], enclave: Enclave, ref: KindRef) -> None:
    """Refuse to build on an object that the operator did not create for the Enclave.

    Anyone who can create Secrets can write any uid into an owner before the Enclave's own is
    created. What has our label, or names an Enclave as its owner, only the operator may write (the
    admission policy cloister-snapshots), so both are required and not only the uid.

    Raises
    ------
    EnclaveRefused
        When it is not the operator's.
    Conflict
        When it belongs to another Enclave, with which it will go.
    """
    metadata, ours = found["metadata"], enclave.owner_reference()
    owners = [
        each
        for each in metadata.get("ownerReferences") or ()
        if all(each.get(part) == ours[part] for part in ("apiVersion", "kind", "controller"))
    ]
    labelled = (metadata.get("labels") or {}).get(ENCLAVE_LABEL) == enclave.metadata.name
    fixed = ref in {POD, RESOURCE_CLAIM} or bool(found.get("immutable"))
    if not (owners and labelled and fixed):
        raise EnclaveRefused(
            f"{ref.kind} {metadata['name']} exists and was not created by the operator: an enclave "
            "is not made of it. Delete it, and set spec.relaunch to another value."
        )
    if all(each["uid"] != enclave.metadata.uid for each in owners):
        raise Conflict(
            409,
            "AlreadyExists",
            f"{ref.kind} {metadata['name']} exists and belongs to another Enclave",
        )
