"""Two containers of the same request: one is called over REST, the other's manifest is changed.

An operator looks at both. There is no node: `tests.support.stand_ins.pod_status` writes the status
of Pods as a kubelet would.
"""

import json
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

import httpx

from cloister_crds.kinds import Container
from cloister_crds.names import deployment_name
from tests.support.programs.operator import Installation, manifest
from tests.support.stand_ins.pod_status import run_pod
from tests.support.waiting import until_sync

__all__ = ["REPO", "Doors"]

REPO = "acme/doors"
"""Repository of both."""
NUMBERS = count(1)


@dataclass
class Doors:
    """Two containers of the same request, one for each interface."""

    installation: Installation
    """The operator's side."""
    client: httpx.Client
    """The REST interface."""
    rest: str = ""
    """Name of the container that is called."""
    manifest: str = ""
    """Name of the container that is patched."""
    path: str = ""
    """Path of the container that is called."""
    commits: dict[str, str] = field(default_factory=dict)
    """Commit of each tag; a call pins it."""
    replaced: tuple[str, ...] = ()
    """Names of the containers that the two replace; they stay when the two go before they serve."""

    def of(self, name: str) -> Container:
        """Read a container."""
        found = self.installation.container(name)
        assert found is not None, name
        return found

    def post(self, action: str, **body: Any) -> None:
        """Call an action on the container as it is now, whose status the operator has written."""
        version = self.of(self.rest).metadata.resource_version
        seen = {"X-Consistency-Token": version}
        answer = self.client.post(f"{self.path}/{action}", json=body, headers=seen)
        assert answer.status_code in {200, 204}, answer.text

    def patch(self, **spec: Any) -> None:
        """Change the manifest."""
        where = (f"ctr/{self.manifest}", "-n", self.installation.namespace, "--type=merge")
        self.installation.kubectl("patch", *where, "-p", json.dumps({"spec": spec}))

    def tag(self, tag: str, **more: Any) -> dict[str, Any]:
        """Return the fields of another tag, as a call writes them."""
        return {"tag": tag, "commit": self.commits[tag], "relaunch": "again", **more}

    def apply(self, called: str, **spec: Any) -> None:
        """Apply a manifest as a whole."""
        commit = self.commits["v1.0.0"]
        given = {"repo": REPO, "tag": "v1.0.0", "commit": commit, "host": self.installation.host}
        self.installation.apply(manifest("Container", called, given | spec, self.place))

    def create(self, name: str, **body: Any) -> str:
        """Create over REST, and return the path."""
        given = {"name": name, "repo": REPO, "tag": "v1.0.0", "host_name": self.installation.host}
        answer = self.client.post("/api/containers", json=given | body)
        assert answer.status_code == 201, answer.text
        return str(answer.headers["location"])

    def begin(self, *, staging: bool) -> None:
        """Create the two containers."""
        number = next(NUMBERS)
        self.rest, self.manifest = f"r{number}", f"m{number}"
        body = {"staging": True} if staging else {}
        self.path = self.create(self.rest, **body)
        self.apply(self.manifest, **body)

    def run(self) -> None:
        """Let the Pods of both candidates come up."""
        for name in (self.rest, self.manifest):
            run_pod(self.installation, self.candidate(name))

    def candidate(self, name: str) -> str:
        """Wait for the candidate of a container."""
        return until_sync(lambda: self.of(name).status.candidate, within=60, what=name)

    def ready(self) -> None:
        """Let both serve."""
        self.run()
        for name in (self.rest, self.manifest):
            self.installation.wait_for(name, "Ready", reason="Serving")

    def update(self) -> None:
        """Bring both as far as a staged update that waits."""
        self.ready()
        self.post("relaunch", tag="v1.1.0")
        self.patch(**self.tag("v1.1.0"))
        self.run()
        for name in (self.rest, self.manifest):
            self.installation.wait_for(name, "Ready", reason="AwaitingPromotion")

    def deployment(self, **spec: Any) -> None:
        """Change the Deployment's manifest."""
        name = f"deployments.cloister.dev/{deployment_name(REPO)}"
        where = (name, "-n", self.installation.namespace, "--type=merge")
        self.installation.kubectl("patch", *where, "-p", json.dumps({"spec": spec}))

    def only_deployment(self) -> dict[str, Any]:
        """Wait until the facade shows the one Deployment that there is.

        The operator sweeps that of earlier containers, and makes it again for these.
        """

        def known(name: str) -> bool:
            status = self.of(name).status
            return bool(status.candidate or status.active_enclave)

        for name in (self.rest, self.manifest):
            until_sync(partial(known, name), within=60, what=name)

        def shown() -> dict[str, Any] | None:
            there = self.installation.objects("deployments.cloister.dev")
            found: list[dict[str, Any]] = self.client.get("/api/deployments").json()
            same = [each["metadata"]["uid"] for each in there] == [each["id"] for each in found]
            return found[0] if found and same else None

        found = until_sync(shown, what="the Deployment")
        assert found is not None
        return found

    def delete(self) -> None:
        """Delete both, the one by a call, and what they were to replace."""
        assert self.client.delete(self.path).status_code == 204
        for name in (self.manifest, *self.replaced):
            where = (f"ctr/{name}", "-n", self.place)
            self.installation.kubectl("delete", *where, "--ignore-not-found")

    @property
    def identity(self) -> str:
        """The identifier of the container that is called."""
        return self.path.rsplit("/", 1)[-1]

    def limit(self, containers: int) -> None:
        """Set how many containers the organization may have."""
        organization = f"organizations.cloister.dev/{self.installation.slug}"
        patch = {"spec": {"limits": {"containers": containers}}}
        self.installation.kubectl("patch", organization, "--type=merge", "-p", json.dumps(patch))

    @property
    def place(self) -> str:
        """The namespace."""
        return self.installation.namespace

    def await_shown(self, word: str) -> None:
        """Wait until the facade shows a status of the container that is called."""
        what = f"{word} of {self.rest} in the facade"
        until_sync(lambda: self.client.get(self.path).json()["status"] == word, what=what)

    def update_all(self) -> None:
        """Update the instance by the call for a repository's instances."""
        self.await_shown("ready")
        found = self.only_deployment()
        body = {"tag": "v1.1.0", "staging": False, "instance_ids": [self.identity]}
        answer = self.client.post(f"/api/deployments/{found['id']}/update", json=body)
        assert [each["status"] for each in answer.json()["results"]] == ["updating"], answer.text
