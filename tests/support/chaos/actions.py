"""Carry out the actions of a chaos run: requests through both interfaces, and faults of all kinds.

Actions that a state forbids are refused by the API or the server, which is a valid outcome.
"""

import itertools
import os
import random
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import httpx

from cloister_clients.kube.kinds import NODE, POD, of
from cloister_crds.kinds import Container, Domain, Secret
from dev import cluster as local
from tests.support.chaos.plan import (
    BROKEN,
    DOMAINS,
    NODES,
    REPOS,
    TAGS,
    ChaosAction,
    is_broken,
    plan,
)
from tests.support.cluster.direct_client import DirectClient
from tests.support.faults.fault_kinds import Loss, Unreliable
from tests.support.faults.faulty_proxy import FaultyProxy
from tests.support.programs.operator import Installation, OperatorProcess, file_text, manifest
from tests.support.servers.git import Repository
from tests.support.servers.nameserver import NameServer
from tests.support.stand_ins.nodes import READY, PodOutcome, SimulatedNodes
from tests.support.waiting import until_sync

__all__ = ["KEY", "SECRETS", "ChaosRun", "OperatorPair", "carry_out", "outcome_of"]

SECRETS = {"token": "TOKEN", "spare": "SPARE"}
"""Secrets of the organization: name of the object -> name in files; files need the first."""
KEY = "me"
"""Name of the SSHKey that debug enclaves are given."""
_FIRST = 1_700_000_000
"""Publication time of the first release, in seconds since the epoch."""


def outcome_of(pod: dict[str, Any]) -> PodOutcome:
    """Return the outcome of a Pod: one of a broken release exits with an error, others run."""
    env = [each for car in pod["spec"]["containers"] for each in car.get("env", ())]
    broken = any(each["name"] == "FATE" and is_broken(each["value"]) for each in env)
    return PodOutcome(code=3) if broken else READY


@dataclass
class OperatorPair:
    """Two operators behind ports of the proxy; one that exits is restarted, as in a cluster."""

    installation: Installation
    """The installation."""
    proxy: FaultyProxy
    """The proxy."""
    members: dict[str, OperatorProcess] = field(default_factory=dict)
    """Name -> its process."""
    starts: int = 0
    """Number of starts."""

    def restart_exited(self) -> None:
        """Restart operators that have exited."""
        for name in ("red", "blue"):
            member = self.members.get(name)
            if member is None or not member.running:
                ports = {each.name: each for each in self.proxy.ports.values()}
                port = ports.get(name) or self.proxy.open_port(name)
                self.members[name] = self.installation.operator(kubeconfig=port.kubeconfig)
                self.starts += 1

    def kill(self, which: int) -> None:
        """Kill one of them (SIGKILL)."""
        member = list(self.members.values())[which % len(self.members)]
        if member.running:
            member.send(signal.SIGKILL)
            member.wait()
        self.restart_exited()


