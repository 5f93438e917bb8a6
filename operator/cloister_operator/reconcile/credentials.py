"""The reconcilers of Secrets, SSHKeys and RegistryCredentials.

Whether each is usable, and who uses it.
"""

from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from cloister_clients.kube import NotFound
from cloister_clients.kube.kinds import SECRET
from cloister_clients.registry import CredentialsInvalid, PrivateRegistry, credentials_in
from cloister_crds.kinds import Container, Organization, RegistryCredential, Secret, SSHKey
from cloister_crds.kinds.registrycredential import RegistryCredentialStatus
from cloister_crds.lifecycle.admission.keys import ssh_key_status
from cloister_crds.lifecycle.admission.secrets import bound_by, excluded_by, value_error
from cloister_crds.lifecycle.pause import is_paused
from cloister_crds.lifecycle.state.conditions import ConditionUpdate, merge
from cloister_operator.cache.projections import (
    CONTAINER,
    REGISTRY_CREDENTIAL,
    SECRET_KIND,
    SSH_KEY,
    Body,
)
from cloister_operator.context import ProcessContext
from cloister_operator.reconcile.gather import organization_of
from cloister_operator.reconcile.results import DONE, Result, write_status_throttled
from cloister_operator.workqueue.triggers import Key
from cloister_operator.writer import merge_patch

NO_ORGANIZATION = ConditionUpdate(
    "Ready",
    status=False,
    reason="OrganizationNotFound",
    message="No Organization owns this namespace; create it in the namespace of one.",
)
"""The finding about an object whose value the operator may not read."""
USED_BY_LIMIT = 1000
"""Names in status.usedBy at most; the schema's bound."""


async def reconcile_secret(context: ProcessContext, key: Key) -> Result:
    """Report whether a Secret has a value, and who uses it; the value is dropped after the check.

    Raises
    ------
    KubeError
        When a read or the write fails; the key is then retried.
    """
    entry = context.store.get(SECRET_KIND, key.namespace, key.name)
    if entry is None:
        return DONE
    secret = context.models.read(Secret, entry)
    if is_paused(secret):
        return DONE
    organization = organization_of(context, key.namespace)
    core = await core_secret(context, organization, key.namespace, secret.spec.secret_ref.name)
    containers = [
        context.models.read(Container, each)
        for each in context.store.entries(CONTAINER, key.namespace)
    ]
    users = bound_by(secret, containers, context.decision.repositories)
    generation = secret.metadata.generation
    finding = value_finding(secret, organization, core)
    others = (
        context.models.read(Secret, each)
        for each in context.store.entries(SECRET_KIND, key.namespace)
    )
    # Of two Secrets with one name the older one counts, so a newer one cannot take its place.
    older = excluded_by(secret, others, context.decision.repositories)
    if older is not None:
        finding = name_taken(secret, older)
    status = secret.status.model_copy(
        update={
            "observed_generation": generation,
            "used_by": tuple(each.metadata.name for each in users[:USED_BY_LIMIT]),
            "value_updated_at": written_at(core) if core is not None else None,
            "conditions": merge(
                secret.status.conditions,
                [finding],
                generation=generation,
                now=context.now(),
            ),
        }
    )
    # Throttled: a change of one Container can change the users of many Secrets.
    result = await write_status_throttled(
        context, key, SECRET_KIND, secret.status.wire(), status.wire()
    )
    return looked_at_again(result, finding, context.decision.taken_recheck)


def looked_at_again(result: Result, finding: ConditionUpdate, recheck: timedelta) -> Result:
    """Return the result of a reconcile with the time of the next one: core Secrets are not watched.

    Parameters
    ----------
    recheck
        Time between two looks at a value that cannot be used.
    """
    if finding.status:
        return result
    return replace(result, requeue_after=min(result.requeue_after or recheck, recheck))


async def core_secret(
    context: ProcessContext, organization: Organization | None, namespace: str, name: str
) -> Body | None:
    """Read a core Secret; None if it does not exist, or may not be read.

    Outside of the namespaces of organizations the operator reads no Secrets (docs/accounts.md).
    """
    if organization is None:
        return None
    try:
        return await context.client.get(SECRET, name, namespace)
    except NotFound:
        return None


