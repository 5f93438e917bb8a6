"""The reconciler of a RegistryCredential: whether it is usable, and whether it was refused."""

from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from cloister_clients.registry import CredentialsInvalid, PrivateRegistry, credentials_in
from cloister_crds.kinds import Organization, RegistryCredential
from cloister_crds.kinds.registrycredential import RegistryCredentialStatus
from cloister_crds.lifecycle.pause import is_paused
from cloister_crds.lifecycle.state.conditions import ConditionUpdate, merge
from cloister_operator.cache.projections import REGISTRY_CREDENTIAL, Body
from cloister_operator.context import ProcessContext
from cloister_operator.reconcile.gather import organization_of
from cloister_operator.reconcile.result import DONE, Result
from cloister_operator.reconcile.secret import NO_ORGANIZATION, core_secret, written_at
from cloister_operator.workqueue.keys import Key
from cloister_operator.writer.merge_patch import merge_patch

__all__ = ["CredentialCheck", "check_credential", "reconcile_credential"]

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
    """User name; empty = it could not be read."""


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
        Organization of the namespace; None = there is none.
    core
        The core Secret; None = it does not exist.
    expired
        Whether the registry refused them.
    further
        Hosts beside the registries' own that credentials may be for.
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
            f"Nodes read credentials from the key {CONFIG_KEY} of a core Secret of type "
            f"{CONFIG_TYPE} alone; make {reference.name} one and set secretRef.key.",
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
