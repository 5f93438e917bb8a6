"""What another organization has and sees, in a form that is equal while nothing of it changes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from cloister_clients.kube.kinds import (
    CONFIG_MAP,
    NETWORK_POLICY,
    POD,
    POD_DISRUPTION_BUDGET,
    ROLE_BINDING,
    SECRET,
    SERVICE,
    of,
)
from cloister_crds.kinds import KINDS, HostnameClaim, Organization
from tests.support.cluster.direct_client import DirectClient

__all__ = ["Victim"]

_CORE = (POD, SERVICE, SECRET, CONFIG_MAP, NETWORK_POLICY, POD_DISRUPTION_BUDGET, ROLE_BINDING)
_KINDS = (*(of(kind) for kind in KINDS if kind.INFO.namespaced), *_CORE)
_VOLATILE = {"resourceVersion", "managedFields", "lastChecked", "checkedAt"}
_PATHS = ("/api/containers", "/api/deployments", "/api/secrets", "/api/domains")


@dataclass
class Victim:
    """One organization, as its administrator sees it."""

    direct: DirectClient
    rest: httpx.Client
    slug: str
    namespace: str

    def look(self) -> dict[str, Any]:
        """Return objects with their statuses, claims, and answers of the API."""
        found: dict[str, Any] = {}
        for ref in _KINDS:
            for each in self.direct.list_objects(ref, self.namespace):
                found[f"{ref.kind}/{each['metadata']['name']}"] = _still(each)
        for claim in self.direct.list_objects(of(HostnameClaim)):
            if claim["spec"]["holder"]["namespace"] == self.namespace:
                found[f"claim/{claim['metadata']['name']}"] = _still(claim)
        organization = self.direct.get(of(Organization), self.slug)
        found["organization"] = _still(organization)
        for path in (*_PATHS, *self._records()):
            response = self.rest.get(path)
            found[path] = (response.status_code, _body(response))
        return found

    def _records(self) -> list[str]:
        """Return the path of each container's record."""
        held = self.rest.get("/api/containers").json()
        return [f"/api/containers/{each['id']}" for each in held]

    def changes(self, before: Mapping[str, Any]) -> list[str]:
        """Return what differs from an earlier look."""
        now = self.look()
        names = sorted({*before, *now})
        return [
            f"{name}: {_short(before.get(name))} -> {_short(now.get(name))}"
            for name in names
            if before.get(name) != now.get(name)
        ]


def _still(value: Any) -> Any:
    """Return an object without what changes by itself."""
    if isinstance(value, dict):
        return {key: _still(each) for key, each in value.items() if key not in _VOLATILE}
    return [_still(each) for each in value] if isinstance(value, list) else value


def _body(response: httpx.Response) -> Any:
    if not response.headers.get("content-type", "").startswith("application/json"):
        return response.text
    return _still(response.json())


def _short(value: Any) -> str:
    return json.dumps(value, default=str)[:1500]