def value_finding(
    secret: Secret, organization: Organization | None, core: Body | None
) -> ConditionUpdate:
    """Return whether a Secret has a value that can be used, as its condition Ready."""
    if organization is None:
        return NO_ORGANIZATION
    reference = secret.spec.secret_ref
    if core is None:
        message = f"There is no core Secret {reference.name}; create it with key {reference.key}."
        return ConditionUpdate("Ready", status=False, reason="SecretValueMissing", message=message)
    if reference.key not in (core.get("data") or {}):
        message = f"The core Secret {reference.name} has no key {reference.key}; add it."
        return ConditionUpdate("Ready", status=False, reason="SecretValueMissing", message=message)
    error = value_error(secret.spec.name, b64decode(core["data"][reference.key]))
    if error is not None:
        message = f"Key {reference.key} of the core Secret {reference.name} {error}."
        return ConditionUpdate("Ready", status=False, reason="SecretValueUnusable", message=message)
    return ConditionUpdate("Ready", status=True, reason="ValueFound", message="The value is there.")


def name_taken(secret: Secret, older: Secret) -> ConditionUpdate:
    """Return that an older Secret excludes one, as its condition Ready."""
    owner = older.spec.repo or "the organization"
    return ConditionUpdate(
        "Ready",
        status=False,
        reason="SecretNameTaken",
        message=f"The older csec {older.metadata.name} is a secret of {owner} with the name "
        f"{secret.spec.name}, so this one is not used. Delete one of the two, or create this one "
        "with another spec.name.",
    )


def written_at(core: Body) -> datetime | None:
    """Return when a core Secret was last written, by its managed fields; None if not known."""
    metadata = core["metadata"]
    times = [each["time"] for each in metadata.get("managedFields") or () if each.get("time")]
    last = max(times, default=metadata.get("creationTimestamp"))
    return datetime.fromisoformat(last) if last else None


async def reconcile_ssh_key(context: ProcessContext, key: Key) -> Result:
    """Check an SSHKey and report its status.

    Raises
    ------
    KubeError
        When the write fails; the key is then retried.
    """
    entry = context.store.get(SSH_KEY, key.namespace, key.name)
    if entry is None:
        return DONE
    found = context.models.read(SSHKey, entry)
    if is_paused(found):
        return DONE
    containers = [
        context.models.read(Container, each)
        for each in context.store.entries(CONTAINER, key.namespace)
    ]
    status = ssh_key_status(found, containers, context.now())
    return await write_status_throttled(context, key, SSH_KEY, found.status.wire(), status.wire())


CONFIG_KEY = ".dockerconfigjson"
"""Key that the kubelet reads (Kubernetes, "Pull an Image from a Private Registry")."""
CONFIG_TYPE = "kubernetes.io/dockerconfigjson"
"""Type that the core Secret must have for it."""
_RECHECK = timedelta(minutes=1)
"""Time until credentials that are not usable are checked again: core Secrets are not watched."""


@dataclass(frozen=True, slots=True)
class CredentialCheck:
    """The result of a check of credentials."""

    finding: ConditionUpdate
    """The condition Ready."""
    username: str = ""
    """User name; empty if it could not be read."""


async def reconcile_credential(context: ProcessContext, key: Key) -> Result:
    """Check a RegistryCredential and report its status; the value is dropped after the check.

    Raises
    ------
    KubeError
        When a read or the write fails; the key is then retried.
    """
    entry = context.store.get(REGISTRY_CREDENTIAL, key.namespace, key.name)
    if entry is None:
        return DONE
    credential = context.models.read(RegistryCredential, entry)
    if is_paused(credential):
        return DONE
    organization = organization_of(context, key.namespace)
    core = await core_secret(context, organization, key.namespace, credential.spec.secret_ref.name)
    expired = _is_expired(context, credential, core)
    check = check_credential(
        credential,
        organization,
        core,
        expired=expired,
        further=context.settings.registry.private_hosts,
    )
    status = _status(context, credential, core, check, expired=expired)
    patch = merge_patch(credential.status.wire(), status.wire())
    if patch:
        await context.writer.patch_status(
            key, REGISTRY_CREDENTIAL, key.namespace, key.name, {"status": patch}
        )
    # Core Secrets are not watched: what is missing is looked for again after a while.
    return Result(None if check.finding.status else _RECHECK, wrote=bool(patch))


