"""Whether a request that has no Enclave yet may get one: what is wrong, missing or still to ask.

The stages go from cheap to dear: spec and cluster, the release, its images and secrets. Nothing is
claimed or made before all of them have passed.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from cloister_crds.config.model import ServiceConfig
from cloister_crds.kinds.host import Host
from cloister_crds.kinds.meta import ConditionStatus
from cloister_crds.lifecycle.admission.pull_credentials import pull_credentials
from cloister_crds.lifecycle.admission.secret_bindings import bind, named_secrets
from cloister_crds.lifecycle.admission.validation import (
    Question,
    errors_of,
    file_problems,
    spec_problems,
)
from cloister_crds.lifecycle.backoff import SHORTEST_BACK_OFF
from cloister_crds.lifecycle.rollout_state import Scene
from cloister_crds.lifecycle.state.conditions import condition, holds
from cloister_crds.lifecycle.state.observed import (
    Answer,
    Failed,
    Known,
    Need,
    NeedImage,
    NeedRelease,
    NeedSecretValues,
    RegistryImage,
    ReleaseFacts,
    SecretRefKey,
    SecretValues,
    Tiers,
)
from cloister_crds.lifecycle.state.reasons import is_final, is_transient, reason_for
from cloister_crds.problems import Problem

__all__ = ["Admission", "Admitted", "Asking", "Refused", "Waiting", "admit"]


@dataclass(frozen=True, slots=True)
class Refused:
    """Somebody has to change something."""

    reason: str
    """Word of the reasons table: that of the first problem."""
    message: str
    """All problems, for people."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Something could not be had now and is asked for again."""

    reason: str
    """Word of the reasons table."""
    message: str
    """What could not be had."""
    retry_at: datetime | None
    """When to ask again, in UTC; None = when something changes."""
    needs: tuple[Need, ...] = ()
    """What to ask again now."""


