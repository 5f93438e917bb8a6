"""The trace of the request that an object is brought to: how it passes from program to program.

An annotation holds a span (W3C Trace Context, "traceparent") and the generation of the object that
the request makes. Work for that generation belongs to its trace until the object is settled: a
later change by somebody else, and a repetition after hours, do not. The API writes it on Containers
and the operator on Enclaves; an admission policy refuses it to everybody else.
"""

import re

from cloister_crds.kinds.meta import GROUP, ConditionStatus, Resource, Status

__all__ = ["FIRST_GENERATION", "TRACE_ANNOTATION", "trace_annotation", "traceparent_of"]

TRACE_ANNOTATION = f"{GROUP}/trace"
"""Annotation with the generation and the span."""
FIRST_GENERATION = 1
"""Generation of an object that is created (Kubernetes API conventions, "Metadata")."""

_VALUE = re.compile(
    r"(?P<generation>[1-9][0-9]{0,15}) (?P<span>00-[0-9a-f]{32}-[0-9a-f]{16}-0[13])"
)
"""Only spans that are recorded are written: the first flag says so, the second one that the
identifier is random (W3C Trace Context, "trace-flags")."""


def trace_annotation(traceparent: str, generation: int) -> dict[str, str]:
    """Return the annotation of an object that a request creates or changes.

    Parameters
    ----------
    traceparent
        The span of the request; empty if none is recorded, and there is no annotation.
    generation
        The generation of the object after it.
    """
    return {TRACE_ANNOTATION: f"{generation} {traceparent}"} if traceparent else {}


def traceparent_of(resource: Resource, status: Status) -> str:
    """Return the span that caused what is done for an object now; empty if none is known."""
    found = _VALUE.fullmatch(resource.metadata.annotations.get(TRACE_ANNOTATION, ""))
    if found is None or int(found["generation"]) != resource.metadata.generation:
        return ""
    return "" if _is_settled(resource, status) else found["span"]


def _is_settled(resource: Resource, status: Status) -> bool:
    """Return whether nothing is under way for the present spec."""
    under_way = any(
        each.type == "Reconciling" and each.status is ConditionStatus.TRUE
        for each in status.conditions
    )
    return status.observed_generation == resource.metadata.generation and not under_way
