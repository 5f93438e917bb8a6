"""Restores an archive into an empty cluster, with the operator's Lease held until the end."""

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final

from cloister_api.backup.archive import Archive
from cloister_api.backup.contents import (
    KEPT_KINDS,
    SYSTEM_SECRETS,
    Body,
    fingerprint,
    is_made_once,
    place_of,
    problem_of,
    with_present_owners,
)
from cloister_clients.kube import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Invalid,
    KindRef,
    KubeClient,
    NotFound,
)
from cloister_clients.kube.kinds import LEASE, NAMESPACE, POD, SECRET, of
from cloister_crds.kinds import Enclave
from cloister_crds.names import RESTORE_HOLDER, RESTORES_ANNOTATION

FOREVER: Final = 2**31 - 1
"""Seconds for which nobody else takes the Lease."""
OPERATORS: Final = "app.kubernetes.io/part-of=cloister,app.kubernetes.io/component=operator"


class RestoreRefusedError(Exception):
    """The archive is not restored; the message says why, and what to do."""


class Hold:
    """The Lease of the operators of one installation."""

    def __init__(self, client: KubeClient, namespace: str, name: str) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name

    async def begun(self, archive: str) -> bool:
        """Return whether this archive's restore was begun before.

        Raises
        ------
        RestoreRefusedError
            When an operator leads or runs, or the restore of another archive was begun.
        KubeError
            When the cluster refuses or does not respond.
        """
        await self._refuse_running()
        return self._judge(await self._get(), archive)

    async def take(self, archive: str) -> None:
        """Take the Lease.

        Raises
        ------
        RestoreRefusedError
            When an operator leads, or the restore of another archive was begun.
        KubeError
            When the cluster refuses or does not respond.
        """
        lease = await self._get()
        if self._judge(lease, archive):
            return
        body = lease or {"metadata": {"name": self._name, "namespace": self._namespace}}
        annotations = body["metadata"].get("annotations") or {}
        body["metadata"]["annotations"] = annotations | {RESTORES_ANNOTATION: archive}
        now = self._client.clock().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        body["spec"] = {
            "holderIdentity": RESTORE_HOLDER,
            "leaseDurationSeconds": FOREVER,
            "acquireTime": now,
            "renewTime": now,
        }
        try:
            await (
                # Both writes fail on a concurrent change, so that an operator cannot take the Lease
                # between.
                self._client.create(LEASE, body)
                if lease is None
                else self._client.replace(LEASE, body)
            )
        except Conflict as error:
            raise RestoreRefusedError(self._leads("an operator")) from error

    async def release(self) -> None:
        """Let operators lead.

        Raises
        ------
        KubeError
            When the cluster refuses or does not respond.
        """
        lease = await self._get()
        if lease is not None and lease["spec"].get("holderIdentity") == RESTORE_HOLDER:
            uid = lease["metadata"]["uid"]
            await self._client.delete(LEASE, self._name, self._namespace, uid=uid)

    async def _get(self) -> dict[str, Any] | None:
        """Read the Lease; None if there is none."""
        try:
            return await self._client.get(LEASE, self._name, self._namespace)
        except NotFound:
            return None

    def _judge(self, lease: dict[str, Any] | None, archive: str) -> bool:
        """Return whether the Lease is held for an archive.

        Raises
        ------
        RestoreRefusedError
            When it is held for another one, or by an operator.
        """
        spec = (lease or {}).get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if lease is not None and holder == RESTORE_HOLDER:
            if (lease["metadata"].get("annotations") or {}).get(RESTORES_ANNOTATION) == archive:
                return True
            raise RestoreRefusedError(
                "the restore of another archive was begun and not completed: complete that one"
            )
        renewed = spec.get("renewTime")
        if holder and renewed:
            duration = timedelta(seconds=float(spec.get("leaseDurationSeconds") or 0))
            if datetime.fromisoformat(renewed) + duration > self._client.clock():
                raise RestoreRefusedError(self._leads(holder))
        return False

    async def _refuse_running(self) -> None:
        """Refuse while Pods of the operator run: they read the installation key at their start.

        Raises
        ------
        RestoreRefusedError
            When one runs.
        """
        pods = await self._client.list(
            POD, self._namespace, label_selector=OPERATORS, metadata_only=True
        )
        if pods.items:
            raise RestoreRefusedError(self._leads(f"Pod {pods.items[0]['metadata']['name']}"))

    def _leads(self, who: str) -> str:
        """Return who must not run now, as a sentence."""
        return (
            f"an operator runs ({who}), and would act on what is restored by half: stop it first, "
            f"as by kubectl -n {self._namespace} scale deployment cloister-operator --replicas=0"
        )