@dataclass
class ChaosRun:
    """Carry out actions on a cluster of its own."""

    cluster: local.Cluster
    """The cluster; its API server is restarted."""
    installation: Installation
    """The installation."""
    direct: DirectClient
    """Client of the API server without proxy, as a user with kubectl."""
    nodes: SimulatedNodes
    """The simulated nodes."""
    operators: OperatorPair
    """The operators."""
    rest: httpx.Client
    """Client of the API with an admin key."""
    zone: NameServer
    """The zone of the custom domains."""
    image: str
    """Image of all releases."""
    newest: dict[str, str] = field(default_factory=dict)
    """Repository -> its newest release."""
    releases: int = 0
    """Number of published releases."""
    done: list[str] = field(default_factory=list)
    """Each action and its response."""

    def prepare(self) -> None:
        """Publish the first releases, and create the objects that Containers refer to."""
        for repo in REPOS:
            self.installation.repository(repo)
            for tag in (BROKEN, *TAGS):
                self._publish(repo, tag)
        for name in SECRETS:
            self._make_secret(name)
        for domain in DOMAINS:
            self._make_domain(domain)
        self._find_records()

    def act(self, act: ChaosAction) -> None:
        """Carry one action out; continue whatever its outcome."""
        self.operators.restart_exited()
        method: Callable[..., str] = getattr(self, f"_{act.verb}")
        try:
            response = method(act.name, **act.value)
        except (httpx.HTTPError, AssertionError) as error:
            response = f"failed: {error}"[:200]
        self.done.append(f"{act.text}: {response}")

    def end_faults(self) -> None:
        """End all faults: everything runs, and every node is ready."""
        self._behave("")
        until_sync(self._server_answers, within=120, what="the API server")
        for name in NODES:
            self._find_node(name)
            self._uncordon(name)
        self._make_secret("")
        for domain in DOMAINS:
            self._make_domain(domain)
        self._find_records()

    def _find_records(self) -> None:
        """Create the records of all Domains once an operator has named them."""

        def found(domain: str) -> str:
            # One that stands still for longer than its Lease exits.
            self.operators.restart_exited()
            return self._find_record(domain)

        for domain in DOMAINS:
            until_sync(partial(found, domain), within=240, what="records to make")

    def containers(self) -> list[Container]:
        """Read all Containers."""
        namespace = self.installation.namespace
        return [Container.read(each) for each in self.direct.list_objects(of(Container), namespace)]

    # Users of the REST API.

    def _create(self, name: str, **fields: Any) -> str:
        return _reported(
            self.rest.post("/api/containers", json={"name": name, **_rest_body(fields)})
        )

    def _replace(self, name: str, *, old: str, **fields: Any) -> str:
        """Create a container that replaces the first one of a name."""
        every = self._named(old)
        if not every:
            return "no such container"
        body = {"name": name, "replace_container_id": every[0], **_rest_body(fields)}
        return _reported(self.rest.post("/api/containers", json=body))

    def _relaunch(self, name: str, **fields: Any) -> str:
        return self._post(name, "relaunch", _rest_body(fields))

    def _follow(self, name: str, *, auto: bool) -> str:
        return self._post(name, "auto-update", {"auto_update": auto})

    def _new_value(self, name: str, *, value: str) -> str:
        del name
        return _reported(self.rest.put("/api/secrets/TOKEN", json={"value": value}))

    def _stop(self, name: str) -> str:
        return self._post(name, "stop")

    def _start(self, name: str) -> str:
        return self._post(name, "start", {})

    def _accept(self, name: str) -> str:
        return self._post(name, "update/accept")

    def _cancel(self, name: str) -> str:
        return self._post(name, "update/cancel")

    def _delete(self, name: str) -> str:
        return self._post(name, "", method="DELETE")

    def _post(self, name: str, path: str, body: Any = None, *, method: str = "POST") -> str:
        """Call an action of each container of a name; production and debug may share it."""
        reported = [
            _reported(
                self.rest.request(method, f"/api/containers/{each}/{path}".rstrip("/"), json=body)
            )
            for each in self._named(name)
        ]
        return " ".join(reported) or "no such container"

    def _named(self, name: str) -> list[str]:
        """Return the identifiers of the containers of a name."""
        every = self.rest.get("/api/containers").raise_for_status().json()
        return [each["id"] for each in every if each["name"] == name]

    # Users of kubectl and GitOps.

    def _apply(self, name: str, *, replaces: str | None, **fields: Any) -> str:
        spec = _spec(fields)
        namespace = self.installation.namespace
        reported = {key: each for key, each in spec.items() if each is not None}
        reported |= {"replaces": replaces} if replaces is not None else {}
        body = manifest("Container", name, reported, namespace)
        response = self.direct.request("POST", of(Container).path(namespace), body)
        if response.status_code != httpx.codes.CONFLICT:
            return _reported(response)
        return self._patch(name, {key: each for key, each in spec.items() if key != "repo"})

    def _edit(self, name: str, **fields: Any) -> str:
        return self._patch(name, _spec(fields))

    def _patch(self, name: str, spec: dict[str, Any]) -> str:
        """Change a spec; with a new tag, drop the commit that the API had pinned."""
        pin = {"commit": None} if "tag" in spec else {}
        namespace = self.installation.namespace
        return _reported(self.direct.patch(of(Container), name, {"spec": spec | pin}, namespace))

    def _remove(self, name: str) -> str:
        return _reported(self.direct.delete(of(Container), name, self.installation.namespace))

    def _make_secret(self, name: str) -> str:
        """Create the missing Secrets with their old values."""
        del name
        return " ".join(
            self._post_object(Secret, each, {"name": known, "secretRef": {"name": f"{each}-value"}})
            for each, known in SECRETS.items()
        )

    def _drop_secret(self, name: str) -> str:
        del name
        return _reported(self.direct.delete(of(Secret), "token", self.installation.namespace))

    def _make_domain(self, name: str) -> str:
        return self._post_object(Domain, name, {"domain": name})

    def _drop_domain(self, name: str) -> str:
        return _reported(self.direct.delete(of(Domain), name, self.installation.namespace))

    def _post_object(self, kind: type[Domain | Secret], name: str, spec: dict[str, Any]) -> str:
        namespace = self.installation.namespace
        body = manifest(kind.INFO.kind, name, spec, namespace)
        return _reported(self.direct.request("POST", of(kind).path(namespace), body))

    def _release(self, name: str, *, broken: bool) -> str:
        """Publish a release that is later than all others."""
        self._publish(name, f"v{10 + self.releases}{'-' + BROKEN if broken else ''}")
        return self.newest[name]

    def _publish(self, repo: str, tag: str) -> None:
        self.releases += 1
        text = file_text(self.image, env=["GREETING", {"FATE": tag}], secrets=["TOKEN"])
        repository = Repository(self.installation.repositories.path / f"{repo}.git")
        repository.release(tag, text, when=_FIRST + 60 * self.releases)
        self.newest[repo] = tag

    # Faults.

    def _find_record(self, name: str) -> str:
        """Create the records that a Domain requires; empty = its status does not list them yet."""
        body = self.direct.get(of(Domain), name, self.installation.namespace)
        records = (body or {}).get("status", {}).get("records")
        if records is None:
            return ""
        self.zone.put(records["txtName"], "TXT", f'"{records["txtValue"]}"')
        self.zone.put(name, "CNAME", f"{records['cnameTarget']}.")
        return "found"

    def _lose_record(self, name: str) -> str:
        """Remove the TXT record of a Domain, whose name was recorded at its creation."""
        body = self.direct.get(of(Domain), name, self.installation.namespace)
        records = (body or {}).get("status", {}).get("records")
        if records is None:
            return "no such record"
        self.zone.drop(records["txtName"], "TXT")
        return "lost"

    def _kill_operator(self, name: str, *, which: int) -> str:
        del name
        self.operators.kill(which)
        return "killed"

    def _fail_pod(self, name: str, *, which: int) -> str:
        pod = self._a_pod(name, which)
        status = {"status": {"phase": "Failed", "reason": "ChaosRun", "message": "made to fail"}}
        namespace = self.installation.namespace
        return (
            _reported(self.direct.patch(POD, pod, status, namespace, "status")) if pod else "no Pod"
        )

    def _delete_pod(self, name: str, *, which: int) -> str:
        pod = self._a_pod(name, which)
        return (
            _reported(self.direct.delete(POD, pod, self.installation.namespace))
            if pod
            else "no Pod"
        )

    def _a_pod(self, name: str, which: int) -> str:
        """Choose a Pod of a Container; empty = there is none."""
        pods = self.direct.list_objects(POD, self.installation.namespace)
        names = sorted(each["metadata"]["name"] for each in pods)
        mine = [each for each in names if each.startswith(name)]
        return mine[which % len(mine)] if mine else ""

    def _drain(self, name: str) -> str:
        """Cordon a node and evict its Pods; a disruption budget may refuse."""
        reported = [_reported(self.direct.patch(NODE, name, {"spec": {"unschedulable": True}}))]
        namespace = self.installation.namespace
        for pod in self.direct.list_objects(POD, namespace, fieldSelector=f"spec.nodeName={name}"):
            metadata = {"name": pod["metadata"]["name"], "namespace": namespace}
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
            path = POD.path(namespace, metadata["name"], "eviction")
            reported.append(_reported(self.direct.request("POST", path, body)))
        return " ".join(reported)

    def _uncordon(self, name: str) -> str:
        return _reported(self.direct.patch(NODE, name, {"spec": {"unschedulable": None}}))

    def _lose_node(self, name: str) -> str:
        if self.nodes.nodes == [name]:
            return "it is the last node"
        self.nodes.nodes = [each for each in self.nodes.nodes if each != name]
        return _reported(self.direct.delete(NODE, name))

    def _find_node(self, name: str) -> str:
        if name in self.nodes.nodes:
            return "it is ready"
        response = self.direct.request("POST", NODE.path(), _node(name))
        if response.is_success or response.status_code == httpx.codes.CONFLICT:
            self.nodes.nodes.append(name)
        return _reported(response)

    def _misbehave(self, name: str, *, share: float) -> str:
        del name
        losses = (Loss.REQUEST, Loss.ANSWER)
        self.operators.proxy.faults = [Unreliable(random.Random(0), share, losses=losses)]
        return "misbehaves"

    def _behave(self, name: str) -> str:
        del name
        self.operators.proxy.faults = []
        return "behaves"

    def _restart_server(self, name: str) -> str:
        """Kill the API server and start it again."""
        del name
        pid = self.cluster.components["kube-apiserver"]
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            until_sync(
                lambda: self.cluster.components["kube-apiserver"] != pid,
                what="the API server to exit",
            )
        local.up(self.cluster.name, node=False)
        return "restarted"

    def _server_answers(self) -> bool:
        try:
            return self.direct.request("GET", "/readyz").is_success
        except httpx.HTTPError:
            return False


