"""Status of a container, computed only from the Container and its Enclaves."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from cloister_api.cache import CachedContainer, CachedEnclave
from cloister_api.records.container import optional_timestamp, shown_state, timestamp
from cloister_api.schemas.container_responses import (
    BootStageResponse,
    ConditionResponse,
    ContainerStateResponse,
    ContainerStatusResponse,
    EnclaveResponse,
    EventResponse,
    HistoryResponse,
    LatestReleaseResponse,
    ManagerResponse,
)
from cloister_api.schemas.vocabulary import in_api_words
from cloister_clients.clock import utc_text
from cloister_crds.kinds.container import ContainerStatus, LatestRelease
from cloister_crds.kinds.meta import Condition
from cloister_crds.lifecycle.state.reasons import REASONS


def candidate_of(status: ContainerStatus) -> str:
    """Return the name of the starting enclave, or of the failed update; empty if there is none."""
    update = status.update.enclave if status.update is not None else ""
    return status.candidate or update


def status_record(
    held: CachedContainer,
    serving: CachedEnclave | None,
    candidate: CachedEnclave | None,
    managed_by: list[ManagerResponse],
) -> ContainerStatusResponse:
    """Return how a container is.

    Parameters
    ----------
    serving
        The Enclave that serves; None if none does.
    candidate
        The Enclave on its way; None if there is none.
    """
    status, state = held.container.status, shown_state(held.container)
    return ContainerStatusResponse(
        id=held.id,
        status=state.phase,
        observed=status.observed_generation >= held.container.metadata.generation,
        conditions=[condition_record(each) for each in status.conditions],
        history=[
            HistoryResponse(
                enclave=each.enclave,
                tag=each.tag,
                commit=each.commit,
                outcome=each.outcome,
                at=timestamp(each.at),
                started_at=optional_timestamp(each.started_at),
                ready_at=optional_timestamp(each.ready_at),
                promoted_at=optional_timestamp(each.promoted_at),
                reason=each.reason or None,
                measurement=each.measurement or None,
            )
            for each in status.history
        ],
        unenforced=list(status.unenforced),
        managed_by=managed_by,
        serving=enclave_record(serving),
        candidate=enclave_record(candidate),
        latest_release=release_record(status.latest_release),
    )


def condition_record(condition: Condition) -> ConditionResponse:
    """Return the record of a condition, with what its reason means."""
    reason = REASONS.get(condition.reason)
    return ConditionResponse(
        type=condition.type,
        status=condition.status,
        reason=condition.reason,
        message=in_api_words(condition.message),
        since=timestamp(condition.last_transition_time),
        meaning=in_api_words(reason.meaning) if reason is not None else None,
        remedy=(in_api_words(reason.remedy) or None) if reason is not None else None,
    )


def enclave_record(enclave: CachedEnclave | None) -> EnclaveResponse | None:
    """Return the record of an Enclave; None stays None."""
    if enclave is None:
        return None
    status = enclave.status
    return EnclaveResponse(
        enclave=enclave.name,
        revision=enclave.revision,
        attempt=enclave.attempt,
        tag=enclave.tag,
        commit=enclave.commit,
        config_digest=enclave.config_digest,
        host=enclave.host,
        boot_stages=[
            BootStageResponse(
                name=each.name,
                status=each.status,
                duration_ms=each.duration_ms,
                detail=each.detail or None,
            )
            for each in status.boot_stages
        ],
        containers=[
            ContainerStateResponse(
                name=each.name,
                state=each.state,
                restart_count=each.restart_count,
                healthy=each.healthy,
                exit_code=each.exit_code,
                message=each.message or None,
            )
            for each in status.containers
        ],
        phase=status.phase,
        reason=status.reason or None,
        message=in_api_words(status.message) or None,
        measurement=status.measurement or None,
        initdata=status.initdata or None,
        started_at=optional_timestamp(status.started_at),
        ready_at=optional_timestamp(status.ready_at),
        promoted_at=optional_timestamp(status.promoted_at),
    )


def release_record(release: LatestRelease | None) -> LatestReleaseResponse | None:
    """Return the record of the newest release; None stays None."""
    if release is None:
        return None
    return LatestReleaseResponse(
        tag=release.tag,
        commit=release.commit,
        published_at=timestamp(release.published_at),
        followed=release.followed,
    )


def event_record(event: Mapping[str, Any]) -> EventResponse:
    """Return the record of an Event (events.k8s.io/v1)."""
    series = event.get("series") or {}
    at = (
        series.get("lastObservedTime")
        or event.get("eventTime")
        or event.get("deprecatedLastTimestamp")
        or event["metadata"]["creationTimestamp"]
    )
    return EventResponse(
        at=utc_text(datetime.fromisoformat(at)),
        type="Warning" if event.get("type") == "Warning" else "Normal",
        reason=event.get("reason") or "",
        message=in_api_words(event.get("note") or ""),
        count=series.get("count") or event.get("deprecatedCount") or 1,
    )