def check_credential(
    credential: RegistryCredential,
    organization: Organization | None,
    core: Body | None,
    *,
    expired: bool,
    further: Mapping[PrivateRegistry, tuple[str, ...]],
) -> CredentialCheck:
    """Return whether credentials can be used.

    Parameters
    ----------
    organization
        Organization of the namespace; None if there is none.
    core
        The core Secret; None if it does not exist.
    further
        Hosts, other than the registries' own, that credentials may be for.
    """
    if organization is None:
        return CredentialCheck(NO_ORGANIZATION)
    if not organization.spec.entitlements.private_registries:
        return _wrong(
            "EntitlementRequired",
            "Credentials of registries need the entitlement privateRegistries, which organization "
            f"{organization.metadata.name} does not have; ask the administrator.",
        )
    return _check_value(credential, core, expired=expired, further=further)


def _check_value(
    credential: RegistryCredential,
    core: Body | None,
    *,
    expired: bool,
    further: Mapping[PrivateRegistry, tuple[str, ...]],
) -> CredentialCheck:
    """Return whether the value of credentials can be used."""
    reference, registry = credential.spec.secret_ref, credential.spec.registry.value
    if core is None or reference.key not in (core.get("data") or {}):
        return _wrong(
            "SecretValueMissing",
            f"There is no core Secret {reference.name} with the key {reference.key}; create it.",
        )
    if core.get("type") != CONFIG_TYPE or reference.key != CONFIG_KEY:
        return _wrong(
            "CredentialsInvalid",
            f"Nodes read credentials only from the key {CONFIG_KEY} of a core Secret of type "
            f"{CONFIG_TYPE}; make {reference.name} one and set secretRef.key.",
        )
    chosen = PrivateRegistry(registry)
    try:
        document = b64decode(core["data"][reference.key])
        found = credentials_in(chosen, document, further.get(chosen, ()))
    except CredentialsInvalid as error:
        return _wrong("CredentialsInvalid", f"Core Secret {reference.name}: {error}.")
    username = found[0].username
    if expired:
        text = f"The registry {registry} refused the credentials of {username}; write new ones."
        return _wrong("CredentialsExpired", text, username)
    text = f"Images of {registry} are looked up and pulled as {username}."
    return CredentialCheck(
        ConditionUpdate("Ready", status=True, reason="CredentialsUsable", message=text), username
    )


def _wrong(reason: str, message: str, username: str = "") -> CredentialCheck:
    return CredentialCheck(
        ConditionUpdate("Ready", status=False, reason=reason, message=message), username
    )


def _is_expired(context: ProcessContext, credential: RegistryCredential, core: Body | None) -> bool:
    """Return whether the registry refused the present value: seen by us, else from the status."""
    if core is None:
        return False
    metadata, before = core["metadata"], credential.status
    said = context.image_lookup.refused(
        metadata["namespace"], metadata["name"], metadata["resourceVersion"]
    )
    if said is not None:
        return said
    return before.expired and before.value_updated_at == written_at(core)


def _status(
    context: ProcessContext,
    credential: RegistryCredential,
    core: Body | None,
    check: CredentialCheck,
    *,
    expired: bool,
) -> RegistryCredentialStatus:
    """Make the next status."""
    generation = credential.metadata.generation
    findings = [check.finding]
    if not check.finding.status:
        stalled = check.finding
        findings.append(ConditionUpdate("Stalled", True, stalled.reason, stalled.message))
    return credential.status.model_copy(
        update={
            "observed_generation": generation,
            "username": check.username,
            "expired": expired,
            "value_updated_at": written_at(core) if core is not None else None,
            "conditions": merge(
                credential.status.conditions, findings, generation=generation, now=context.now()
            ),
        }
    )