def _node(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


def _rest_body(fields: dict[str, Any]) -> dict[str, Any]:
    """Build the REST body of a request; an empty domain removes the custom domain."""
    body = dict(fields)
    if "text" in body:
        body["variables"] = {"GREETING": body.pop("text")}
    if "domain" in body:
        domain = body.pop("domain")
        # A create accepts no empty domain.
        body |= {"custom_domain": domain} if domain else {}
    if "secrets" in body:
        body["secrets"] = list(body["secrets"])
    if "debug" in body:
        body["ssh_keys"] = [KEY] if body["debug"] else []
    return body


def _spec(fields: dict[str, Any]) -> dict[str, Any]:
    """Build the spec of a request; None removes a field."""
    spec = dict(fields)
    if "text" in spec:
        spec["variables"] = [{"name": "GREETING", "value": spec.pop("text")}]
    if "domain" in spec:
        spec["customDomain"] = spec.pop("domain")
    if "debug" in spec:
        spec["sshKeys"] = [KEY] if spec["debug"] else []
    return spec


def _reported(response: httpx.Response) -> str:
    """Return the status."""
    return str(response.status_code)


def carry_out(chaos: ChaosRun, seed: int, *, seconds: float, most: int | None) -> list[str]:
    """Carry out the actions of a seed and return them.

    Parameters
    ----------
    seconds
        For how long; does not count where there is a number.
    most
        How many; None = until the time is over.
    """
    over, pause = threading.Event(), threading.Event()
    timer = threading.Timer(seconds, over.set)
    timer.daemon = True
    if most is None:
        timer.start()
    for act in itertools.islice(plan(seed), most):
        if over.is_set():
            break
        chaos.act(act)
        # The pauses are part of the randomness: an operator is killed at once, or after a while.
        pause.wait(act.pause)
    return chaos.done
