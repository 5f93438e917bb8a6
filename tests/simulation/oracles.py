"""What must hold at every write of a run, and in its end."""

import logging
from collections.abc import Callable

from typing_extensions import override

from cloister_clients.kube.kinds import POD, SERVICE, of
from cloister_crds.kinds import Container, Enclave
from tests.simulation.apiserver.store import Change, Objects, Stored

__all__ = ["Errors", "Oracles"]

CONTAINER, ENCLAVE = of(Container), of(Enclave)
EXPECTED = ("admission policies are not in force",)
"""Errors that the operator logs here, and that are no findings: the world has no policies."""


class Oracles:
    """Observes every change, and notes what must not be."""

    def __init__(self, objects: Objects, moment: Callable[[], str]) -> None:
        self._objects = objects
        self._moment = moment
        self.problems: list[str] = []
        """What must not be, with its time."""
        self.serving_expected = False
        """Whether what serves must serve all the time."""
        objects.observers.append(self._observe)

    def note(self, text: str) -> None:
        """Note a problem, once."""
        if not any(text in each for each in self.problems):
            self.problems.append(f"{self._moment()} {text}")

    def _observe(self, change: Change) -> None:
        ref = change.kind.ref
        if ref == POD and change.begins_to_go:
            self._pod_ends(change)
        elif ref == SERVICE:
            self._service_changed(change)
        elif ref == ENCLAVE:
            self._enclave_changed(change)
        elif ref == CONTAINER and change.after is not None:
            self._container_changed(change.after)

    def _pod_ends(self, change: Change) -> None:
        pod = change.before
        assert pod is not None
        if not self.serving_expected:
            return
        if _healthy(pod) and self._selecting(pod):
            self.note(f"the healthy Pod {change.name} ends while a Service selects it")

    def _service_changed(self, change: Change) -> None:
        """Note a Service that selected a healthy Pod and selects none afterwards."""
        if not self.serving_expected or change.before is None:
            return
        before = self._selected(change.before)
        after = self._selected(change.after) if change.after else []
        if any(_healthy(pod) for pod in before) and not any(_healthy(pod) for pod in after):
            self.note(f"the Service {change.name} selects no healthy Pod any more")

    def _enclave_changed(self, change: Change) -> None:
        old, new = change.before, change.after
        if old is not None and new is not None and old.body["spec"] != new.body["spec"]:
            self.note(f"the spec of the Enclave {change.name} changes")
        if old is None and new is not None:
            spec = new.body["spec"]
            at_work = [
                each.metadata["name"]
                for each in self._objects.all(ENCLAVE, new.metadata["namespace"])
                if each.body["spec"]["container"] == spec["container"]
                and each.body["spec"]["revision"] == spec["revision"]
                and _at_work(each)
            ]
            if len(at_work) > 1:
                self.note(f"more than one Enclave of a revision is at work: {at_work}")

    def _container_changed(self, container: Stored) -> None:
        """Ready says that a Service selects a healthy Pod."""
        conditions = (container.body.get("status") or {}).get("conditions", ())
        ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
        if not ready or not self.serving_expected:
            return
        name, namespace = container.metadata["name"], container.metadata["namespace"]
        service = self._objects.find(SERVICE, name, namespace)
        if service is None or not any(_healthy(pod) for pod in self._selected(service)):
            self.note(f"{name} is Ready, and its Service selects no healthy Pod")

    def _selecting(self, pod: Stored) -> bool:
        namespace = pod.metadata["namespace"]
        labels = pod.metadata.get("labels") or {}
        return any(
            (selector := service.body["spec"].get("selector"))
            and all(labels.get(name) == value for name, value in selector.items())
            for service in self._objects.all(SERVICE, namespace)
        )

    def _selected(self, service: Stored) -> list[Stored]:
        selector = service.body["spec"].get("selector")
        if not selector:
            return []
        return [
            pod
            for pod in self._objects.all(POD, service.metadata["namespace"])
            if all((pod.metadata.get("labels") or {}).get(n) == v for n, v in selector.items())
        ]


def _healthy(pod: Stored) -> bool:
    statuses = pod.body["status"].get("containerStatuses")
    return bool(statuses) and all(each["ready"] for each in statuses) and not pod.deleting


def _at_work(enclave: Stored) -> bool:
    phase = (enclave.body.get("status") or {}).get("phase", "")
    return not enclave.deleting and phase.lower() != "failed"


class Errors(logging.Handler):
    """Notes what the operator logs as an error: none of the faults here is one."""

    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__(logging.ERROR)
        self._note = note

    @override
    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if not text.startswith(EXPECTED):
            self._note(f"the operator logs: {text}")
