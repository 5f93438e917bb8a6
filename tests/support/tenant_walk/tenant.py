"""The tenant who takes the steps: with kubectl and with an admin key of its own organization."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from cloister_clients.kube import KindRef
from cloister_clients.kube.kinds import POD, SECRET, SERVICE, of
from cloister_crds.kinds import KINDS
from tests.support.cluster.direct_client import DirectClient
from tests.support.tenant_walk.steps import Step

__all__ = ["REFS", "Tenant", "tenant_rights"]

REFS: dict[str, KindRef] = {
    **{kind.INFO.plural: of(kind) for kind in KINDS},
    "core-secrets": SECRET,
    "pods": POD,
    "services": SERVICE,
}
"""Kinds by the words of steps."""
_PLACEHOLDER = re.compile(r"\{([a-z]+\.[a-z-]+)\}")
_REPEATED = "deletecollection"


def tenant_rights(namespace: str, user: str) -> list[dict[str, Any]]:
    """Return the role of tenants for a user, and the right to write every kind of ours there."""
    api = "rbac.authorization.k8s.io"
    everything = {
        "apiVersion": f"{api}/v1",
        "kind": "Role",
        "metadata": {"name": "every-kind", "namespace": namespace},
        "rules": [{"apiGroups": ["cloister.dev"], "resources": ["*"], "verbs": ["*"]}],
    }
    bindings = [
        {
            "apiVersion": f"{api}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": f"walk-{role}", "namespace": namespace},
            "roleRef": {"apiGroup": api, "kind": kind, "name": role},
            "subjects": [{"kind": "User", "name": user, "apiGroup": api}],
        }
        for kind, role in (("ClusterRole", "cloister-tenant-edit"), ("Role", "every-kind"))
    ]
    return [everything, *bindings]


@dataclass
class Tenant:
    """One tenant, and what it has done."""

    kubectl: DirectClient
    """Its identity at the API server."""
    rest: httpx.Client
    """Its admin key."""
    words: Mapping[str, str] = field(default_factory=dict)
    """Meaning of each placeholder."""
    namespaces: Mapping[str, str] = field(default_factory=dict)
    """Meaning of each namespace."""
    done: list[str] = field(default_factory=list)
    """Each step and its response."""
    accepted: int = 0
    """Number of steps that were not refused."""

    def take(self, step: Step) -> httpx.Response:
        """Take one step and return the response."""
        response = self._rest(step) if step.verb == "rest" else self._kubectl(step)
        said = "" if response.is_success else f" {response.text[:160]}"
        self.done.append(f"{len(self.done)}: {step} -> {response.status_code}{said}")
        self.accepted += response.is_success
        return response

    def _rest(self, step: Step) -> httpx.Response:
        """Call the Admin API."""
        method, path = (self._filled(each) for each in step.call)
        creates = method == "POST" and path == "/api/containers"
        body = self._filled(step.spec) if creates else {}
        return self.rest.request(method, path, json=body if method == "POST" else None)

    def _kubectl(self, step: Step) -> httpx.Response:
        """Send a request to the API server."""
        ref = REFS[step.plural]
        namespace = self.namespaces[step.namespace] if ref.namespaced else None
        place, item = ref.path(namespace), ref.path(namespace, step.name)
        if step.verb == "read":
            return self.kubectl.request("GET", item)
        if step.verb == _REPEATED:
            return self.kubectl.request("DELETE", place, propagationPolicy=step.propagation)
        if step.verb == "delete":
            return self.kubectl.request("DELETE", item, propagationPolicy=step.propagation)
        if step.verb == "status":
            body = {"status": self._filled(step.spec)}
            return self.kubectl.request("PATCH", f"{item}/status", body)
        content = self._content(step)
        if step.verb == "patch":
            return self.kubectl.request("PATCH", item, content)
        whole = {"apiVersion": ref.api_version, "kind": ref.kind, **content}
        whole["metadata"] = {**content["metadata"], "name": step.name}
        return self.kubectl.request("POST", place, whole)

    def _content(self, step: Step) -> dict[str, Any]:
        """Return metadata and spec of an object."""
        filled: dict[str, Any] = {"metadata": self._filled(step.metadata)}
        if step.plural == "core-secrets":
            return {**filled, "stringData": {"value": "x"}}
        return {**filled, "spec": self._filled(step.spec)}

    def _filled(self, value: Any) -> Any:
        """Return JSON data with its placeholders filled in."""
        text = _PLACEHOLDER.sub(lambda found: self.words[found[1]], json.dumps(value))
        return json.loads(text)
