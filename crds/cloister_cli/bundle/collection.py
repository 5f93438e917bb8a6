"""Reads what a support bundle holds; what cannot be read is noted and left out."""

import json
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final

from cloister_cli.bundle.redaction import Redactor, secret_values
from cloister_clients.kube import KindRef, KubeClient, KubeError
from cloister_clients.kube.kinds import (
    CONFIG_MAP,
    CUSTOM_RESOURCE_DEFINITION,
    EVENT,
    LEASE,
    NAMESPACE,
    NODE,
    POD,
    POLICY,
    POLICY_BINDING,
    SECRET,
    SERVICE,
    of,
)
from cloister_crds.installation import CONFIG_MAP_NAME
from cloister_crds.kinds import KINDS, Container

__all__ = ["Collection"]

ORGANIZATIONS: Final = "cloister.dev/organization"
OURS: Final = "app.kubernetes.io/managed-by=cloister"
PART: Final = "app.kubernetes.io/part-of=cloister"
APPS: Final = KindRef("apps", "v1", "deployments", "Deployment")
LARGEST: Final = 64 * 1024**2
"""Most bytes of one log or scrape."""

Files = AsyncIterator[tuple[str, str]]


class Collection:
    """Reads one installation.

    Parameters
    ----------
    client
        Whoever reads.
    system
        Namespace of the operator.
    log_lines
        Lines of each log, from its end.
    """

    def __init__(self, client: KubeClient, system: str, log_lines: int) -> None:
        self._client = client
        self._system = system
        self._log_lines = log_lines
        self._organizations: list[str] = []
        self._redactor = Redactor()
        self.problems: list[str] = []
        """What could not be read, and why."""

    async def files(self) -> Files:
        """Yield names and texts, without secrets."""
        await self._prepare()
        for kind in KINDS:
            yield await self._objects(f"objects/{kind.INFO.plural}.json", of(kind))
        yield await self._objects("cluster/nodes.json", NODE)
        yield await self._objects("cluster/namespaces.json", NAMESPACE, label=ORGANIZATIONS)
        yield await self._objects("cluster/policies.json", POLICY, label=PART)
        yield await self._objects("cluster/policy-bindings.json", POLICY_BINDING, label=PART)
        yield await self._objects("cluster/kinds.json", CUSTOM_RESOURCE_DEFINITION, label=PART)
        yield await self._objects("enclaves/pods.json", POD, label=OURS)
        yield await self._objects("enclaves/services.json", SERVICE, label=OURS)
        for ref in (POD, APPS, LEASE, SERVICE):
            yield await self._objects(f"system/{ref.plural}.json", ref, namespace=self._system)
        yield await self._installation()
        for namespace in (self._system, *self._organizations):
            yield await self._objects(f"events/{namespace}.json", EVENT, namespace=namespace)
        async for name, text in self._programs():
            yield name, text

    def redact(self, text: str) -> str:
        """Return a text of somebody else's without secrets; after `files`."""
        return self._redactor.text(text)

    async def _prepare(self) -> None:
        """Learn the values of secrets, so that they can be found wherever they are."""
        namespaces = await self._list(NAMESPACE, label=ORGANIZATIONS)
        self._organizations = [each["metadata"]["name"] for each in namespaces]
        values: set[str] = set()
        for namespace in (self._system, *self._organizations):
            for secret in await self._list(SECRET, namespace=namespace):
                values |= secret_values(secret)
        for container in await self._list(of(Container)):
            variables = container["spec"].get("variables") or ()
            values |= {each["value"] for each in variables if each.get("value")}
        self._redactor = Redactor(values)

    async def _objects(
        self, name: str, ref: KindRef, *, namespace: str | None = None, label: str | None = None
    ) -> tuple[str, str]:
        """Read the objects of a kind."""
        found = await self._list(ref, namespace=namespace, label=label)
        return name, self._json([_without_schemas(each) for each in found])

    async def _list(
        self, ref: KindRef, *, namespace: str | None = None, label: str | None = None
    ) -> Iterable[Any]:
        """List objects; none where that is refused."""
        try:
            return (await self._client.list(ref, namespace, label_selector=label)).items
        except KubeError as error:
            where = f" in {namespace}" if namespace else ""
            self._note(f"{ref.plural}{where}: {error}")
            return ()

    async def _installation(self) -> tuple[str, str]:
        """Read the settings that the operator publishes; they hold no secret."""
        name = f"system/{CONFIG_MAP_NAME}.json"
        try:
            found = await self._client.get(CONFIG_MAP, CONFIG_MAP_NAME, self._system)
        except KubeError as error:
            self._note(f"ConfigMap {CONFIG_MAP_NAME}: {error}")
            return name, "{}"
        return name, self._redactor.text(json.dumps(found.get("data"), indent=2))

    async def _programs(self) -> Files:
        """Read logs and metrics of our own programs; never of what enclaves run."""
        for pod in await self._list(POD, namespace=self._system, label=PART):
            place = f"{POD.path(self._system, pod['metadata']['name'])}"
            for container in pod["spec"]["containers"]:
                name = f"{pod['metadata']['name']}-{container['name']}"
                query = {"container": container["name"], "tailLines": str(self._log_lines)}
                for file, more in (("log", {}), ("previous.log", {"previous": "true"})):
                    text = await self._read(f"{place}/log", {**query, **more})
                    if text:
                        yield f"logs/{name}.{file}", text
                for port in container.get("ports") or ():
                    if port.get("name") == "metrics":
                        path = f"{place}:{port['containerPort']}/proxy/metrics"
                        yield f"metrics/{name}.txt", await self._read(path, {})

    async def _read(self, path: str, query: dict[str, str]) -> str:
        """Read a text; empty where that is refused."""
        try:
            return self._redactor.text(await self._client.text(path, query, largest=LARGEST))
        except KubeError as error:
            if "previous" not in query:
                self._note(f"{path}: {error}")
            return ""

    def _json(self, body: Any) -> str:
        """Write JSON without secrets."""
        return json.dumps(self._redactor.body(body), indent=1)

    def _note(self, problem: str) -> None:
        """Note what could not be read."""
        self.problems.append(self._redactor.text(problem))


def _without_schemas(body: dict[str, Any]) -> dict[str, Any]:
    """Leave the schemas of a kind out: its version is known."""
    if body.get("kind") != CUSTOM_RESOURCE_DEFINITION.kind:
        return body
    names = [each["name"] for each in body["spec"]["versions"]]
    return {"metadata": body["metadata"], "versions": names, "status": body.get("status")}
