"""Leaving a node that is drained: the same request starts beside what serves, then takes over.

A PodDisruptionBudget refuses the eviction meanwhile, so that nothing is lost. An enclave with more
than one GPU stays until it is evicted by force: a second one beside it would want as many again.
"""

from dataclasses import replace

from cloister_crds.kinds.container import ContainerPhase
from cloister_crds.kinds.enclave import Enclave
from cloister_crds.lifecycle.rollout_state import Line, Scene, names
from cloister_crds.lifecycle.state.reasons import is_transient
from cloister_crds.lifecycle.state.verdict import Verdict
from cloister_operator.rollout.new_attempt import repetition

__all__ = ["served_enclave_leaves_a_cordoned_node"]


def served_enclave_leaves_a_cordoned_node(scene: Scene) -> Verdict | None:
    """Start the request that serves once more, on another node, and let it take over."""
    serving = scene.serving
    if serving is None or scene.served_line is not None or not _is_to_move(scene, serving):
        return None
    line = scene.wanted_line
    newest = line.newest
    if newest is None or newest.metadata.name == serving.metadata.name:
        return _another(scene, line, serving)
    if line.ready is not None:
        return _verdict(scene, serving, newest, "takes over", active=newest.metadata.name)
    if line.live is not None:
        return _verdict(scene, serving, newest, newest.status.message or "is on its way")
    return _after_a_failure(scene, line, serving, newest)


def _after_a_failure(scene: Scene, line: Line, serving: Enclave, newest: Enclave) -> Verdict:
    """Repeat a successor that was lost, after a wait; leave one that failed for good."""
    told = _verdict(scene, serving, newest, f"failed: {newest.status.message}")
    if not is_transient(newest.status.reason):
        return told
    retry_at = line.retry_at(scene.now)
    return (
        _another(scene, line, serving)
        if retry_at <= scene.now
        else replace(told, retry_at=retry_at)
    )


def _is_to_move(scene: Scene, serving: Enclave) -> bool:
    return serving.metadata.name in scene.observed.cordoned and serving.spec.summary.gpus <= 1


def _another(scene: Scene, line: Line, serving: Enclave) -> Verdict:
    made = repetition(scene, line)
    verdict = _verdict(scene, serving, line.newest, f"attempt {made.spec.attempt} follows")
    return replace(verdict, candidate=made.name, keep=verdict.keep | {made.name}, actions=(made,))


def _verdict(
    scene: Scene, serving: Enclave, newest: Enclave | None, step: str, *, active: str = ""
) -> Verdict:
    name = serving.metadata.name
    candidate = newest.metadata.name if newest is not None else ""
    return Verdict(
        progress=ContainerPhase.READY,
        reason="Serving" if scene.is_routed else "Routing",
        message=f"Tag {serving.spec.tag} serves and leaves node {serving.status.node}, which takes "
        f"no new Pods; its successor {step}",
        settled=scene.is_routed and not active,
        active=active or name,
        candidate="" if candidate in {name, active} else candidate,
        keep=names(newest) if active else names(serving, newest),
        route="" if scene.is_routed else name,
    )
