"""What pages show: each state has a word, a tone and a place in the order."""

import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import pytest
from jinja2 import Environment

from cloister_api.cache import CachedContainer
from cloister_api.dashboard.app import problem_page
from cloister_api.dashboard.rendering import Pages
from cloister_api.dashboard.rows import (
    PHASES,
    Check,
    ContainerRow,
    Listed,
    Situation,
    Tone,
    checks_of,
    container_rows,
    ready_of,
    situation_of,
    steps_of,
)
from cloister_api.errors import ApiError, not_found, unavailable
from cloister_api.schemas.container_responses import (
    BootStageResponse,
    ConditionResponse,
    ManagerResponse,
)
from cloister_crds.kinds import Container
from cloister_crds.kinds.container import ContainerPhase, UpdatePhase
from cloister_crds.kinds.meta import ConditionStatus


class Record:
    """A record of a container, as far as rows read it."""

    def __init__(self, name: str, status: ContainerPhase, **more: Any) -> None:
        self.id, self.name, self.status = f"id-{name}", name, status
        self.debug, self.repo, self.current_tag = False, "acme/web", "v1"
        self.update_tag: str | None = None
        self.update_status: UpdatePhase | None = None
        self.domain = f"{name}.acme.test"
        self.updated_at = "2026-11-27T00:00:00Z"
        self.cpus, self.memory_mb, self.gpus = 2, 8192, 0
        for field, value in more.items():
            setattr(self, field, value)


COMPLETE = {"message": "So it is.", "lastTransitionTime": "2026-11-27T00:00:00Z"}


def listed(
    record: Record,
    conditions: Sequence[Mapping[str, str]] = (),
    managers: Sequence[ManagerResponse] = (),
) -> Listed:
    item = {
        "metadata": {"name": record.name, "namespace": "org-a", "uid": record.id},
        "spec": {"repo": record.repo, "tag": record.current_tag},
        "status": {"conditions": [{**COMPLETE, **each} for each in conditions]},
    }
    shown: Any = record
    return CachedContainer(Container.read(item), "", {}), shown, managers


def row_of(record: Record, conditions: Sequence[Mapping[str, str]] = ()) -> ContainerRow:
    (row,) = container_rows([listed(record, conditions)])
    return row


def condition(kind: str, status: ConditionStatus, **more: str) -> ConditionResponse:
    texts = {"message": "So it is.", **more}
    return ConditionResponse(
        type=kind, status=status, reason="Because", since="2026-11-27T00:00:00Z", **texts
    )


@pytest.mark.parametrize("phase", list(ContainerPhase))
def test_every_phase_has_a_word_and_a_tone(phase: ContainerPhase) -> None:
    assert PHASES[phase].word
    assert (PHASES[phase].tone is Tone.GOOD) == (phase is ContainerPhase.READY)


READY, FAILED = ContainerPhase.READY, UpdatePhase.FAILED


@pytest.mark.parametrize(
    ("phase", "update", "situation", "word"),
    [
        (READY, None, Situation.RUNNING, None),
        (READY, FAILED, Situation.FAILED, "Update failed"),
        (READY, UpdatePhase.READY, Situation.REVIEW, "Review v2"),
        (READY, UpdatePhase.DEPLOYING, Situation.PROGRESS, "Updating to v2"),
        (ContainerPhase.FAILED, None, Situation.FAILED, None),
        (ContainerPhase.PENDING, None, Situation.PROGRESS, None),
        (ContainerPhase.STOPPED, None, Situation.STOPPED, None),
    ],
)
def test_an_update_is_a_second_status(
    phase: ContainerPhase, update: UpdatePhase | None, situation: Situation, word: str | None
) -> None:
    assert situation_of(phase, update) is situation
    row = row_of(Record("web", phase, update_tag="v2", update_status=update))
    assert (row.update.word if row.update else None) == word
    assert row.about == ("v1 keeps serving" if update is FAILED else "")


@pytest.mark.parametrize(
    ("size", "words"),
    [
        ({"cpus": 0}, ""),
        ({}, "2 CPU, 8 GB"),
        ({"memory_mb": 512}, "2 CPU, 512 MB"),
        ({"gpus": 8}, "2 CPU, 8 GB, 8 GPU"),
    ],
)
def test_the_size_is_in_words(size: dict[str, int], words: str) -> None:
    assert row_of(Record("web", ContainerPhase.READY, **size)).size == words


MISSING = {"type": "Ready", "status": "False", "reason": "ImageNotFound"}
CONFIDENTIAL = {"type": "Confidential", "status": "False", "reason": "PolicyUnknown"}


@pytest.mark.parametrize(
    ("phase", "conditions", "about", "hardware"),
    [
        (ContainerPhase.FAILED, [], "", ""),
        (ContainerPhase.FAILED, [MISSING], "Image not found", ""),
        (ContainerPhase.DEPLOYING, [MISSING], "Image not found", ""),
        (ContainerPhase.DEPLOYING, [MISSING | {"reason": "Deploying"}], "", ""),
        (ContainerPhase.STOPPED, [MISSING], "", ""),
        (ContainerPhase.DEPLOYING, [MISSING | {"status": "True"}], "", ""),
        (READY, [CONFIDENTIAL], "", "Not confidential"),
        (READY, [CONFIDENTIAL | {"reason": "NoTee"}], "", "None"),
        (READY, [CONFIDENTIAL | {"status": "True"}], "", "Confidential"),
    ],
)
def test_a_row_says_why_it_is_not_ready_and_whether_it_is_confidential(
    phase: ContainerPhase, conditions: list[dict[str, str]], about: str, hardware: str
) -> None:
    row = row_of(Record("web", phase), conditions)
    assert (row.about, row.hardware) == (about, hardware)


