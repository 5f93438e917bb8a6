"""The annotation that carries the trace of a request: when work belongs to it."""

import pytest

from cloister_crds.kinds import Container
from cloister_crds.lifecycle.tracing import TRACE_ANNOTATION, trace_annotation, traceparent_of

SPAN = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def container(
    value: str, *, generation: int = 2, observed: int = 1, reconciling: bool = True
) -> Container:
    """Make a Container with the annotation."""
    condition = {
        "type": "Reconciling",
        "status": "True" if reconciling else "False",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "reason": "Deploying",
    }
    metadata = {"name": "web", "generation": generation, "annotations": {TRACE_ANNOTATION: value}}
    return Container.read(
        {
            "metadata": metadata,
            "spec": {"repo": "acme/web", "tag": "v1"},
            "status": {"observedGeneration": observed, "conditions": [condition]},
        }
    )


def cause(found: Container) -> str:
    """Return the span that work for a Container follows from."""
    return traceparent_of(found, found.status)


def test_work_for_the_generation_of_a_request_belongs_to_its_trace_until_it_is_settled() -> None:
    value = trace_annotation(SPAN, 2)[TRACE_ANNOTATION]
    assert cause(container(value)) == SPAN
    assert cause(container(value, observed=2)) == SPAN
    assert cause(container(value, observed=1, reconciling=False)) == SPAN
    assert cause(container(value, observed=2, reconciling=False)) == ""


def test_a_later_change_by_somebody_else_does_not() -> None:
    assert cause(container(f"2 {SPAN}", generation=3)) == ""


def test_a_span_that_is_not_recorded_is_not_written() -> None:
    assert trace_annotation("", 1) == {}


@pytest.mark.parametrize(
    "value",
    [
        "",
        SPAN,
        f"2 {SPAN} ",
        f"2 {SPAN.upper()}",
        f"2 {SPAN[:-2]}00",
        f"2 01{SPAN[2:]}",
        f"two {SPAN}",
        f"2 {SPAN}\n",
    ],
)
def test_what_is_not_such_an_annotation_names_no_span(value: str) -> None:
    assert cause(container(value)) == ""
