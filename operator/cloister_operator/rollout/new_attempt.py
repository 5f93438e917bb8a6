"""How a further Enclave is made: the first attempt of a request, a repetition, a completion."""

from cloister_crds.kinds.enclave import (
    Enclave,
    EnclaveSpec,
    EnclaveSummary,
    ImageFacts,
    OwningContainer,
)
from cloister_crds.lifecycle.admission.gpus import gpu_count
from cloister_crds.lifecycle.admission.host_selection import unenforced_on
from cloister_crds.lifecycle.admission.secret_bindings import bind, named_secrets
from cloister_crds.lifecycle.admission.ssh_keys import keys_of
from cloister_crds.lifecycle.rollout_state import Line, Scene
from cloister_crds.lifecycle.state.decision import CreateEnclave
from cloister_crds.lifecycle.state.observed import Known, NeedRelease, ReleaseFacts, Tiers
from cloister_crds.names import enclave_name
from cloister_operator.rollout.admission import Admitted
from cloister_operator.rollout.recreate_strategy import stops_first

__all__ = ["completion", "first_attempt", "repetition"]


def first_attempt(scene: Scene, admitted: Admitted) -> CreateEnclave:
    """Make the first Enclave of the wanted request.

    Parameters
    ----------
    scene
        What was observed.
    admitted
        What the request may run.
    """
    attempt = scene.next_attempt(scene.revision)
    stopping = stops_first(scene, admitted)
    config, release, request = admitted.config, admitted.release, scene.wanted
    spec = EnclaveSpec(
        container=OwningContainer(
            name=scene.container.metadata.name, uid=scene.container.metadata.uid
        ),
        request=request,
        revision=scene.revision,
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
            unenforced=unenforced_on(admitted.host, config, release.unenforced),
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
        ssh_keys=keys_of(request.ssh_keys, scene.observed.ssh_keys) if request.debug else (),
        host=admitted.host.metadata.name,
        pull_secrets=tuple(sorted({each.secret for each in admitted.pulls})),
        hostnames=scene.hostnames,
        preview="" if stopping else scene.preview,
        stop_first=stopping,
    )
    return CreateEnclave(
        name=enclave_name(scene.container.metadata.name, scene.revision, attempt),
        spec=spec,
        file=release.raw,
        secrets=admitted.secrets,
    )


def repetition(scene: Scene, line: Line) -> CreateEnclave:
    """Make another attempt of a request of which one was lost. Nothing is resolved anew.

    Parameters
    ----------
    scene
        What was observed.
    line
        Attempts of the request; it has an origin.

    Raises
    ------
    ValueError
        When there is nothing to repeat.
    """
    origin = line.origin
    if origin is None:
        raise ValueError("a request without an attempt cannot be repeated")
    revision = origin.spec.revision
    attempt = scene.next_attempt(revision)
    spec = origin.spec.model_copy(
        update={"attempt": attempt, "losses": line.losses(scene.now)},
    )
    return CreateEnclave(
        name=enclave_name(scene.container.metadata.name, revision, attempt),
        spec=spec,
        file=None,
        copy_from=origin.metadata.name,
    )


def completion(scene: Scene, enclave: Enclave) -> CreateEnclave | NeedRelease | None:
    """Complete an Enclave whose making was interrupted before it had its file and secrets.

    Parameters
    ----------
    scene
        What was observed.
    enclave
        The Enclave.

    Returns
    -------
    CreateEnclave | NeedRelease | None
        The same Enclave once more, or what must be asked for it; None while the answer is a
        failure: the progress deadline of the attempt bounds that.
    """
    spec = enclave.spec
    older = [
        each
        for each in scene.everyone
        if each.spec.revision == spec.revision
        and each.spec.attempt < spec.attempt
        and each.metadata.name not in scene.observed.incomplete
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
        tiers=Tiers.of(scene.observed.organization),
    )
    answer = scene.observed.answers.get(need)
    if answer is None:
        return need
    if not isinstance(answer, Known) or not isinstance(answer.value, ReleaseFacts):
        return None
    release = answer.value
    if release.digest != spec.config_digest or release.config is None:
        return None
    refs, _ = bind(
        named_secrets(release.config),
        repo=spec.repo,
        bound=spec.request.secrets,
        secrets=scene.observed.secrets,
    )
    return CreateEnclave(name=enclave.metadata.name, spec=spec, file=release.raw, secrets=refs)
