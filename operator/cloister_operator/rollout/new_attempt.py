"""New attempts: the first of a request, the next after a loss, the completion of a partial one."""

import math

from cloister_crds.config.effective import boot_allowance
from cloister_crds.kinds.enclave import (
    Enclave,
    EnclaveSpec,
    EnclaveSummary,
    ImageFacts,
    OwningContainer,
)
from cloister_crds.lifecycle.admission.gpus import gpu_count
from cloister_crds.lifecycle.admission.host_selection import unenforced_fields
from cloister_crds.lifecycle.admission.secret_bindings import bind, named_secrets
from cloister_crds.lifecycle.admission.ssh_keys import keys_of
from cloister_crds.lifecycle.state.observed import Known, NeedRelease, ReleaseFacts, Tiers
from cloister_crds.names import enclave_name
from cloister_operator.rollout.admission import AdmissionGranted
from cloister_operator.rollout.decision import CreateEnclave
from cloister_operator.rollout.recreate_strategy import needs_recreate
from cloister_operator.rollout.rollout_state import RevisionAttempts, RolloutState

__all__ = ["completed_attempt", "first_attempt", "next_attempt"]


def first_attempt(state: RolloutState, admitted: AdmissionGranted) -> CreateEnclave:
    """Return the first Enclave of the wanted request."""
    attempt = state.next_attempt_number(state.revision)
    recreate = needs_recreate(state, admitted)
    config, release, request = admitted.config, admitted.release, state.wanted
    spec = EnclaveSpec(
        container=OwningContainer(
            name=state.container.metadata.name, uid=state.container.metadata.uid
        ),
        request=request,
        revision=state.revision,
        attempt=attempt,
        repo=request.repo,
        tag=release.tag,
        commit=release.commit,
        config_digest=release.digest,
        config_file=release.file_name,
        summary=EnclaveSummary(
            cpus=config.cpus,
            memory_mb=config.memory,
            gpus=gpu_count(config, request.gpus),
            containers=tuple(each.name for each in config.containers),
            checks_keys=bool(config.shim.keyed_endpoints),
            upstream=config.shim.upstream_container,
            boot_allowance_seconds=math.ceil(boot_allowance(config).total_seconds()),
            unenforced=unenforced_fields(admitted.host, config, release.unenforced),
            secrets=named_secrets(config),
        ),
        images=tuple(
            ImageFacts(
                container=name,
                image=image.image,
                entrypoint=image.entrypoint,
                cmd=image.cmd,
                env=image.env,
                user=image.user,
                working_dir=image.working_dir,
                stop_signal=image.stop_signal,
            )
            for name, image in admitted.images
        ),
        debug=request.debug,
        ssh_keys=keys_of(request.ssh_keys, state.observed.ssh_keys) if request.debug else (),
        host=admitted.host.metadata.name,
        pull_secrets=tuple(sorted({each.secret for each in admitted.pulls})),
        hostnames=state.hostnames,
        preview="" if recreate else state.preview,
        stop_first=recreate,
        service=state.settings.service,
    )
    return CreateEnclave(
        name=enclave_name(state.container.metadata.name, state.revision, attempt),
        spec=spec,
        file=release.raw,
        secrets=admitted.secrets,
    )


def next_attempt(state: RolloutState, attempts: RevisionAttempts) -> CreateEnclave:
    """Return another attempt of a request of which one was lost. Nothing is resolved again.

    Parameters
    ----------
    attempts
        Attempts of the request; it has an origin.

    Raises
    ------
    ValueError
        When there is no attempt to copy.
    """
    origin = attempts.origin
    if origin is None:
        raise ValueError("a request without an attempt cannot be retried")
    revision = origin.spec.revision
    attempt = state.next_attempt_number(revision)
    spec = origin.spec.model_copy(
        update={"attempt": attempt, "losses": attempts.losses(state.now)},
    )
    return CreateEnclave(
        name=enclave_name(state.container.metadata.name, revision, attempt),
        spec=spec,
        file=None,
        copy_from=origin.metadata.name,
    )


def completed_attempt(state: RolloutState, enclave: Enclave) -> CreateEnclave | NeedRelease | None:
    """Complete an Enclave whose creation was interrupted before it had its file and secrets.

    Returns
    -------
    CreateEnclave | NeedRelease | None
        The same Enclave again, or the lookup that it needs; None while that lookup fails: the
        progress deadline of the attempt bounds that.
    """
    spec = enclave.spec
    older = [
        each
        for each in state.all_enclaves
        if each.spec.revision == spec.revision
        and each.spec.attempt < spec.attempt
        and each.metadata.name not in state.observed.incomplete
    ]
    if older:
        return CreateEnclave(
            name=enclave.metadata.name,
            spec=spec,
            file=None,
            copy_from=max(older, key=lambda each: each.spec.attempt).metadata.name,
        )
    need = NeedRelease(
        repo=spec.repo,
        tag=spec.tag,
        commit=spec.commit,
        request=spec.revision,
        tiers=Tiers.of(state.observed.organization),
        kept=True,
    )
    result = state.observed.results.get(need)
    if result is None:
        return need
    if not isinstance(result, Known) or not isinstance(result.value, ReleaseFacts):
        return None
    release = result.value
    if release.digest != spec.config_digest or release.config is None:
        return None
    refs, _ = bind(
        named_secrets(release.config),
        repo=spec.repo,
        bound=spec.request.secrets,
        secrets=state.observed.secrets,
        repositories=state.settings.repositories,
    )
    return CreateEnclave(name=enclave.metadata.name, spec=spec, file=release.raw, secrets=refs)