def test_a_row_says_which_tools_manage_it() -> None:
    flux = ManagerResponse(manager="kustomize-controller", fields=["repo", "tag"])
    argo = ManagerResponse(manager="argocd-controller", fields=["variables"])
    (row,) = container_rows([listed(Record("web", ContainerPhase.READY), managers=[argo, flux])])
    assert row.managers == ("Argo CD", "Flux")
    assert row.tag_managers == ("kustomize-controller",)


def only(conditions: Sequence[ConditionResponse]) -> Check:
    (check,) = checks_of(conditions)
    return check


@pytest.mark.parametrize(
    ("kind", "status", "words", "tone"),
    [
        ("Ready", ConditionStatus.TRUE, "The requested release is serving", Tone.GOOD),
        ("Ready", ConditionStatus.FALSE, "The requested release isn't serving", Tone.BAD),
        (
            "Confidential",
            ConditionStatus.UNKNOWN,
            "Confidential: not reported yet",
            Tone.NONE,
        ),
        ("Unenforced", ConditionStatus.FALSE, "All settings enforced", Tone.GOOD),
        ("OfALaterRelease", ConditionStatus.TRUE, "OfALaterRelease", Tone.GOOD),
    ],
)
def test_conditions_are_checks(kind: str, status: ConditionStatus, words: str, tone: Tone) -> None:
    check = only([condition(kind, status)])
    assert (check.words, check.tone) == (words, tone)


def test_a_remedy_is_shown_once_and_where_something_is_wrong() -> None:
    def why(status: ConditionStatus, said: str) -> str:
        return only([condition("Ready", status, message=said, remedy="Push it.")]).why

    assert why(ConditionStatus.FALSE, "It is missing") == "It is missing. Push it."
    assert why(ConditionStatus.FALSE, "It is missing. Push it.") == "It is missing. Push it."
    assert why(ConditionStatus.TRUE, "It is there.") == ""


def test_checks_are_in_order_and_repeat_nothing() -> None:
    kinds = ["Zeta", "Stalled", "Routed", "Available", "Ready", "Reconciling", "Alpha"]
    found = checks_of([condition(each, ConditionStatus.TRUE) for each in kinds])
    assert [each.about.type for each in found] == ["Ready", "Routed", "Alpha", "Zeta"]
    assert checks_of([condition("Paused", ConditionStatus.FALSE)]) == []


def test_the_check_of_a_container_as_a_whole_is_that_of_ready() -> None:
    both = [condition(each, ConditionStatus.TRUE) for each in ("Available", "Ready")]

    class Status:
        conditions = both

    status: Any = Status()
    found = ready_of(status)
    assert found is not None
    assert found.about is both[1]
    Status.conditions = both[:1]
    assert ready_of(status) is None


def test_a_start_has_three_steps_and_the_failed_one_is_the_last_that_began() -> None:
    words = {
        "config": "ok",
        "gpu-attestation": "skipped",
        "containers": "failed",
        "shim": "pending",
    }
    stages = [BootStageResponse(name=name, status=word) for name, word in words.items()]
    assert [(each.title, each.done, each.of, each.tone) for each in steps_of(stages)] == [
        ("Boot", 2, 2, "good"), ("Start", 0, 1, "bad"), ("Traffic", 0, 1, ""),
    ]  # fmt: skip
    assert steps_of([]) == []


TEMPLATES = files("cloister_api.dashboard").joinpath("templates")


@pytest.mark.parametrize("name", sorted(each.name for each in TEMPLATES.iterdir()))
def test_templates_have_no_inline_script_and_trust_no_text(name: str) -> None:
    text = TEMPLATES.joinpath(name).read_text()
    Environment(autoescape=True).parse(text)
    for forbidden in (
        r"\|\s*safe",
        r"<script(?! src=)",
        r"\sstyle=",
        r"\son[a-z]+=",
        r"javascript:",
    ):
        assert re.search(forbidden, text) is None, f"{name} has {forbidden}"
    for image in re.findall(r"<img[^>]*>", text):
        assert " alt=" in image
    for button in re.findall(r"<button[^>]*>", text):
        assert " type=" in button
    for form in re.findall(r"<form[^>]*>", text):
        assert 'method="post"' in form or 'role="search"' in form


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ApiError(429, "RATE_LIMITED", "too many requests", retry_after=1), "again in 1 second."),
        (unavailable("the cluster is <away>", retry_after=30), "again in 30 seconds."),
        (not_found("container"), "Container not found"),
    ],
)
def test_a_page_that_cannot_be_shown_says_why_and_when_to_come_back(
    error: ApiError, words: str
) -> None:
    page = problem_page(Pages(), error, "3f2a", None)
    text = bytes(page.body).decode()
    assert page.status_code == error.status
    assert words in text
    assert "<code>3f2a</code>" in text
    assert "<away>" not in text
    waits = error.retry_after is not None
    assert ("Nothing was changed." in text, "retry-after" in page.headers) == (waits, waits)
