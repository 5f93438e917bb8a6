"""The rest of a cluster, by callbacks on the API server's machine: scheduler, kubelet, controllers.

Each does what the real one does to the objects that Cloister reads, some time later: how long is a
choice within the range that was seen on a real node.
"""

import copy
import itertools
from collections.abc import Callable
from typing import Any

from cloister_clients.kube.kinds import ENDPOINT_SLICE, NAMESPACE, POD, RESOURCE_QUOTA, SERVICE
from tests.simulation.apiserver.http import ApiServer
from tests.simulation.apiserver.kinds import KindModel, Object, all_kinds
from tests.simulation.apiserver.store import FOREGROUND, Change, Stored
from tests.support.builders.enclave_plans import of_file

__all__ = ["Cluster"]

NODE_NAME = "node-1"
KUBELET = ("kubelet", "Update", "status")
SCHEDULER = ("kube-scheduler", "Update", "")
CONTROLLERS = ("kube-controller-manager", "Update", "")
_PODS, _NODES = all_kinds()["", "v1", "pods"], all_kinds()["", "v1", "nodes"]
_SLICES = all_kinds()["discovery.k8s.io", "v1", "endpointslices"]
_QUOTAS = all_kinds()["", "v1", "resourcequotas"]
_NAMESPACES = all_kinds()["", "v1", "namespaces"]


