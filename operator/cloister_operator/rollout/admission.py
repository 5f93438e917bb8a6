"""Admission of a request that has no Enclave yet: what is wrong, missing or still to look up.

The stages go from cheap to expensive: spec and cluster, the release, its images and secrets.
Nothing is claimed or created before all of them have passed.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from cloister_crds.backoff import SHORTEST_BACKOFF
from cloister_crds.config.model import ServiceConfig
from cloister_crds.kinds.host import Host
from cloister_crds.kinds.meta import ConditionStatus
from cloister_crds.lifecycle.admission.limits import ImageSize
from cloister_crds.lifecycle.admission.secrets import bind, named_secrets, pull_credentials
from cloister_crds.lifecycle.admission.validation import (
    RequestFacts,
    errors_of,
    file_problems,
    spec_problems,
)
from cloister_crds.lifecycle.kept_request import (
    is_present_release,
    moved_tag_message,
    pinned_commit,
)
from cloister_crds.lifecycle.state.conditions import ConditionUpdate, condition, holds
from cloister_crds.lifecycle.state.observed import (
    Failed,
    Known,
    LookupResult,
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
from cloister_operator.rollout.rollout_state import RolloutState


@dataclass(frozen=True, slots=True)
class AdmissionRefused:
    """Action required; see the message."""

    reason: str
    """Reason from the reasons table: that of the first problem."""
    message: str
    """All problems, for people."""


@dataclass(frozen=True, slots=True)
class AdmissionDelayed:
    """A lookup failed for now and is retried."""

    reason: str
    """Reason from the reasons table."""
    message: str
    """What could not be looked up."""
    retry_at: datetime | None
    """When to retry, in UTC; None means on changes only."""
    needs: tuple[Need, ...] = ()
    """What to look up again now."""


@dataclass(frozen=True, slots=True)
class AdmissionUnresolved:
    """A lookup was not done yet."""

    needs: tuple[Need, ...]
    """What to look up."""


@dataclass(frozen=True, slots=True)
class AdmissionGranted:
    """An Enclave may be created."""

    release: ReleaseFacts
    """The release."""
    config: ServiceConfig
    """Its file."""
    host: Host
    """Host that it runs on."""
    images: tuple[tuple[str, RegistryImage], ...]
    """Images by the container of the file."""
    secrets: tuple[SecretRefKey, ...]
    """Keys of core Secrets with the values of its secrets."""
    pulls: tuple[SecretRefKey, ...] = ()
    """Keys of core Secrets with the credentials that pull its images."""


Admission = AdmissionRefused | AdmissionDelayed | AdmissionUnresolved | AdmissionGranted


def admit(state: RolloutState) -> Admission:
    """Decide whether the wanted request may get an Enclave."""
    facts = _facts(state)
    refusal = _refusal(errors_of(spec_problems(facts)), state) or _recorded_failure(state)
    if refusal is not None:
        return refusal
    refused = state.observed.refused
    if refused is not None and refused[0] == state.revision:
        return AdmissionRefused("EnclaveRefused", refused[1])
    need = release_need(state)
    result = state.observed.results.get(need)
    if not isinstance(result, Known):
        return _unresolved({need: result}, state.now)
    if not isinstance(result.value, ReleaseFacts):
        raise TypeError(f"{need} was resolved to {type(result.value).__name__}")
    return _of_release(state, facts, result.value)


def release_need(state: RolloutState) -> NeedRelease:
    """Return the lookup of the wanted release: the present commit is kept if its tag moved."""
    tag, commit = state.wanted.tag, pinned_commit(state.status, state.wanted)
    return NeedRelease(
        repo=state.wanted.repo,
        tag=tag,
        commit=commit,
        request=state.revision,
        tiers=Tiers.of(state.observed.organization),
        kept=is_present_release(state.status, tag, commit),
    )


def _of_release(state: RolloutState, facts: RequestFacts, release: ReleaseFacts) -> Admission:
    facts = replace(facts, release=release)
    # Before any lookup: a file that is refused needs no queries of registries.
    refusal = _refusal(errors_of(file_problems(facts)), state)
    if refusal is not None:
        return refusal
    config, host, organization = facts.config, facts.host, facts.organization
    if config is None or host is None or organization is None:
        raise AssertionError("the checks let a request without file, host or organization pass")
    refs, _ = bind(
        named_secrets(config),
        repo=state.wanted.repo,
        bound=state.wanted.secrets,
        secrets=state.observed.secrets,
        repositories=state.settings.repositories,
    )
    pulls = pull_credentials(organization, state.observed.credentials)
    images = {
        each.image: NeedImage(
            image=each.image,
            namespace=state.container.metadata.namespace or "",
            credentials=pulls,
            platform=state.settings.platform,
            request=state.revision,
        )
        for each in config.containers
    }
    needs: list[Need] = list(images.values())
    if refs:
        namespace = state.container.metadata.namespace or ""
        needs.append(NeedSecretValues(namespace=namespace, refs=refs, request=state.revision))
    results = {need: state.observed.results.get(need) for need in needs}
    broken = _broken_images(images, results)
    known = replace(facts, images=broken, image_sizes=_image_sizes(images, results))
    refusal = _refusal(errors_of(file_problems(known)), state)
    if refusal is not None:
        return refusal
    # Image problems come first: creating a value does not fix them.
    waiting = _waiting_for_values(results, state)
    if waiting is not None:
        return waiting
    if any(not isinstance(each, Known) for each in results.values()):
        return _unresolved(results, state.now)
    found = tuple(
        (each.name, result.value)
        for each in config.containers
        if isinstance(result := results[images[each.image]], Known)
        and isinstance(result.value, RegistryImage)
    )
    return AdmissionGranted(
        release=release, config=config, host=host, images=found, secrets=refs, pulls=pulls
    )


def _facts(state: RolloutState) -> RequestFacts:
    observed = state.observed
    return RequestFacts(
        name=state.container.display_name,
        spec=state.requested.spec,
        organization=observed.organization,
        hosts=observed.hosts,
        secrets=observed.secrets,
        ssh_keys=observed.ssh_keys,
        domains=observed.domains,
        repositories=state.settings.repositories,
        rank=observed.rank,
        file_limit=state.settings.file_limit,
        image_limit=state.settings.image_limit,
        api_known=state.settings.api_known,
    )


def _refusal(
    errors: tuple[Problem, ...], state: RolloutState
) -> AdmissionRefused | AdmissionDelayed | None:
    """Refuse for problems: what only a change fixes comes before what is temporary."""
    if not errors:
        return None
    lasting = [each for each in errors if not is_transient(each.code)]
    if lasting:
        return AdmissionRefused(reason_for(lasting[0].code).word, format_problems(lasting))
    return AdmissionDelayed(
        reason_for(errors[0].code).word,
        format_problems(errors),
        retry_at=state.now + state.settings.taken_recheck,
    )


def format_problems(problems: Iterable[Problem]) -> str:
    """Format problems as one text, one on a line, with their places in the file."""
    lines = []
    for each in problems:
        place = f" (line {each.line}, column {each.column})" if each.line is not None else ""
        named = each.field and not each.message.startswith(each.field)
        lines.append(f"{each.field}: {each.message}{place}" if named else f"{each.message}{place}")
    return "\n".join(lines)


def _recorded_failure(state: RolloutState) -> AdmissionRefused | None:
    """Return the failure that status has for this very request, if only a change helps.

    What failed permanently is not looked up again: not after a restart of the operator, and not
    when the resolver has dropped the result from its cache.
    """
    status = state.status
    ready = condition(status.conditions, "Ready")
    if ready is None or ready.status is not ConditionStatus.FALSE:
        return None
    if state.was_reported and holds(status.conditions, "Stalled") and is_final(ready.reason):
        return AdmissionRefused(ready.reason, ready.message)
    return None


def _unresolved(
    results: dict[Need, LookupResult | None], now: datetime
) -> AdmissionRefused | AdmissionDelayed | AdmissionUnresolved:
    """Return what follows from lookups of which at least one has no good result."""
    failures = [(need, each) for need, each in results.items() if isinstance(each, Failed)]
    lasting = [each for _, each in failures if not each.transient]
    if lasting:
        message = "\n".join(each.message for each in lasting)
        return AdmissionRefused(reason_for(lasting[0].reason).word, message)
    missing = tuple(need for need, each in results.items() if each is None)
    if not failures:
        return AdmissionUnresolved(missing)
    times = {need: each.retry_at or each.at + SHORTEST_BACKOFF for need, each in failures}
    # A result of the future is from before the clock was set back; its backoff means nothing now.
    due = tuple(need for need, each in failures if times[need] <= now or each.at > now)
    first = failures[0][1]
    return AdmissionDelayed(
        reason=reason_for(first.reason).word,
        message="\n".join(dict.fromkeys(each.message for _, each in failures)),
        retry_at=min((at for at in times.values() if at > now), default=None),
        needs=(*missing, *due),
    )


def _broken_images(
    images: dict[str, NeedImage], results: dict[Need, LookupResult | None]
) -> dict[str, Failed]:
    return {
        image: result
        for image, need in images.items()
        if isinstance(result := results[need], Failed) and not result.transient
    }


def _image_sizes(
    images: dict[str, NeedImage], results: dict[Need, LookupResult | None]
) -> dict[str, ImageSize]:
    return {
        image: ImageSize(result.value.size, result.value.pulled)
        for image, need in images.items()
        if isinstance(result := results[need], Known) and isinstance(result.value, RegistryImage)
    }


def _waiting_for_values(
    results: dict[Need, LookupResult | None], state: RolloutState
) -> AdmissionDelayed | None:
    """Wait for values that do not exist or cannot be used.

    Nothing watches core Secrets, so look them up again.
    """
    for need, result in results.items():
        if not isinstance(result, Known) or not isinstance(result.value, SecretValues):
            continue
        values = result.value
        lines = [
            f"Secret {each.name}: there is no key {each.key!r} in the core Secret "
            f"{each.secret!r}; create it."
            for each in values.missing
        ]
        lines += [f"Secret {each.name}: the value {error}." for each, error in values.unusable]
        if lines:
            retry_at = result.at + state.settings.taken_recheck
            return AdmissionDelayed(
                reason="SecretValueMissing" if values.missing else "SecretValueUnusable",
                message="\n".join(lines),
                retry_at=retry_at if retry_at > state.now else None,
                needs=(need,) if retry_at <= state.now else (),
            )
    return None


def moved_tag_condition(state: RolloutState, tag: str, commit: str) -> list[ConditionUpdate]:
    """Return the condition TagMoved; empty while the tag points to the commit, or nothing served.

    Parameters
    ----------
    tag
        Tag that serves or last served.
    commit
        Its commit; empty if nothing has served.
    """
    if not commit:
        return []
    target = _target(state, tag)
    if target is None:
        known = condition(state.status.conditions, "TagMoved")
        same = (tag, commit) == (state.status.current_tag, state.status.current_commit)
        if known is None or not same:
            return []
        holds = known.status is ConditionStatus.TRUE
        return [ConditionUpdate(known.type, holds, known.reason, known.message)]
    if target == commit:
        return []
    text = moved_tag_message(state.wanted.repo, tag, commit=commit, target=target)
    return [ConditionUpdate("TagMoved", status=True, reason="TagMoved", message=text)]


def _target(state: RolloutState, tag: str) -> str | None:
    """Return the commit that a tag points to by the latest lookup; None if none reports it."""
    found: list[tuple[datetime, str]] = []
    result = state.observed.results.get(release_need(state))
    if isinstance(result, Known) and isinstance(result.value, ReleaseFacts):
        release = result.value
        if release.tag == tag:
            found.append((result.at, release.tag_commit or release.commit))
    followed = state.followed_release.found
    if followed is not None:
        newest, than = followed.value.newest, followed.value.than_commit
        if newest is not None and newest.tag == tag:
            found.append((followed.at, newest.commit))
        elif than and state.container.spec.tag == tag:
            found.append((followed.at, than))
    return max(found)[1] if found else None
