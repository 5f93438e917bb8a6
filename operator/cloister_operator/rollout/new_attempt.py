"""New attempts of a request: the first, the next after a loss, one on another node (node drain).

With several GPUs the serving one is deleted first (Recreate strategy).
"""

import math
from dataclasses import replace

from cloister_crds.config.effective import boot_allowance
from cloister_crds.kinds.container import ContainerPhase
from cloister_crds.kinds.enclave import (
    Enclave,
    EnclaveSpec,
    EnclaveSummary,
    ImageFacts,
    OwningContainer,
)
from cloister_crds.lifecycle.admission.host_requirements import gpu_count
from cloister_crds.lifecycle.admission.host_selection import unenforced_fields
from cloister_crds.lifecycle.admission.keys import keys_of
from cloister_crds.lifecycle.admission.secrets import bind, named_secrets
from cloister_crds.lifecycle.state.observed import Known, NeedRelease, ReleaseFacts, Tiers
from cloister_crds.lifecycle.state.reasons import is_transient
from cloister_crds.names import enclave_name
from cloister_operator.rollout.admission import AdmissionGranted
from cloister_operator.rollout.auto_update import RolloutPlan
from cloister_operator.rollout.decision import CreateEnclave
from cloister_operator.rollout.rollout_state import (
    RevisionAttempts,
    RolloutState,
    enclave_names,
    has_failed,
)


def most_gpus(state: RolloutState, admitted: AdmissionGranted) -> int:
    """Return how many GPUs the wanted request has, or what runs, if that has more."""
    wanted = gpu_count(admitted.config, state.wanted.gpus)
    return max(wanted, *(each.spec.summary.gpus for each in _running(state)), 0)


def needs_recreate(state: RolloutState, admitted: AdmissionGranted) -> bool:
    """Return whether what runs must be deleted before the wanted request can start."""
    return bool(_running(state)) and most_gpus(state, admitted) > 1


def _running(state: RolloutState) -> list[Enclave]:
    """Return what serves; else whatever still has a Pod, which may be terminating."""
    if state.serving is not None:
        return [state.serving]
    return [each for each in state.all_enclaves if each.metadata.name in state.observed.pods]


def recreate_deletes_the_present_release(state: RolloutState) -> RolloutPlan | None:
    """Delete what serves once the Pod of the new attempt waits for the GPUs."""
    live = state.wanted_attempts.live
    if live is None or not live.spec.stop_first or state.served_attempts is None:
        return None
    name = live.metadata.name
    if name not in state.observed.pods:
        return None
    return RolloutPlan(
        progress=ContainerPhase.DEPLOYING,
        reason="StopFirst",
        message=f"Tag {live.spec.tag} needs the GPUs of the present release, which is deleted "
        "first.",
        active="",
        candidate=name,
        keep=enclave_names(live),
    )


def first_attempt(state: RolloutState, admitted: AdmissionGranted) -> CreateEnclave:
    """Return the first Enclave of the wanted request."""
    attempt = state.next_attempt_number(state.revision)
    # With Recreate there is no preview: the old release is deleted before the new one starts.
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
        # Copied, because the tag may have moved since: attempts of one request run the same file.
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
    # Another file than the recorded one must not run under its digest.
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


def serving_enclave_moves_off_a_cordoned_node(state: RolloutState) -> RolloutPlan | None:
    """Start another attempt of the request that serves, on another node, and promote it."""
    serving = state.serving
    if serving is None or state.served_attempts is not None or not _must_move(state, serving):
        return None
    attempts = state.wanted_attempts
    newest = attempts.newest
    if newest is None or newest.metadata.name == serving.metadata.name:
        if _one_before_it_drains(state, serving):
            return _plan(state, serving, None, "follows when the previous one has drained")
        return _retry(state, attempts, serving)
    if attempts.ready is not None:
        return _plan(state, serving, newest, "is promoted", active=newest.metadata.name)
    if attempts.live is not None:
        return _plan(state, serving, newest, f"is starting. {newest.status.message}".strip())
    return _after_a_failure(state, attempts, serving, newest)


def _after_a_failure(
    state: RolloutState, attempts: RevisionAttempts, serving: Enclave, newest: Enclave
) -> RolloutPlan:
    """Retry an attempt that was lost, after a backoff; leave one that failed permanently."""
    plan = _plan(state, serving, newest, f"failed: {newest.status.message}")
    if not is_transient(newest.status.reason):
        return plan
    retry_at = attempts.retry_at(state.now)
    return (
        _retry(state, attempts, serving)
        if retry_at <= state.now
        else replace(plan, retry_at=retry_at)
    )


def _one_before_it_drains(state: RolloutState, serving: Enclave) -> bool:
    """Return whether an Enclave that served before is not over.

    Its end counts from the last switch. Where each successor is on a cordoned node again, since the
    Host tolerates that or nodes are cordoned one after the other, none of them would ever end.
    """
    return any(
        each.status.promoted_at is not None and not has_failed(each)
        for each in state.enclaves
        if each.metadata.name != serving.metadata.name
    )


def _must_move(state: RolloutState, serving: Enclave) -> bool:
    return serving.metadata.name in state.observed.cordoned and serving.spec.summary.gpus <= 1


def _retry(state: RolloutState, attempts: RevisionAttempts, serving: Enclave) -> RolloutPlan:
    created = next_attempt(state, attempts)
    plan = _plan(state, serving, attempts.newest, f"attempt {created.spec.attempt} follows")
    plan = replace(plan, candidate=created.name)
    return plan.keeping(frozenset({created.name})).with_actions(created)


def _plan(
    state: RolloutState, serving: Enclave, newest: Enclave | None, step: str, *, active: str = ""
) -> RolloutPlan:
    name = serving.metadata.name
    candidate = newest.metadata.name if newest is not None else ""
    return RolloutPlan(
        progress=ContainerPhase.READY,
        reason="Serving" if state.is_routed else "Routing",
        message=f"Tag {serving.spec.tag} serves and leaves node {serving.status.node}, which takes "
        f"no new Pods; its successor {step}",
        settled=state.is_routed and not active,
        active=active or name,
        candidate="" if candidate in {name, active} else candidate,
        keep=enclave_names(newest) if active else enclave_names(serving, newest),
        route="" if state.is_routed else name,
    )
