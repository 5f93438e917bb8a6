"""What must hold at every write of a run, and in its end."""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from typing_extensions import override

from cloister_clients.kube.kinds import ENDPOINT_SLICE, LEASE, NETWORK_POLICY, POD, SERVICE, of
from cloister_crds.kinds import Container, Enclave, HostnameClaim
from cloister_crds.names import CONTAINER_LABEL, service_name
from tests.simulation.apiserver.kinds import Object
from tests.simulation.apiserver.store import Change, Objects, Stored
from tests.simulation.machines import World

__all__ = ["Errors", "Oracles"]

CONTAINER, ENCLAVE, CLAIM = of(Container), of(Enclave), of(HostnameClaim)
DRAIN_SECONDS = 1.5
"""An Enclave serves on for so long after the Service was switched; the setting is a second more,
since times in a status are whole seconds."""
SERVICE_NAME = "kubernetes.io/service-name"
EXPECTED = ("admission policies are not in force",)
"""Errors that the operator logs here, and that are no findings: the world has no policies."""


class Oracles:
    """Observes every change, and notes what must not be."""

    def __init__(self, objects: Objects, world: World) -> None:
        self._objects = objects
        self._world = world
        self._left: dict[str, float] = {}
        self.problems: list[str] = []
        """What must not be, with its time."""
        self.serving_expected = False
        """Whether what serves must serve all the time."""
        objects.observers.append(self._observe)

    def written(self, sender: str) -> None:
        """Note a write of a process that lost the Lease; one that was sent before may be late."""
        lease = next(iter(self._objects.all(LEASE)), None)
        holder = lease.body["spec"].get("holderIdentity") if lease else ""
        if holder not in ("", None, sender):
            self.note(f"{sender} writes although {holder} has the Lease")

    def note(self, text: str) -> None:
        """Note a problem, once."""
        if not any(text in each for each in self.problems):
            self.problems.append(f"{self._world.now:8.2f} {text}")

    def _observe(self, change: Change) -> None:
        ref = change.kind.ref
        if ref == POD:
            self._pod_changed(change)
        elif ref == SERVICE:
            self._service_changed(change)
        elif ref == ENCLAVE:
            self._enclave_changed(change)
        elif ref == CONTAINER and change.after is not None:
            self._container_changed(change.before, change.after)
        elif ref == CLAIM and change.begins_to_go:
            self._claim_released(change)
        elif ref == LEASE and change.before is not None and change.after is not None:
            self._lease_changed(change.before.body["spec"], change.after.body["spec"])

    def _pod_changed(self, change: Change) -> None:
        pod = change.before
        if pod is None:
            assert change.after is not None
            if not self._objects.all(NETWORK_POLICY, change.after.metadata["namespace"]):
                self.note(f"the Pod {change.name} is created before any NetworkPolicy")
        elif change.begins_to_go and self.serving_expected and _healthy(pod):
            if self._selecting(pod):
                self.note(f"the healthy Pod {change.name} ends while a Service selects it")
            left = self._left.get(pod.metadata["uid"])
            if left is not None and self._world.now - left < DRAIN_SECONDS:
                self.note(f"the Pod {change.name} ends before it has drained")

    def _service_changed(self, change: Change) -> None:
        """Note a Service that selected a healthy Pod and selects none afterwards."""
        before = self._selected(change.before) if change.before else []
        after = self._selected(change.after) if change.after else []
        for pod in before:
            if pod not in after:
                self._left[pod.metadata["uid"]] = self._world.now
        if not self.serving_expected:
            return
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
                and self._at_work(each)
            ]
            if len(at_work) > 1:
                self.note(f"more than one Enclave of a revision is at work: {at_work}")
        if old is not None:
            self._metering_changed(change.name, old, new)
            if change.begins_to_go:
                self._history_kept(change.name, old)

    def _at_work(self, enclave: Stored) -> bool:
        """Return whether an Enclave starts or serves: it has not failed, nor has its Pod gone."""
        status = _status(enclave)
        if enclave.deleting or status.get("phase", "").lower() == "failed":
            return False
        place = (enclave.metadata["name"], enclave.metadata["namespace"])
        pod = self._objects.find(POD, *place)
        return not pod.deleting if pod is not None else not status.get("podUID")

    def _metering_changed(self, name: str, old: Stored, new: Stored | None) -> None:
        """Note an Enclave that begins or ends to be metered at another time than it serves."""
        if new is None:
            return
        before, after = _status(old), _status(new)
        pod = self._objects.find(POD, new.metadata["name"], new.metadata["namespace"])
        serves = pod is not None and not pod.deleting and self._selecting(pod)
        if after.get("serving") and not before.get("serving") and not serves:
            self.note(f"the Enclave {name} is metered before a Service selects it")
        if after.get("demotedAt") and not before.get("demotedAt") and serves:
            self.note(f"the metering of {name} ends while a Service selects it")

    def _history_kept(self, name: str, enclave: Stored) -> None:
        """Note an Enclave that goes while its Container's history lacks it."""
        place = (enclave.body["spec"]["container"]["name"], enclave.metadata["namespace"])
        container = self._objects.find(CONTAINER, *place)
        uid = enclave.body["spec"]["container"]["uid"]
        if container is None or container.deleting or container.metadata["uid"] != uid:
            return
        history = _status(container).get("history") or ()
        if all(each["enclave"] != enclave.metadata["name"] for each in history):
            self.note(f"the Enclave {name} goes, and the history of its Container lacks it")

    def _container_changed(self, old: Stored | None, container: Stored) -> None:
        """Ready says that a Service has a healthy Pod's address, stopped that there is no Pod."""
        name, namespace = container.metadata["name"], container.metadata["namespace"]
        was = _status(old).get("phase") if old else ""
        if _status(container).get("phase") == "stopped" != was:
            label = service_name(name)
            for pod in self._objects.all(POD, namespace, f"{CONTAINER_LABEL}={label}"):
                self.note(f"{name} is stopped, and its Pod {pod.metadata['name']} is there")
        if not self.serving_expected or not _is_ready(container):
            return
        service = self._objects.find(SERVICE, name, namespace)
        pods = [pod for pod in self._selected(service) if _healthy(pod)] if service else []
        active = _status(container).get("activeEnclave")
        if not pods:
            self.note(f"{name} is Ready, and its Service selects no healthy Pod")
        elif all(pod.metadata["name"] != active for pod in pods):
            self.note(f"{name} is Ready, and its Service does not select {active}")
        elif old is None or not _is_ready(old):
            slices = self._objects.all(ENDPOINT_SLICE, namespace, f"{SERVICE_NAME}={name}")
            known = {a for s in slices for e in s.body["endpoints"] for a in e["addresses"]}
            if not any(pod.body["status"]["podIP"] in known for pod in pods):
                self.note(f"{name} is Ready, and its Service has no address of a healthy Pod")

    def _claim_released(self, change: Change) -> None:
        """Note a host name that is released while a Pod of its holder is there."""
        assert change.before is not None
        holder = change.before.body["spec"]["holder"]
        label = service_name(holder["name"])
        for pod in self._objects.all(POD, holder["namespace"], f"{CONTAINER_LABEL}={label}"):
            enclave = self._objects.find(ENCLAVE, pod.metadata["name"], holder["namespace"])
            if enclave and change.before.metadata["name"] in enclave.body["spec"]["hostnames"]:
                self.note(f"{change.name} is released while {pod.metadata['name']} serves it")

    def _lease_changed(self, old: Object, new: Object) -> None:
        """Note a Lease that is taken before it has expired."""
        if old.get("holderIdentity") in ("", None, new.get("holderIdentity")):
            return
        renewed, now = (datetime.fromisoformat(each["renewTime"]) for each in (old, new))
        duration = timedelta(seconds=old["leaseDurationSeconds"])
        if now - renewed < duration:
            self.note("a Lease is taken before it has expired")

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


def _status(stored: Stored) -> Object:
    found: Object = stored.body.get("status") or {}
    return found


def _is_ready(container: Stored) -> bool:
    conditions = _status(container).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _healthy(pod: Stored) -> bool:
    statuses = pod.body["status"].get("containerStatuses")
    return bool(statuses) and all(each["ready"] for each in statuses) and not pod.deleting


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