FIELD_MANAGER: Final = "cloister-restore"
"""Name under which objects are created, before their fields get the managers that they had."""
AT_ONCE: Final = 16
"""Objects that are written at a time."""
SHOWN: Final = 20
"""Differences that are shown."""
BEFORE: Final = ("hosts", "namespaces", "core-secrets")
"""Files whose objects may be there before a restore: an administrator's, or not only ours."""
OWNERS: Final = frozenset({"secrets", "registry-credentials", "containers", "organizations"})
"""Files of objects that others name by their uid."""
KEYS: Final = frozenset({"installation-key", "key-material"})
"""Keys of Secrets without which domains and API keys are lost."""


class Restoration:
    """The restore of one archive.

    Parameters
    ----------
    client
        An administrator who may change admission policies.
    """

    def __init__(self, client: KubeClient, archive: Archive, system: str) -> None:
        self._client = client
        self._archive = archive
        self._system = system
        self._uids: dict[str, str] = {}
        self.notes: list[str] = []
        """What somebody should know."""

    def check_archive(self) -> None:
        """Prove that this release understands every object.

        Raises
        ------
        RestoreRefusedError
            When it does not.
        """
        for name in KEPT_KINDS:
            for body in self._archive.bodies(name):
                if problem := problem_of(body):
                    raise RestoreRefusedError(
                        f"{problem}; restore with cloister {self._archive.manifest.cloister}"
                    )

    async def check_cluster(self, *, begun: bool) -> None:
        """Prove that the cluster can take the backup, and that nothing in it would be lost.

        Parameters
        ----------
        begun
            Whether this restore was begun before, so that objects may be there.

        Raises
        ------
        RestoreRefusedError
            When it cannot.
        KubeError
            When the cluster refuses or does not respond.
        """
        kinds = {name: ref for name, ref in KEPT_KINDS.items() if name not in BEFORE}
        # Enclaves are not in a backup, but a cluster that has some is not empty.
        for ref in (*kinds.values(), of(Enclave)):
            try:
                async with aclosing(self._client.list_pages(ref, limit=1)) as pages:
                    there = await anext(pages)
            except NotFound as error:
                raise RestoreRefusedError(
                    f"the cluster has no {ref.plural}.{ref.group}: install Cloister first"
                ) from error
            if there.items and not begun:
                raise RestoreRefusedError(
                    f"the cluster is not empty: there is {ref.kind} {place_of(there.items[0])}; "
                    "a backup is restored into an empty cluster"
                )
        try:
            await self._client.get(NAMESPACE, self._system)
        except NotFound as error:
            raise RestoreRefusedError(
                f"there is no namespace {self._system}: install Cloister first"
            ) from error
        for body in self._archive.bodies(SYSTEM_SECRETS):
            live = await self._system_secret(body)
            changed = live is not None and not is_made_once(live) and _data(live) != _data(body)
            if changed and KEYS & _data(body).keys():
                raise RestoreRefusedError(
                    f"Secret {self._system}/{body['metadata']['name']} holds other keys than the "
                    "backup, with which domains and API keys would be lost: delete it first"
                )

    async def write(self) -> None:
        """Write everything; what is there already is completed.

        Raises
        ------
        RestoreRefusedError
            When an object is there that is another one.
        KubeError
            When the cluster refuses or does not respond.
        """
        # First: programs that start from here on have the right keys.
        for body in self._archive.bodies(SYSTEM_SECRETS):
            await self._write_system_secret(body)
        for name in KEPT_KINDS:
            for group in groups(self._archive.bodies(name)):
                await asyncio.gather(*(self._write(name, body) for body in group))

    async def differences(self) -> list[str]:
        """Compare the cluster with the archive; empty if all is as it was.

        Raises
        ------
        KubeError
            When the cluster refuses or does not respond.
        """
        found: list[str] = []
        for name, ref in KEPT_KINDS.items():
            live = await self._live(name, ref)
            for body in self._archive.bodies(name):
                place = place_of(body)
                if place not in live:
                    found.append(f"{ref.kind} {place} is missing")
                elif live[place] != fingerprint(body):
                    found.append(f"{ref.kind} {place} is not what it was")
        for body in self._archive.bodies(SYSTEM_SECRETS):
            live_secret = await self._system_secret(body)
            name = f"Secret {self._system}/{body['metadata']['name']}"
            if live_secret is None:
                found.append(f"{name} is missing")
            elif _data(live_secret) != _data(body):
                note = f"{name} has other values than the backup, and was left as it is"
                self.notes.append(note)
        return found[:SHOWN]

    async def _live(self, name: str, ref: KindRef) -> dict[str, bytes]:
        """Return the digests of what the cluster has of a file."""
        if name != "core-secrets":
            return await self._digests(ref, None)
        result: dict[str, bytes] = {}
        for body in self._archive.bodies("namespaces"):
            result |= await self._digests(ref, body["metadata"]["name"])
        return result

    async def _digests(self, ref: KindRef, namespace: str | None) -> dict[str, bytes]:
        """Return the digests of the objects of a kind."""
        return {
            place_of(body): fingerprint(body)
            async for page in self._client.list_pages(ref, namespace)
            for body in page.items
        }

    async def _write(self, name: str, body: Body) -> None:
        """Create an object, with the managers of its fields and its status."""
        ref, meta = KEPT_KINDS[name], body["metadata"]
        where = meta.get("namespace")
        try:
            live = await self._client.create(ref, with_present_owners(body, self._uids), where)
        except AlreadyExists:
            live = await self._client.get(ref, meta["name"], where)
        if name in OWNERS:
            self._uids[meta["uid"]] = live["metadata"]["uid"]
        if _is_ours(live) and meta["managedFields"]:
            change: dict[str, Any] = {"metadata": {"managedFields": meta["managedFields"]}}
            await self._client.merge_patch(ref, meta["name"], change, where)
        wanted, status = body.get("status") or {}, live.get("status") or {}
        if any(status.get(field) != value for field, value in wanted.items()):
            try:
                await self._client.merge_patch(
                    ref, meta["name"], {"status": wanted}, where, subresource="status"
                )
            except (Forbidden, Invalid) as error:
                raise RestoreRefusedError(
                    f"{ref.kind} {place_of(body)} is another object than that of the backup, or "
                    f"you are not an administrator: {error.message}"
                ) from error

    async def _system_secret(self, body: Body) -> Body | None:
        """Read the Secret of the system that has the name of one in the archive."""
        try:
            return await self._client.get(SECRET, body["metadata"]["name"], self._system)
        except NotFound:
            return None

    async def _write_system_secret(self, body: Body) -> None:
        """Restore a Secret of the programs: a new one, or one that the chart made at random."""
        live = await self._system_secret(body)
        name = body["metadata"]["name"]
        if live is None:
            fresh = with_present_owners(body, {})
            fresh["metadata"] |= {"namespace": self._system}
            await self._client.create(SECRET, fresh, self._system)
        elif is_made_once(live) and _data(live) != _data(body):
            gone = dict.fromkeys(_data(live).keys() - _data(body).keys())
            change = {"data": {**gone, **_data(body)}}
            await self._client.merge_patch(SECRET, name, change, self._system)


def groups(bodies: Iterator[Body]) -> Iterator[tuple[Body, ...]]:
    """Group objects that may be written at the same time.

    A Container that replaces another one comes after it: it must not be the older of the two.
    """
    waiting: list[Body] = []

    def independent() -> Iterator[Body]:
        for body in bodies:
            if (body.get("spec") or {}).get("replaces"):
                waiting.append(body)
            else:
                yield body

    together = independent()
    while group := tuple(islice(together, AT_ONCE)):
        yield group
    for body in waiting:
        yield (body,)


def _is_ours(live: Body) -> bool:
    """Return whether fields of an object, other than its status, are still this command's."""
    return any(
        each.get("manager") == FIELD_MANAGER and "subresource" not in each
        for each in live["metadata"].get("managedFields") or ()
    )


def _data(secret: Body) -> dict[str, str]:
    """Return the values of a Secret."""
    return secret.get("data") or {}