@dataclass(frozen=True, slots=True)
class Asking:
    """Something was not asked yet."""

    needs: tuple[Need, ...]
    """What to ask."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """An Enclave may be made."""

    release: ReleaseFacts
    """The release."""
    config: ServiceConfig
    """Its file."""
    host: Host
    """Where it runs."""
    images: tuple[tuple[str, RegistryImage], ...]
    """Images by the container of the file."""
    secrets: tuple[SecretRefKey, ...]
    """Where the values of its secrets lie."""
    pulls: tuple[SecretRefKey, ...] = ()
    """Where the credentials lie that its images are pulled with."""


Admission = Refused | Waiting | Asking | Admitted


def admit(scene: Scene) -> Admission:
    """Decide whether the wanted request may get an Enclave.

    Parameters
    ----------
    scene
        What was observed.

    Returns
    -------
    Admission
        Refused, Waiting, Asking or Admitted.
    """
    question = _question(scene)
    verdict = _judged(errors_of(spec_problems(question)), scene)
    if verdict is not None:
        return verdict
    remembered = _remembered(scene)
    if remembered is not None:
        return remembered
    need = NeedRelease(
        repo=scene.wanted.repo,
        tag=scene.wanted.tag,
        commit=scene.wanted.commit,
        request=scene.revision,
        tiers=Tiers.of(scene.observed.organization),
    )
    answer = scene.observed.answers.get(need)
    if not isinstance(answer, Known):
        return _unanswered({need: answer}, scene.now)
    if not isinstance(answer.value, ReleaseFacts):
        raise TypeError(f"{need} was answered with {type(answer.value).__name__}")
    return _of_release(scene, question, answer.value)


def _of_release(scene: Scene, question: Question, release: ReleaseFacts) -> Admission:
    asked = _with_release(question, release)
    verdict = _judged(errors_of(file_problems(asked)), scene)
    if verdict is not None:
        return verdict
    config, host, organization = asked.config, asked.host, question.organization
    if config is None or host is None or organization is None:
        raise AssertionError("the checks let a question without file, host or organization pass")
    refs, _ = bind(
        named_secrets(config),
        repo=scene.wanted.repo,
        bound=scene.wanted.secrets,
        secrets=scene.observed.secrets,
    )
    pulls = pull_credentials(organization, scene.observed.credentials)
    images = {
        each.image: NeedImage(
            image=each.image,
            namespace=scene.container.metadata.namespace or "",
            credentials=pulls,
            platform=scene.settings.platform,
            request=scene.revision,
        )
        for each in config.containers
    }
    needs: list[Need] = list(images.values())
    if refs:
        namespace = scene.container.metadata.namespace or ""
        needs.append(NeedSecretValues(namespace=namespace, refs=refs, request=scene.revision))
    answers = {need: scene.observed.answers.get(need) for need in needs}
    broken = _broken_images(images, answers)
    verdict = _judged(errors_of(file_problems(_with_images(asked, broken))), scene)
    if verdict is not None:
        return verdict
    missing = _missing_values(answers, scene)
    if missing is not None:
        return missing
    if any(not isinstance(each, Known) for each in answers.values()):
        return _unanswered(answers, scene.now)
    found = tuple(
        (each.name, answer.value)
        for each in config.containers
        if isinstance(answer := answers[images[each.image]], Known)
        and isinstance(answer.value, RegistryImage)
    )
    return Admitted(
        release=release, config=config, host=host, images=found, secrets=refs, pulls=pulls
    )


def _question(scene: Scene) -> Question:
    observed = scene.observed
    return Question(
        name=scene.container.display_name,
        spec=scene.container.spec,
        organization=observed.organization,
        hosts=observed.hosts,
        secrets=observed.secrets,
        ssh_keys=observed.ssh_keys,
        domains=observed.domains,
        rank=observed.rank,
        file_limit=scene.settings.file_limit,
        api_known=scene.settings.api_known,
    )


def _with_release(question: Question, release: ReleaseFacts) -> Question:
    return replace(question, release=release)


def _with_images(question: Question, images: dict[str, Failed]) -> Question:
    return replace(question, images=images)


def _judged(errors: tuple[Problem, ...], scene: Scene) -> Refused | Waiting | None:
    """Make a verdict of problems: what only a change heals comes before what passes by itself."""
    if not errors:
        return None
    lasting = [each for each in errors if not is_transient(each.code)]
    if lasting:
        return Refused(reason_for(lasting[0].code).word, tell(lasting))
    return Waiting(
        reason_for(errors[0].code).word,
        tell(errors),
        retry_at=scene.now + scene.settings.taken_recheck,
    )


def tell(problems: Iterable[Problem]) -> str:
    """Put problems into one text, one on a line, with their places in the file.

    Parameters
    ----------
    problems
        The problems.
    """
    lines = []
    for each in problems:
        place = f" (line {each.line}, column {each.column})" if each.line is not None else ""
        named = each.field and not each.message.startswith(each.field)
        lines.append(f"{each.field}: {each.message}{place}" if named else f"{each.message}{place}")
    return "\n".join(lines)


def _remembered(scene: Scene) -> Refused | None:
    """Answer the failure that status remembers of this very request, if only a change helps.

    What was asked and failed for good is not asked again: not after a restart of the operator, and
    not when the resolver has forgotten its answer.
    """
    status = scene.status
    ready = condition(status.conditions, "Ready")
    if ready is None or ready.status is not ConditionStatus.FALSE:
        return None
    if scene.was_reported and holds(status.conditions, "Stalled") and is_final(ready.reason):
        return Refused(ready.reason, ready.message)
    return None


def _unanswered(answers: dict[Need, Answer | None], now: datetime) -> Refused | Waiting | Asking:
    """Say what follows from questions of which at least one has no good answer."""
    failures = [(need, each) for need, each in answers.items() if isinstance(each, Failed)]
    lasting = [each for _, each in failures if not each.transient]
    if lasting:
        message = "\n".join(each.message for each in lasting)
        return Refused(reason_for(lasting[0].reason).word, message)
    unasked = tuple(need for need, each in answers.items() if each is None)
    if not failures:
        return Asking(unasked)
    times = {need: each.retry_at or each.at + SHORTEST_BACK_OFF for need, each in failures}
    # An answer of the future is from before the clock was set back; its wait means nothing now.
    due = tuple(need for need, each in failures if times[need] <= now or each.at > now)
    first = failures[0][1]
    return Waiting(
        reason=reason_for(first.reason).word,
        message="\n".join(dict.fromkeys(each.message for _, each in failures)),
        retry_at=min((at for at in times.values() if at > now), default=None),
        needs=(*unasked, *due),
    )


def _broken_images(
    images: dict[str, NeedImage], answers: dict[Need, Answer | None]
) -> dict[str, Failed]:
    return {
        image: answer
        for image, need in images.items()
        if isinstance(answer := answers[need], Failed) and not answer.transient
    }


def _missing_values(answers: dict[Need, Answer | None], scene: Scene) -> Waiting | None:
    """Wait for core Secrets that are not there; nothing tells of them, so they are asked again."""
    for need, answer in answers.items():
        if not isinstance(answer, Known) or not isinstance(answer.value, SecretValues):
            continue
        missing = answer.value.missing
        if missing:
            retry_at = answer.at + scene.settings.taken_recheck
            lines = (
                f"Secret {each.name}: there is no key {each.key!r} in the core Secret "
                f"{each.secret!r}; create it."
                for each in missing
            )
            return Waiting(
                reason="SecretValueMissing",
                message="\n".join(lines),
                retry_at=retry_at if retry_at > scene.now else None,
                needs=(need,) if retry_at <= scene.now else (),
            )
    return None
