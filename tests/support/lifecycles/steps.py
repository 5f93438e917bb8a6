"""The life of a Container in steps: what its user does, and how one sees that it is done.

Tests that disturb the operator take Containers through these steps and compare the ends.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cloister_clients.kube.kinds import SECRET, of
from cloister_crds.kinds import Container, Domain
from cloister_crds.kinds.meta import PAUSED_ANNOTATION
from tests.support.cluster.direct_client import DirectClient
from tests.support.faults.fault_kinds import ApiRequest, is_about
from tests.support.faults.faulty_proxy import FaultyProxy
from tests.support.lifecycles.end_states import NamespaceSnapshot, plain
from tests.support.programs.operator import Installation, file_text, manifest
from tests.support.waiting import until_sync

__all__ = [
    "CUSTOM",
    "LATER",
    "STEPS",
    "ContainerLifecycles",
    "LifecycleStep",
    "await_settled",
    "condition",
    "heir",
]


KEY = f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA{'I' + 'A' * 43} nobody@example.test"
"""Public key that nobody has the private one of."""
CUSTOM = "customer.example"
"""Zone of custom domains, which nobody has to prove here."""


@dataclass(frozen=True)
class LifecycleStep:
    """One step of a Container's life."""

    name: str
    """Name of the step."""
    do: Callable[["ContainerLifecycles", str], None]
    """What the user does."""
    done: Callable[[dict[str, Any]], bool]
    """Whether the Container, as the server has it, has come to the step's end."""
    hands_over: bool = False
    """Whether the Container's heir must serve in the end."""


def heir(name: str) -> str:
    """Name the Container that takes over from another one."""
    return f"next-{name}"


class ContainerLifecycles:
    """Containers that go through their steps, with a file that has a variable and a secret."""

    def __init__(
        self, installation: Installation, proxy: FaultyProxy, direct: DirectClient, image: str
    ) -> None:
        self.installation = installation
        self.proxy = proxy
        self.direct = direct
        self.image = image
        self.namespace = installation.namespace
        self._first: tuple[Path, str] | None = None
        """The first repository, and the commit of its first release; None = none was made."""

    def prepare(self) -> None:
        """Make the secret that the files name, and a key to log in with."""
        self.installation.apply(manifest("SSHKey", "me", {"publicKey": KEY}, self.namespace))
        metadata = {"name": "token", "namespace": self.namespace}
        self.direct.create(SECRET, {"metadata": metadata, "stringData": {"value": "x"}})
        spec = {"name": "TOKEN", "secretRef": {"name": "token", "key": "value"}}
        self.installation.apply(manifest("Secret", "token", spec, self.namespace))

    def create(self, name: str) -> None:
        """Make a repository with two releases, and a Container of the first."""
        self.release(name)
        self.create_again(name)

    def release(self, name: str) -> str:
        """Make a repository with two releases, the same for all; answer the commit of the first."""
        repositories = self.installation.repositories
        if self._first is None:
            repository = repositories.create(f"acme/{name}")
            self._first = (repository.path, "")
            for tag in ("v2", "v1"):
                text = file_text(self.image, env=["GREETING"], secrets=["TOKEN"], command=[tag])
                self._first = (repository.path, repository.release(tag, text))
        else:
            shutil.copytree(self._first[0], repositories.path / f"acme/{name}.git")
        return self._first[1]

    def create_again(self, name: str, **more: Any) -> None:
        """Make a Container of a repository that is there."""
        spec = {
            "repo": f"acme/{name}", "tag": "v1", "host": self.installation.host,
            "secrets": ["TOKEN"], "variables": [{"name": "GREETING", "value": "hello"}], **more,
        }  # fmt: skip
        self.direct.create(of(Container), manifest("Container", name, spec, self.namespace))

    def serves(self, name: str, tag: str) -> bool:
        """Return whether a Container serves a tag, and what is asked for."""
        body = self.direct.get(of(Container), name, self.namespace)
        serving = body is not None and body["status"].get("currentTag") == tag
        return serving and self.reached(STEPS[0], name)

    def change(self, name: str, **spec: Any) -> None:
        """Change the spec of a Container."""
        answer = self.direct.patch(of(Container), name, {"spec": spec}, self.namespace)
        assert answer.is_success, answer.text

    def use_custom_domain(self, name: str) -> None:
        """Ask for a custom domain, whose Domain a paused operator leaves as it is: verified."""
        metadata = {
            "name": name, "namespace": self.namespace, "annotations": {PAUSED_ANNOTATION: "true"}
        }  # fmt: skip
        domain = f"{name}.{CUSTOM}"
        self.direct.create(of(Domain), {"metadata": metadata, "spec": {"domain": domain}})
        verified = {"status": {"verified": True}}
        answer = self.direct.patch(of(Domain), name, verified, self.namespace, "status")
        assert answer.is_success, answer.text
        self.change(name, customDomain=domain)

    def promote(self, name: str) -> None:
        """Accept what is staged."""
        body = self.direct.get(of(Container), name, self.namespace)
        assert body is not None
        self.change(name, promote=body["status"]["update"]["revision"])

    def replace(self, name: str) -> None:
        """Make a Container that takes over from another one."""
        self.create_again(heir(name), repo=f"acme/{name}", tag="v2", replaces=name)

    def delete(self, name: str) -> None:
        """Delete a Container."""
        assert self.direct.delete(of(Container), name, self.namespace).is_success

    def delete_both(self, name: str) -> None:
        """Delete a Container and its heir."""
        self.delete(name)
        self.delete(heir(name))

    def concerns(self, request: ApiRequest, name: str) -> bool:
        """Return whether a request writes an object of a Container or of its heir."""
        return is_about(request, name) or is_about(request, heir(name))

    def writes(self, name: str) -> int:
        """Count what was written about a Container and its heir."""
        return sum(self.concerns(each.request, name) for each in self.proxy.written())

    def reached(self, step: LifecycleStep, name: str) -> bool:
        """Return whether a Container has come to the end of a step."""
        body = self.direct.get(of(Container), name, self.namespace)
        if body is None:
            return not any(self.state(name).values())
        if step.hands_over and not self.reached(STEPS[0], heir(name)):
            return False
        status = body["status"]
        current = status.get("observedGeneration") == body["metadata"]["generation"]
        return current and step.done(body)

    def read(self) -> NamespaceSnapshot:
        """Read all that is there."""
        routes = self.installation.system if "gateway" in self.installation.settings else ""
        return NamespaceSnapshot.read(self.direct, self.namespace, routes=routes)

    def state(self, name: str, everything: NamespaceSnapshot | None = None) -> dict[str, Any]:
        """Return everything about a Container and its heir, as it is now or was read."""
        everything = everything or self.read()
        inherited = plain(everything.about(heir(name)), name)
        return everything.about(name) | {
            f"{kind} of the heir": found for kind, found in inherited.items()
        }


