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
    QUESTIONS,
    ContainerRow,
    Listed,
    Tone,
    condition_rows,
    container_rows,
    sentence_of,
    tone_of,
)
from cloister_api.errors import ApiError, not_found, unavailable
from cloister_api.schemas.container_responses import ConditionResponse, ManagerResponse
from cloister_crds.kinds import Container
from cloister_crds.kinds.container import ContainerPhase
from cloister_crds.kinds.meta import ConditionStatus


class Record:
    """A record of a container, as far as rows read it."""

    def __init__(self, name: str, status: ContainerPhase, **more: Any) -> None:
        self.id, self.name, self.status = f"id-{name}", name, status
        self.debug, self.repo, self.current_tag = False, "acme/web", "v1"
        self.update_tag: str | None = None
        self.domain = f"{name}.acme.test"
        self.created_at = "2026-11-27T00:00:00Z"
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
def test_every_phase_has_a_tone(phase: ContainerPhase) -> None:
    assert tone_of(phase) in Tone
    assert (tone_of(phase) is Tone.GOOD) == (phase is ContainerPhase.READY)


@pytest.mark.parametrize(
    ("size", "words"),
    [
        ({"cpus": 0}, []),
        ({}, ["2 CPUs", "8,192 MB"]),
        ({"gpus": 1}, ["2 CPUs", "8,192 MB", "1 GPU"]),
        ({"gpus": 8}, ["2 CPUs", "8,192 MB", "8 GPUs"]),
    ],
)
def test_the_size_is_in_words(size: dict[str, int], words: list[str]) -> None:
    assert row_of(Record("web", ContainerPhase.READY, **size)).resources == tuple(words)


READY = {"type": "Ready", "status": "False", "reason": "ImageNotFound"}
CONFIDENTIAL = {"type": "Confidential", "status": "False", "reason": "PolicyUnknown"}


@pytest.mark.parametrize(
    ("phase", "conditions", "reason", "confidential"),
    [
        (ContainerPhase.FAILED, [], "", ("not known", Tone.QUIET)),
        (ContainerPhase.FAILED, [READY], "ImageNotFound", ("not known", Tone.QUIET)),
        (ContainerPhase.DEPLOYING, [READY], "ImageNotFound", ("not known", Tone.QUIET)),
        (
            ContainerPhase.DEPLOYING,
            [READY | {"reason": "Deploying"}],
            "",
            ("not known", Tone.QUIET),
        ),
        # An update failed: what serves goes on serving.
        (ContainerPhase.READY, [READY], "", ("not known", Tone.QUIET)),
        (ContainerPhase.STOPPED, [READY], "", ("not known", Tone.QUIET)),
        (ContainerPhase.DEPLOYING, [READY | {"status": "True"}], "", ("not known", Tone.QUIET)),
        (ContainerPhase.READY, [CONFIDENTIAL], "", ("no", Tone.BAD)),
        (ContainerPhase.READY, [CONFIDENTIAL | {"reason": "NoTee"}], "", ("no", Tone.QUIET)),
        (ContainerPhase.READY, [CONFIDENTIAL | {"status": "True"}], "", ("yes", Tone.GOOD)),
    ],
)
def test_a_row_says_why_it_is_not_ready_and_whether_it_is_confidential(
    phase: ContainerPhase,
    conditions: list[dict[str, str]],
    reason: str,
    confidential: tuple[str, Tone],
) -> None:
    row = row_of(Record("web", phase), conditions)
    assert row.reason == reason
    assert (row.confidential, row.confidential_tone) == confidential


def test_a_row_says_which_tools_manage_it() -> None:
    flux = ManagerResponse(manager="kustomize-controller", fields=["repo", "tag"])
    argo = ManagerResponse(manager="argocd-controller", fields=["variables"])
    (row,) = container_rows([listed(Record("web", ContainerPhase.READY), managers=[argo, flux])])
    assert row.managers == ("argocd-controller", "kustomize-controller")
    assert row.tag_managers == ("kustomize-controller",)


@pytest.mark.parametrize(
    ("kind", "status", "answer", "tone"),
    [
        ("Ready", ConditionStatus.TRUE, "yes", Tone.GOOD),
        ("Ready", ConditionStatus.FALSE, "no", Tone.BAD),
        ("Confidential", ConditionStatus.UNKNOWN, "not known", Tone.BUSY),
        ("Stalled", ConditionStatus.TRUE, "yes", Tone.BAD),
        ("Unenforced", ConditionStatus.FALSE, "no", Tone.GOOD),
        ("Reconciling", ConditionStatus.TRUE, "yes", Tone.QUIET),
        ("OfALaterRelease", ConditionStatus.TRUE, "yes", Tone.GOOD),
    ],
)
def test_conditions_answer_questions(
    kind: str, status: ConditionStatus, answer: str, tone: Tone
) -> None:
    (row,) = condition_rows([condition(kind, status)])
    assert (row.question, row.answer, row.tone) == (QUESTIONS.get(kind, kind), answer, tone)


def test_a_remedy_is_shown_once_and_where_something_is_wrong() -> None:
    def remedy(status: ConditionStatus, said: str) -> str:
        (row,) = condition_rows([condition("Ready", status, message=said, remedy="Push it.")])
        return row.remedy

    assert remedy(ConditionStatus.FALSE, "It is missing.") == "Push it."
    assert remedy(ConditionStatus.FALSE, "It is missing. Push it.") == ""
    assert remedy(ConditionStatus.TRUE, "It is there.") == ""


def test_conditions_are_in_the_order_of_their_questions() -> None:
    kinds = ["Zeta", "Stalled", "Ready", "Alpha"]
    rows = condition_rows([condition(each, ConditionStatus.TRUE) for each in kinds])
    assert [row.about.type for row in rows] == ["Ready", "Stalled", "Alpha", "Zeta"]


def test_the_sentence_of_a_container_is_that_of_ready() -> None:
    both = [condition(each, ConditionStatus.TRUE) for each in ("Available", "Ready")]

    class Status:
        conditions = both

    status: Any = Status()
    found = sentence_of(status)
    assert found is not None
    assert found.about is both[1]
    Status.conditions = both[:1]
    assert sentence_of(status) is None


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
        (not_found("container"), "container not found"),
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
    assert ("Nothing was lost." in text, "retry-after" in page.headers) == (waits, waits)
