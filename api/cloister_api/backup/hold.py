"""Keeps operators from acting on what is restored by half: the restore holds their Lease.

It is held without end, and deleted when the restore is complete. A restore that was killed leaves
it, so that no operator leads until the restore was run again.
"""

from datetime import datetime, timedelta
from typing import Any, Final

from cloister_clients.kube import Conflict, KubeClient, NotFound
from cloister_clients.kube.kinds import LEASE, POD
from cloister_crds.names import RESTORE_HOLDER, RESTORES_ANNOTATION

__all__ = ["Hold", "RestoreRefusedError"]

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
        """Read the Lease; None = there is none."""
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
