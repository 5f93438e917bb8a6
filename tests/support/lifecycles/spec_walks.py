"""Containers whose spec fields are changed one after the other, behind a simulated Gateway.

Each Container has one field, so that all fields are walked at the same time. Twins are
created with the values that others are changed to.
"""

from collections.abc import Iterable
from typing import Any

import httpx

from cloister_clients.kube.kinds import SECRET, of
from cloister_crds.kinds import Container, Enclave, Host
from tests.support.builders.schema_values import Field, fields
from tests.support.lifecycles.end_states import desired_part
from tests.support.lifecycles.steps import ContainerLifecycles
from tests.support.programs.operator import manifest
from tests.support.waiting import until_sync

__all__ = ["SpecWalk"]

PATIENCE = 240.0
"""Seconds until all are settled."""
GREETING = {"name": "GREETING", "value": "hello"}
KNOWN: dict[str, tuple[Any, Any]] = {
    "name": ("{name}-named", "{name}-renamed"),
    "repo": ("acme/{name}", "acme/other"),
    "tag": ("v9-absent", "v2"),
    "commit": ("a" * 40, "{commit}"),
    "variables": ([], [GREETING | {"value": "bye"}]),
    "variables[].name": ("MISSED", "GREETING"),
    "secrets": ([], ["TOKEN", "SPARE"]),
    "sshKeys": (["absent"], ["me"]),
    "customDomain": ("{name}.example.net", "{name}.example.org"),
    "host": ("absent", "{host}"),
    "replaces": ("{name}-before", "{name}-elder"),
}
"""Valid values that cannot be generated: where there is one that the operator cannot satisfy, first
that, then one that it can. A new field of the schema may need an entry."""
TOGETHER: dict[str, dict[str, Any]] = {
    "sshKeys": {"debug": True},
    "disableConfidential": {"debug": True},
}
"""Field -> what must be set with it."""


class SpecWalk:
    """Containers, one per field."""

    def __init__(self, lifecycles: ContainerLifecycles) -> None:
        self.lifecycles = lifecycles
        self.names = {f"w{at:02}": field for at, field in enumerate(fields("containers", KNOWN))}
        """Container -> its field."""
        self._commits: dict[str, str] = {}

    @property
    def _host(self) -> str:
        return f"{self.lifecycles.installation.host}-other"

    def prepare(self) -> None:
        """Create the objects that the values refer to."""
        lifecycles, namespace = self.lifecycles, self.lifecycles.namespace
        lifecycles.prepare()
        metadata = {"name": "spare", "namespace": namespace}
        lifecycles.direct.create(SECRET, {"metadata": metadata, "stringData": {"value": "y"}})
        spare = {"name": "SPARE", "secretRef": {"name": "spare", "key": "value"}}
        host = lifecycles.direct.get(of(Host), lifecycles.installation.host)
        assert host is not None
        lifecycles.installation.apply(
            manifest("Secret", "spare", spare, namespace),
            manifest("Host", self._host, host["spec"]),
        )

    def end(self) -> None:
        """Remove cluster-scoped objects."""
        self.lifecycles.direct.delete(of(Host), self._host)

    def create(self, name: str, field: Field | None = None, at: int = 0) -> None:
        """Create a Container with a repository and a value of a field; None = neither."""
        self._commits[name] = self.lifecycles.release(name)
        spec = self._base(name) | (self._change(name, field, field.valid[at]) if field else {})
        body = manifest("Container", name, spec, self.lifecycles.namespace)
        self.lifecycles.direct.create(of(Container), body)

    def twin(self, name: str) -> str:
        """Return the Container that is created with the second value of another one's field.

        Where that is the first spec again, it is the one that is never changed.
        """
        field = self.names[name]
        change = self._change(name, field, field.valid[1])
        as_it_was = {**dict.fromkeys(field.path[:1], field.default), **self._base(name)}
        return (
            "fresh" if change == {each: as_it_was.get(each) for each in change} else f"t{name[1:]}"
        )

    def set(self, name: str, at: int) -> httpx.Response:
        """Set the field of a Container to its first or second value, and return the response."""
        field = self.names[name]
        return self.patch(name, self._change(name, field, field.valid[at]))

    def put_back(self, name: str) -> None:
        """Reset the field of a Container."""
        base, changed = self._base(name), self._change(name, self.names[name], None)
        response = self.patch(name, {each: base.get(each) for each in changed})
        assert response.is_success, response.text

    def refused(self, name: str) -> list[tuple[str, httpx.Response]]:
        """Set the field of a Container to invalid values.

        Returns
        -------
        list[tuple[str, httpx.Response]]
            Text that each refusal must contain, and the response.
        """
        field, base = self.names[name], self._base(name)
        return [
            (wrong.place, self.patch(name, field.set(base, wrong.value))) for wrong in field.invalid
        ]

    def patch(self, name: str, spec: dict[str, Any]) -> httpx.Response:
        """Change the spec of a Container and return the response."""
        return self.lifecycles.direct.patch(
            of(Container), name, {"spec": spec}, self.lifecycles.namespace
        )

    def containers(self) -> dict[str, dict[str, Any]]:
        """Read all Containers."""
        found = self.lifecycles.direct.list_objects(of(Container), self.lifecycles.namespace)
        return {each["metadata"]["name"]: each for each in found}

    def await_settled(self) -> None:
        """Wait until the operator has reconciled every spec and writes nothing more."""
        last: list[Any] = []

        def quiet() -> bool:
            before, found = last[:], self.containers()
            enclaves = self.lifecycles.direct.list_objects(of(Enclave), self.lifecycles.namespace)
            ending = [
                each
                for each in enclaves
                if "deletionTimestamp" in each["metadata"] or "demotedAt" in each.get("status", {})
            ]
            assert not ending, [each["metadata"]["name"] for each in ending]
            last[:] = [each["metadata"]["resourceVersion"] for each in found.values()]
            moving = {name: each["status"] for name, each in found.items() if _is_moving(each)}
            assert not moving, moving
            return before == last

        until_sync(quiet, within=PATIENCE, every=0.7, what="all settled")

    def states(self, names: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Return the part of each Container's state that follows from its spec alone."""
        everything = self.lifecycles.read()
        return {name: desired_part(self.lifecycles.state(name, everything)) for name in names}

    def _base(self, name: str) -> dict[str, Any]:
        """Return the spec that each starts with."""
        return {
            "repo": f"acme/{name}", "tag": "v1", "host": self.lifecycles.installation.host,
            "secrets": ["TOKEN"], "variables": [GREETING],
        }  # fmt: skip

    def _change(self, name: str, field: Field, value: Any) -> dict[str, Any]:
        """Return the patch of the first spec that gives a field a value."""
        if isinstance(value, str):
            value = value.format(name=name, commit=self._commits.get(name), host=self._host)
        return field.set(self._base(name), value) | TOGETHER.get(field.text, {})


def _is_moving(body: dict[str, Any]) -> bool:
    """Return whether further changes are due.

    A spec was not reconciled, a lookup is pending, or an enclave or a route is not settled.
    """
    status = body["status"]
    if status.get("observedGeneration") != body["metadata"]["generation"]:
        return True
    ready = next(each for each in status["conditions"] if each["type"] == "Ready")
    on_its_way = bool(status.get("candidate")) and ready["status"] != "True"
    ending = status["phase"] in {"stopping", "started"}
    return on_its_way or ending or ready["reason"] in {"Resolving", "RoutePending"}
