"""Lives of a Container, as data: what a user does, and what must hold before the next step."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import yaml

from cloister_clients.kube.kinds import NAMESPACE, POD, RESOURCE_QUOTA, SERVICE, KindRef, of
from cloister_crds.kinds import Container, Enclave, Host, HostnameClaim, Organization
from cloister_crds.names import CONTAINER_LABEL, ENCLAVE_LABEL
from cloister_operator.process.process import KINDS_QUOTA
from tests.simulation.apiserver.kinds import Object, all_kinds
from tests.simulation.apiserver.store import Manager, Objects, Stored
from tests.simulation.operators import IMAGE

__all__ = [
    "LIVES",
    "MOST_WRITES",
    "ORGANIZATION_NAMESPACE",
    "Step",
    "User",
    "config_file",
    "install",
    "is_ready",
]

ORGANIZATION_NAMESPACE = "org-acme"
USER: Manager = ("user", "Update", "")
CONTAINER, ENCLAVE, CLAIM = of(Container), of(Enclave), of(HostnameClaim)


def config_file(command: str) -> bytes:
    """Return a configuration file with one container."""
    document = {
        "cvm-version": "0.10.0",
        "cpus": 2,
        "memory": 8192,
        "containers": [{"name": "web", "image": IMAGE, "command": [command]}],
        "shim": {"upstream-port": 8080, "paths": ["/"]},
    }
    return yaml.safe_dump(document).encode()


FILES = {tag: config_file(tag) for tag in ("v1", "v2", "v3", "bad")}
"""The releases of each repository; the container of "bad" exits."""


def kind_of(ref: KindRef) -> Any:
    """Return the model of a kind."""
    return all_kinds()[ref.group, ref.version, ref.plural]


class User:
    """What people and the installation write."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects

    def create(self, ref: KindRef, name: str, spec: Object, namespace: str = "") -> None:
        """Create an object."""
        metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
        self.objects.create(kind_of(ref), {"metadata": metadata, "spec": spec}, USER)

    def container(self, name: str = "web") -> Stored | None:
        """Return a Container; None if there is none."""
        return self.objects.find(CONTAINER, name, ORGANIZATION_NAMESPACE)

    def set(self, container: str = "web", **spec: object) -> None:
        """Change fields of a Container's spec."""
        found = self.objects.get(CONTAINER, container, ORGANIZATION_NAMESPACE)
        self.objects.patch(kind_of(CONTAINER), found, {"spec": spec}, USER)

    def start(self, container: str = "web", tag: str = "v1", **more: object) -> None:
        """Create a Container."""
        named = {"name": f"named-{container}", "host": "h1", **more}
        spec = {"repo": "acme/site", "tag": tag, **named}
        self.create(CONTAINER, container, spec, ORGANIZATION_NAMESPACE)

    def delete(self, name: str = "web") -> None:
        """Delete a Container."""
        found = self.objects.get(CONTAINER, name, ORGANIZATION_NAMESPACE)
        self.objects.delete(kind_of(CONTAINER), found, {})


def install(user: User) -> None:
    """Create namespaces, a Host and an organization."""
    for name in ("default", "kube-system", "cloister-system"):
        user.create(NAMESPACE, name, {})
    counted = {f"count/{plural}.cloister.dev": "0" for plural in ("containers", "secrets")}
    user.create(RESOURCE_QUOTA, KINDS_QUOTA, {"hard": counted}, "cloister-system")
    overcommit = {"cpuPercent": 1, "memoryPercent": 1}
    spec = {"networkIsolation": "Container", "default": True, "overcommit": overcommit}
    user.create(of(Host), "h1", spec)
    acme = {
        "namespace": ORGANIZATION_NAMESPACE,
        "billing": {"containerSubscription": True},
        "entitlements": {"hostSelection": True},
        "limits": {"containers": 1000},
    }
    user.create(of(Organization), "acme", acme)
    labels = {"cloister.dev/organization": "acme"}
    body = {"metadata": {"name": ORGANIZATION_NAMESPACE, "labels": labels}}
    user.objects.create(kind_of(NAMESPACE), body, USER)


def is_ready(user: User, tag: str, name: str = "web") -> bool:
    """Return whether a Container serves a release and its status says so."""
    found = user.container(name)
    status = (found.body.get("status") or {}) if found else {}
    ready = _holds(status, "Ready")
    generation = found.metadata["generation"] if found else 0
    return (
        ready and status.get("currentTag") == tag and status.get("observedGeneration") == generation
    )


def _holds(status: Object, name: str) -> bool:
    """Return whether a condition of a status is True."""
    conditions = status.get("conditions", ())
    return any(each["type"] == name and each["status"] == "True" for each in conditions)


def phase(user: User, name: str = "web") -> str:
    """Return the phase of a Container; empty if it has none."""
    found = user.container(name)
    return str((found.body.get("status") or {}).get("phase", "")) if found else ""