def condition(body: dict[str, Any], kind: str) -> str:
    """Return the reason of a condition that is True; empty = it is not."""
    found = (each for each in body["status"].get("conditions", ()) if each["type"] == kind)
    return next((each["reason"] for each in found if each["status"] == "True"), "")


STEPS = (
    LifecycleStep(
        "create", ContainerLifecycles.create, lambda body: condition(body, "Ready") == "Serving"
    ),
    LifecycleStep(
        "stage",
        lambda lifecycles, name: lifecycles.change(name, tag="v2", staging=True),
        lambda body: condition(body, "Ready") == "AwaitingPromotion",
    ),
    LifecycleStep(
        "promote",
        ContainerLifecycles.promote,
        lambda body: condition(body, "Ready") == "Serving" and "update" not in body["status"],
    ),
    LifecycleStep(
        "stop",
        lambda lifecycles, name: lifecycles.change(name, state="Stopped"),
        lambda body: body["status"]["phase"] == "stopped",
    ),
    LifecycleStep(
        "start",
        lambda lifecycles, name: lifecycles.change(name, state="Running"),
        lambda body: condition(body, "Ready") == "Serving",
    ),
    LifecycleStep(
        "debug",
        lambda lifecycles, name: lifecycles.change(name, debug=True, sshKeys=["me"]),
        lambda body: condition(body, "Ready") == "Serving" and "sshPort" in body["status"],
    ),
    LifecycleStep("delete", ContainerLifecycles.delete, lambda _: False),
)


LATER = (
    STEPS[0],
    STEPS[1],
    LifecycleStep(
        "cancel",
        lambda lifecycles, name: lifecycles.change(name, tag="v1"),
        lambda body: condition(body, "Ready") == "Serving" and "update" not in body["status"],
    ),
    LifecycleStep(
        "debug",
        lambda lifecycles, name: lifecycles.change(name, staging=False, debug=True, sshKeys=["me"]),
        lambda body: condition(body, "Ready") == "Serving" and "sshPort" in body["status"],
    ),
    LifecycleStep(
        "production",
        lambda lifecycles, name: lifecycles.change(name, debug=False, sshKeys=[]),
        lambda body: condition(body, "Ready") == "Serving" and "sshPort" not in body["status"],
    ),
    LifecycleStep(
        "custom domain",
        ContainerLifecycles.use_custom_domain,
        lambda body: condition(body, "Ready") == "Serving" and CUSTOM in body["status"]["domain"],
    ),
    LifecycleStep(
        "no custom domain",
        lambda lifecycles, name: lifecycles.change(name, customDomain=None),
        lambda body: (
            condition(body, "Ready") == "Serving" and CUSTOM not in body["status"]["domain"]
        ),
    ),
    LifecycleStep(
        "replace",
        ContainerLifecycles.replace,
        lambda body: condition(body, "Stalled") == "Replaced",
        hands_over=True,
    ),
    LifecycleStep("delete", ContainerLifecycles.delete_both, lambda _: False),
)
"""Another life: what was staged is cancelled, the names change, and another one takes over."""


def await_settled(
    lifecycles: ContainerLifecycles, step: LifecycleStep, *names: str, within: float = 120.0
) -> list[dict[str, Any]]:
    """Wait until Containers are at the end of a step and nobody has more to write about them.

    Returns
    -------
    list[dict[str, Any]]
        What is there of each in the end (`ContainerLifecycles.state`).
    """
    for name in names:
        what = f"the end of {step.name} of {name}"
        until_sync(partial(lifecycles.reached, step, name), within=within, every=0.05, what=what)
    last: list[Any] = []

    def quiet() -> bool:
        before = last[:]
        everything = lifecycles.read()
        writes = sum(lifecycles.writes(name) for name in names)
        last[:] = [writes, *(lifecycles.state(name, everything) for name in names)]
        waiting = any(
            everything.orphans(each) or everything.draining(each)
            for name in names
            for each in (name, heir(name))
        )
        return before == last and not waiting

    until_sync(quiet, within=within, every=1.0, what=f"an end of the writes in {step.name}")
    return last[1:]