class Cluster:
    """What makes Pods run, Services point to them, and dependents go."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.objects = server.objects
        self.outcome: Callable[[Stored], int | None] = lambda pod: None
        """Pod -> exit code of its first container; None: it runs."""
        self._addresses = itertools.count(10)
        self.objects.observers.append(self._observe)

    def add_node(self) -> None:
        """Have a node that is ready."""
        node = {"metadata": {"name": NODE_NAME}, "spec": {"podCIDRs": ["10.99.0.0/16"]}}
        made = self.objects.create(_NODES, node, CONTROLLERS)
        status = {
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.9"}],
        }
        new = {**made.body, "status": status}
        self.objects.update(_NODES, made, new, KUBELET, subresource="status")

    def _later(
        self, least: float, most: float, why: str, what: Callable[..., None], *arguments: Any
    ) -> None:
        delay = self.server.world.choices.seconds(least, most, why)
        self.server.machine.call_later(delay, what, *arguments)

    def _observe(self, change: Change) -> None:
        ref = change.kind.ref
        stored = change.after or change.before
        assert stored is not None
        if ref == RESOURCE_QUOTA and change.after is not None:
            self._later(0.05, 0.5, "a quota is counted", self._count, stored)
        if ref == POD:
            self._pod_changed(change, stored)
        if ref in (POD, SERVICE):
            namespace = stored.metadata["namespace"]
            self._later(0.005, 0.2, "endpoints are written", self._write_slices, namespace)
        if ref == NAMESPACE and change.begins_to_go:
            self._later(0.1, 1, "a namespace is emptied", self._empty, stored.metadata["name"])
        if change.after is not None and FOREGROUND in stored.metadata.get("finalizers", ()):
            place = (change.kind, stored.metadata["name"], stored.metadata.get("namespace", ""))
            self._later(0.02, 1, "dependents go first", self._collect_first, *place)
        if change.after is None:
            uid = stored.metadata["uid"]
            self._later(0.02, 1, "dependents are collected", self._collect, uid)
        elif change.before is None and stored.metadata.get("ownerReferences"):
            self._later(0.02, 1, "an owner is looked for", self._look_for_owner, stored)

    def _pod_changed(self, change: Change, pod: Stored) -> None:
        place = (pod.metadata["name"], pod.metadata["namespace"], pod.metadata["uid"])
        if change.before is None:
            self._later(0.01, 0.3, "a Pod is scheduled", self._schedule, *place)
        elif change.begins_to_go and change.after is not None:
            self._later(0.05, 2, "a Pod ends", self._end, *place)

    def _pod(self, name: str, namespace: str, uid: str) -> Stored | None:
        found = self.objects.find(POD, name, namespace)
        return found if found is not None and found.metadata["uid"] == uid else None

    def _schedule(self, name: str, namespace: str, uid: str) -> None:
        pod = self._pod(name, namespace, uid)
        if pod is None or pod.deleting:
            return
        new = copy.deepcopy(pod.body)
        new["spec"]["nodeName"] = NODE_NAME
        self.objects.update(_PODS, pod, new, SCHEDULER)
        self._later(0.1, 3, "the containers of a Pod start", self._start, name, namespace, uid)

    def _start(self, name: str, namespace: str, uid: str) -> None:
        pod = self._pod(name, namespace, uid)
        if pod is None or pod.deleting:
            return
        address, now = f"10.99.{next(self._addresses)}.1", self.server.world.stamp()
        code = self.outcome(pod)
        containers = [_runs(each, now) for each in pod.body["spec"]["containers"]]
        if code is not None:
            first = pod.body["spec"]["containers"].index(of_file(pod.body)[0])
            containers[first] |= {"ready": False, "started": False, "state": _ended(code, now)}
        ready = "False" if code is not None else "True"
        status = {
            "phase": "Running",
            "podIP": address,
            "podIPs": [{"ip": address}],
            "startTime": now,
            "conditions": [
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": now},
                {"type": "Ready", "status": ready, "lastTransitionTime": now},
            ],
            "containerStatuses": containers,
            "initContainerStatuses": [
                _runs(each, now)
                if each.get("restartPolicy")
                else {**_runs(each, now), "state": _ended(0, now)}
                for each in pod.body["spec"].get("initContainers", ())
            ],
        }
        new = {**pod.body, "status": status}
        self.objects.update(_PODS, pod, new, KUBELET, subresource="status")

    def _end(self, name: str, namespace: str, uid: str) -> None:
        pod = self._pod(name, namespace, uid)
        if pod is not None:
            self.objects.remove(_PODS, pod)

    def _write_slices(self, namespace: str) -> None:
        for service in self.objects.all(SERVICE, namespace):
            if service.body["spec"].get("selector"):
                self._write_slice(service, namespace)

    def _write_slice(self, service: Stored, namespace: str) -> None:
        name = service.metadata["name"]
        endpoints = [
            _endpoint(pod)
            for pod in self.objects.all(POD, namespace)
            if pod.body["status"].get("podIP") and not pod.deleting and _selected(service, pod)
        ]
        old = self.objects.find(ENDPOINT_SLICE, f"{name}-sim", namespace)
        if old is not None:
            self.objects.update(_SLICES, old, {**old.body, "endpoints": endpoints}, CONTROLLERS)
            return
        uid = service.metadata["uid"]
        owner = {"apiVersion": "v1", "kind": "Service", "name": name, "uid": uid}
        labels = {**(service.metadata.get("labels") or {}), "kubernetes.io/service-name": name}
        metadata = {
            "name": f"{name}-sim",
            "namespace": namespace,
            "labels": labels,
            "ownerReferences": [owner],
        }
        body = {"metadata": metadata, "addressType": "IPv4", "endpoints": endpoints, "ports": []}
        if not self.objects.get(NAMESPACE, namespace).deleting:
            self.objects.create(_SLICES, body, CONTROLLERS)

    def _count(self, changed: Stored) -> None:
        """Write what a quota has counted; here it is nothing, since creates are not judged."""
        place = (changed.metadata["name"], changed.metadata["namespace"])
        quota = self.objects.find(RESOURCE_QUOTA, *place)
        if quota is not None:
            hard = quota.body["spec"]["hard"]
            status = {"hard": hard, "used": dict.fromkeys(hard, "0")}
            new = {**quota.body, "status": status}
            self.objects.update(_QUOTAS, quota, new, CONTROLLERS, subresource="status")

    def _collect(self, uid: str) -> None:
        for kind, found in list(self.objects.everything()):
            if any(each["uid"] == uid for each in found.metadata.get("ownerReferences") or ()):
                self.objects.delete(kind, found, {})

    def _collect_first(self, kind: KindModel, name: str, namespace: str) -> None:
        """Delete the dependents of an object that waits for them, then let it go."""
        owner = self.objects.find(kind.ref, name, namespace)
        if owner is None or FOREGROUND not in owner.metadata.get("finalizers", ()):
            return
        uid, blocking = owner.metadata["uid"], False
        for its_kind, found in list(self.objects.everything()):
            for reference in found.metadata.get("ownerReferences") or ():
                if reference["uid"] == uid:
                    blocking = blocking or bool(reference.get("blockOwnerDeletion"))
                    if not found.deleting:
                        self.objects.delete(its_kind, found, {})
        if blocking:
            why = "dependents are looked at again"
            self._later(0.05, 0.5, why, self._collect_first, kind, name, namespace)
            return
        left = [each for each in owner.metadata["finalizers"] if each != FOREGROUND]
        metadata = {**owner.metadata, "finalizers": left}
        self.objects.update(kind, owner, {**owner.body, "metadata": metadata}, CONTROLLERS)

    def _look_for_owner(self, dependent: Stored) -> None:
        present = {found.metadata["uid"] for _, found in self.objects.everything()}
        for owner in dependent.metadata["ownerReferences"]:
            if owner["uid"] not in present:
                self._collect(owner["uid"])

    def _empty(self, name: str) -> None:
        left = [
            (kind, found)
            for kind, found in list(self.objects.everything())
            if found.metadata.get("namespace") == name
        ]
        for kind, found in left:
            present = self.objects.find(kind.ref, found.metadata["name"], name)
            if present is not None and not present.deleting:
                self.objects.delete(kind, present, {})
        if any(f.metadata.get("namespace") == name for _, f in self.objects.everything()):
            self._later(0.5, 2, "a namespace is looked at again", self._empty, name)
            return
        if (namespace := self.objects.find(NAMESPACE, name)) is not None:
            self.objects.remove(_NAMESPACES, namespace)


def _runs(container: Object, now: str) -> Object:
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "restartCount": 0,
        "ready": True,
        "started": True,
        "state": {"running": {"startedAt": now}},
    }


def _ended(code: int, now: str) -> Object:
    reason = "Error" if code else "Completed"
    ended = {"exitCode": code, "reason": reason, "startedAt": now, "finishedAt": now}
    return {"terminated": ended}


def _selected(service: Stored, pod: Stored) -> bool:
    labels = pod.metadata.get("labels") or {}
    return all(labels.get(n) == v for n, v in service.body["spec"]["selector"].items())


def _endpoint(pod: Stored) -> Object:
    ready = all(each["ready"] for each in pod.body["status"].get("containerStatuses", ()))
    return {
        "addresses": [pod.body["status"]["podIP"]],
        "conditions": {"ready": ready, "serving": ready, "terminating": False},
        "targetRef": {
            "kind": "Pod",
            "name": pod.metadata["name"],
            "namespace": pod.metadata["namespace"],
            "uid": pod.metadata["uid"],
        },
    }