def outcome(objects: Objects) -> Callable[[Stored], int | None]:
    """Return what decides how a Pod ends: those of the release "bad" exit."""

    def decide(pod: Stored) -> int | None:
        name = pod.metadata["labels"][ENCLAVE_LABEL]
        enclave = objects.find(ENCLAVE, name, pod.metadata["namespace"])
        return 1 if enclave is not None and enclave.body["spec"]["tag"] == "bad" else None

    return decide


def nothing_left(user: User) -> bool:
    """Return whether nothing of the Containers runs; claims of names are kept for a minute."""
    objects = user.objects
    return not any(
        objects.all(ref, ORGANIZATION_NAMESPACE) for ref in (CONTAINER, ENCLAVE, POD, SERVICE)
    )


@dataclass(frozen=True, slots=True)
class Step:
    """What a user does, and what holds in the end."""

    name: str
    act: Callable[[User], None]
    done: Callable[[User], bool]
    serves: bool = False
    """Whether what served before must serve all the time."""


def _failed(user: User) -> bool:
    """Return whether the wanted release failed, and nothing is tried any more."""
    found = user.container()
    status = (found.body.get("status") or {}) if found else {}
    return _holds(status, "Stalled") and status.get("requestedTag") == "bad"


def _update_twice(user: User) -> None:
    user.set(tag="v2")
    user.set(tag="v3")


def _pod_of(user: User, name: str = "web") -> Stored | None:
    """Return the Pod that a Container's status says serves."""
    found = user.container(name)
    active = (found.body.get("status") or {}).get("activeEnclave", "") if found else ""
    return user.objects.find(POD, active, ORGANIZATION_NAMESPACE)


def _lose_pod(user: User) -> None:
    """Delete the Pod that serves, as the drain of a node does."""
    pod = _pod_of(user)
    if pod is not None:
        user.objects.delete(kind_of(POD), pod, {})


def _are_only(user: User, name: str) -> bool:
    """Return whether all Pods are of one Container."""
    pods = user.objects.all(POD, ORGANIZATION_NAMESPACE)
    return all(pod.metadata["labels"][CONTAINER_LABEL] == name for pod in pods)


def _recovered(user: User) -> bool:
    pod = _pod_of(user)
    return pod is not None and not pod.deleting and is_ready(user, "v1")


CREATE = Step("create", lambda user: user.start(), lambda user: is_ready(user, "v1"), serves=True)
UPDATE = Step(
    "update",
    lambda user: user.set(tag="v2"),
    lambda user: is_ready(user, "v2") and len(user.objects.all(POD)) == 1,
    serves=True,
)
STOP = Step("stop", lambda user: user.set(state="Stopped"), lambda user: phase(user) == "stopped")
DELETE = Step("delete", lambda user: user.delete(), nothing_left)


LIVES: dict[str, tuple[Step, ...]] = {
    "update": (CREATE, UPDATE, DELETE),
    "stop": (
        CREATE,
        STOP,
        Step("run", lambda user: user.set(state="Running"), lambda user: is_ready(user, "v1")),
        DELETE,
    ),
    "failed": (
        CREATE,
        Step(
            "bad",
            lambda user: user.set(tag="bad"),
            _failed,
            serves=True,
        ),
        Step(
            "mend", lambda user: user.set(tag="v3"), lambda user: is_ready(user, "v3"), serves=True
        ),
        DELETE,
    ),
    "replaced": (
        CREATE,
        Step(
            "two updates",
            _update_twice,
            lambda user: is_ready(user, "v3"),
            serves=True,
        ),
        DELETE,
    ),
    "again": (
        CREATE,
        Step("delete", lambda user: user.delete(), lambda user: user.container() is None),
        Step("create again", lambda user: user.start(tag="v2"), lambda user: is_ready(user, "v2")),
        DELETE,
    ),
    "lost": (CREATE, Step("a Pod is lost", _lose_pod, _recovered), DELETE),
    "successor": (
        CREATE,
        Step(
            "successor",
            lambda user: user.start("next", "v2", name="named-web", replaces="web"),
            lambda user: is_ready(user, "v2", "next"),
        ),
        Step(
            "delete the first",
            lambda user: user.delete(),
            lambda user: is_ready(user, "v2", "next") and _are_only(user, "next"),
        ),
        Step("delete the second", lambda user: user.delete("next"), nothing_left),
    ),
}
"""Name -> steps; each is on the real API server too (docs/development/simulation.md)."""
MOST_WRITES = {
    "update": 58,
    "stop": 56,
    "failed": 69,
    "replaced": 54,
    "again": 48,
    "lost": 50,
    "successor": 55,
}
"""Writes of a life without faults at most: what the operator does not know costs writes first."""
