"""Reads what is in a backup from the cluster: everything as it was at one moment."""

import json
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import IO, Final

from cloister_api.backup.contents import (
    KEPT_KINDS,
    SYSTEM_SECRETS,
    Body,
    is_kept_secret,
    kept,
    kept_container,
    place_of,
    secrets_of,
)
from cloister_clients.kube import Gone, KindRef, KubeClient, NotFound
from cloister_clients.kube.kinds import NAMESPACE, SECRET, of
from cloister_crds.kinds import Container, Enclave, Organization
from cloister_crds.kinds.request import RequestRecord

__all__ = ["Lines", "collect"]

APPS: Final = KindRef("apps", "v1", "deployments", "Deployment")
PART: Final = "app.kubernetes.io/part-of=cloister"
ATTEMPTS: Final = 3
"""How often the cluster is read, where it forgets the moment that is read."""


@dataclass
class Lines:
    """Objects, one line of JSON each, in a file that only this process sees."""

    file: IO[bytes] = field(default_factory=tempfile.TemporaryFile)
    """The file."""
    count: int = 0
    """How many objects there are."""

    def add(self, body: Body) -> None:
        """Write an object."""
        self.file.write(json.dumps(body, separators=(",", ":")).encode() + b"\n")
        self.count += 1

    def sort(self) -> None:
        """Sort by time of creation, in which order Containers count against the limit."""
        places = []
        self.file.seek(0)
        begin = 0
        for line in self.file:
            metadata = json.loads(line)["metadata"]
            places.append((metadata["creationTimestamp"], metadata["uid"], begin, len(line)))
            begin += len(line)
        ordered = tempfile.TemporaryFile()  # noqa: SIM115 - it takes the place of the other
        for _, _, begin, length in sorted(places):
            self.file.seek(begin)
            ordered.write(self.file.read(length))
        self.file.close()
        self.file = ordered


async def collect(
    client: KubeClient, system: str, secrets: tuple[str, ...]
) -> tuple[dict[str, Lines], list[str]]:
    """Read the cluster.

    Parameters
    ----------
    client
        Somebody who may read all Secrets.
    system
        Namespace of the programs.
    secrets
        Secrets of it that are in the backup beside those that the programs' Deployments name.

    Returns
    -------
    tuple
        The files of the archive by name, and sentences about what was left out.

    Raises
    ------
    KubeError
        When the cluster refuses or does not respond.
    """
    for attempt in range(ATTEMPTS):
        reading = _Collection(client, system)
        try:
            return await reading.read(secrets)
        except BaseException as error:
            reading.close()
            if not isinstance(error, Gone) or attempt == ATTEMPTS - 1:
                raise
    raise AssertionError


class _Collection:
    """One reading of the cluster, at one moment."""

    def __init__(self, client: KubeClient, system: str) -> None:
        self._client = client
        self._system = system
        self._at = ""
        self._files = {name: Lines() for name in (*KEPT_KINDS, SYSTEM_SECRETS)}
        self._namespaces: set[str] = set()
        self._left_out: list[str] = []

    async def read(self, secrets: tuple[str, ...]) -> tuple[dict[str, Lines], list[str]]:
        """Read everything."""
        first = await self._client.list(of(Organization))
        self._at = first.resource_version
        for body in first.items:
            if self._is_going(body):
                continue
            self._namespaces.add(body["spec"]["namespace"])
            self._files["organizations"].add(kept(body))
        del first
        for name, ref in KEPT_KINDS.items():
            if name == "organizations":
                continue
            async for body in self._objects(name, ref):
                self._files[name].add(await self._kept(body))
        self._files["containers"].sort()
        await self._system_secrets(secrets)
        return self._files, self._left_out

    def close(self) -> None:
        """Close the files."""
        for lines in self._files.values():
            lines.file.close()

    async def _objects(self, name: str, ref: KindRef) -> AsyncIterator[Body]:
        """Yield the objects of a file."""
        if name == "core-secrets":
            # Not of the whole cluster: other namespaces' are none of ours, and large.
            for namespace in sorted(self._namespaces):
                async for body in self._pages(ref, namespace):
                    if is_kept_secret(body):
                        yield body
            return
        label = "cloister.dev/organization" if ref is NAMESPACE else None
        async for body in self._pages(ref, None, label):
            metadata = body["metadata"]
            where = metadata["name"] if ref is NAMESPACE else metadata.get("namespace")
            if where is None or where in self._namespaces:
                yield body
            else:
                self._leave(body, f"its namespace {where} belongs to no Organization")

    async def _pages(
        self, ref: KindRef, namespace: str | None, label: str | None = None
    ) -> AsyncIterator[Body]:
        """Yield the objects of a kind that are not being deleted."""
        pages = self._client.list_pages(ref, namespace, label_selector=label, at=self._at)
        async for page in pages:
            for body in page.items:
                if not self._is_going(body):
                    yield body

    async def _kept(self, body: Body) -> Body:
        """Reduce an object to what is in the backup."""
        if body["kind"] != Container.INFO.kind:
            return kept(body)
        return kept_container(body, await self._serving(body))

    async def _serving(self, body: Body) -> RequestRecord | None:
        """Return the request that serves, where an update may end; None = it is not needed."""
        status = body.get("status") or {}
        if not status.get("update") or not status.get("activeEnclave"):
            return None
        try:
            found = await self._client.get(
                of(Enclave), status["activeEnclave"], body["metadata"]["namespace"]
            )
        except NotFound:
            return None
        return Enclave.read(found).spec.request

    async def _system_secrets(self, named: tuple[str, ...]) -> None:
        """Read the Secrets that the programs read."""
        names = set(named)
        page = await self._client.list(APPS, self._system, label_selector=PART)
        for deployment in page.items:
            names |= set(secrets_of(deployment["spec"]["template"]["spec"]))
        for name in sorted(names):
            try:
                body = await self._client.get(SECRET, name, self._system)
            except NotFound:
                self._left_out.append(f"Secret {self._system}/{name}: it does not exist")
                continue
            self._files[SYSTEM_SECRETS].add(kept(body))
        if not any("installation-key" in each for each in self._keys()):
            self._left_out.append(
                "the installation key and the key material: no Deployment names a Secret with "
                "them; name it with --secret, or keep the files apart"
            )

    def _keys(self) -> list[set[str]]:
        """Return the keys of the Secrets of the system."""
        file = self._files[SYSTEM_SECRETS].file
        file.seek(0)
        return [set(json.loads(line).get("data") or {}) for line in file]

    def _is_going(self, body: Body) -> bool:
        """Leave out what is being deleted."""
        going = "deletionTimestamp" in body["metadata"]
        if going and body["kind"] != SECRET.kind:
            self._leave(body, "it is being deleted")
        return going

    def _leave(self, body: Body, why: str) -> None:
        """Report what is not in the backup."""
        self._left_out.append(f"{body['kind']} {place_of(body)}: {why}")
