"""The lifecycle of a Container in steps: the user's action, and the condition that ends the step.

Tests with injected faults take Containers through these steps and compare the end states.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cloister_clients.kube.kinds import SECRET, of
from cloister_crds.kinds import Container, Domain
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
    "successor",
]


KEY = f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA{'I' + 'A' * 43} nobody@example.test"
"""Public key without a known private key."""
CUSTOM = "customer.example"
"""Zone of custom domains, which need no verification here."""


@dataclass(frozen=True)
class LifecycleStep:
    """One step of a Container's lifecycle."""

    name: str
    """Name of the step."""
    do: Callable[["ContainerLifecycles", str], None]
    """The user's action."""
    done: Callable[[dict[str, Any]], bool]
    """Whether the Container, as read from the server, has completed the step."""
    hands_over: bool = False
    """Whether the Container's successor must serve at the end."""


def successor(name: str) -> str:
    """Return the name of the Container that replaces another one."""
    return f"next-{name}"


class ContainerLifecycles:
    """Containers that go through the steps, with a file that has a variable and a secret."""

    def __init__(
        self, installation: Installation, proxy: FaultyProxy, direct: DirectClient, image: str
    ) -> None:
        self.installation = installation
        self.proxy = proxy
        self.direct = direct
        self.image = image
        self.namespace = installation.namespace
        self._first: tuple[Path, str] | None = None
        """The first repository, and the commit of its first release; None = none yet."""

    def prepare(self) -> None:
        """Create the secret that the files refer to, and an SSH key."""
        self.installation.apply(manifest("SSHKey", "me", {"publicKey": KEY}, self.namespace))
        metadata = {"name": "token", "namespace": self.namespace}
        self.direct.create(SECRET, {"metadata": metadata, "stringData": {"value": "x"}})
        spec = {"name": "TOKEN", "secretRef": {"name": "token", "key": "value"}}
        self.installation.apply(manifest("Secret", "token", spec, self.namespace))

    def create(self, name: str) -> None:
        """Create a repository with two releases, and a Container of the first."""
        self.release(name)
        self.create_again(name)

    def release(self, name: str) -> str:
        """Create a repository with two releases, equal for all; return the commit of the first."""
        repositories = self.installation.repositories
        if self._first is None:
            repository = repositories.create(f"acme/{name}")
            self._first = (repository.path, "")
            # The one that is deployed is the newest: automatic updates leave it as it is.
            for when, tag in enumerate(("v2", "v1"), start=1_700_000_000):
                text = file_text(self.image, env=["GREETING"], secrets=["TOKEN"], command=[tag])
                self._first = (repository.path, repository.release(tag, text, when=when))
        else:
            shutil.copytree(self._first[0], repositories.path / f"acme/{name}.git")
        return self._first[1]

    def create_again(self, name: str, **more: Any) -> None:
        """Create a Container of an existing repository.

        Its name is not that of its object, so that it has to claim its host name.
        """
        spec = {
            "name": f"{name}-named", "repo": f"acme/{name}", "tag": "v1",
            "host": self.installation.host,
            "secrets": ["TOKEN"], "variables": [{"name": "GREETING", "value": "hello"}], **more,
        }  # fmt: skip
        self.direct.create(of(Container), manifest("Container", name, spec, self.namespace))

    def serves(self, name: str, tag: str) -> bool:
        """Return whether a Container serves a tag and its current request."""
        body = self.direct.get(of(Container), name, self.namespace)
        serving = body is not None and body["status"].get("currentTag") == tag
        return serving and self.reached(STEPS[0], name)

    def change(self, name: str, **spec: Any) -> None:
        """Change the spec of a Container."""
        response = self.direct.patch(of(Container), name, {"spec": spec}, self.namespace)
        assert response.is_success, response.text

    def use_custom_domain(self, name: str) -> None:
        """Request a custom domain, whose Domain is verified: without settings none is checked."""
        metadata = {"name": name, "namespace": self.namespace}
        domain = f"{name}.{CUSTOM}"
        self.direct.create(of(Domain), {"metadata": metadata, "spec": {"domain": domain}})
        verified = {"status": {"verified": True}}
        response = self.direct.patch(of(Domain), name, verified, self.namespace, "status")
        assert response.is_success, response.text
        self.change(name, customDomain=domain)

    def promote(self, name: str) -> None:
        """Accept what is staged."""
        body = self.direct.get(of(Container), name, self.namespace)
        assert body is not None
        self.change(name, promote=body["status"]["update"]["revision"])

    def replace(self, name: str) -> None:
        """Create a Container that replaces another one."""
        self.create_again(successor(name), repo=f"acme/{name}", tag="v2", replaces=name)

    def delete(self, name: str) -> None:
        """Delete a Container."""
        assert self.direct.delete(of(Container), name, self.namespace).is_success

    def delete_both(self, name: str) -> None:
        """Delete a Container and its successor."""
        self.delete(name)
        self.delete(successor(name))

    def concerns(self, request: ApiRequest, name: str) -> bool:
        """Return whether a request writes an object of a Container or of its successor."""
        return is_about(request, name) or is_about(request, successor(name))

    def writes(self, name: str) -> int:
        """Count the writes about a Container and its successor."""
        return sum(self.concerns(each.request, name) for each in self.proxy.written())

    def reached(self, step: LifecycleStep, name: str) -> bool:
        """Return whether a Container has completed a step."""
        body = self.direct.get(of(Container), name, self.namespace)
        if body is None:
            everything = self.read()
            return not everything.versions(name) and not everything.versions(successor(name))
        if step.hands_over and not self.reached(STEPS[0], successor(name)):
            return False
        status = body["status"]
        current = status.get("observedGeneration") == body["metadata"]["generation"]
        return current and step.done(body)

    def read(self) -> NamespaceSnapshot:
        """Read all objects."""
        routes = self.installation.system if "gateway" in self.installation.settings else ""
        return NamespaceSnapshot.read(self.direct, self.namespace, routes=routes)

    def state(self, name: str, everything: NamespaceSnapshot | None = None) -> dict[str, Any]:
        """Return the objects of a Container and its successor, now or at a snapshot."""
        everything = everything or self.read()
        inherited = plain(everything.about(successor(name)), name)
        return everything.about(name) | {
            f"{kind} of the successor": found for kind, found in inherited.items()
        }


def condition(body: dict[str, Any], kind: str) -> str:
    """Return the reason of a condition that is True; empty = it is not True."""
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
"""Further steps: a staged update is cancelled, the names change, and a successor takes over."""


def await_settled(
    lifecycles: ContainerLifecycles, step: LifecycleStep, *names: str, within: float = 120.0
) -> list[dict[str, Any]]:
    """Wait until Containers have completed a step and there are no more writes about them.

    Returns
    -------
    list[dict[str, Any]]
        The end state of each (`ContainerLifecycles.state`).
    """
    for name in names:
        what = f"the end of {step.name} of {name}"
        until_sync(partial(lifecycles.reached, step, name), within=within, every=0.05, what=what)
    every = [each for name in names for each in (name, successor(name))]
    last: tuple[int, list[dict[str, str]]] | None = None

    def quiet() -> NamespaceSnapshot | None:
        nonlocal last
        before, everything = last, lifecycles.read()
        writes = sum(lifecycles.writes(name) for name in names)
        last = writes, [everything.versions(each) for each in every]
        waiting = any(everything.orphans(each) or everything.unsettled(each) for each in every)
        return everything if before == last and not waiting else None

    what = f"an end of the writes in {step.name}"
    found = until_sync(quiet, within=within, every=1.0, what=what)
    return [lifecycles.state(name, found) for name in names]
