"""The objects of the simulated API server: one order of versions, and what each verb does."""

import bisect
import copy
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec

from cloister_clients.kube.kinds import NAMESPACE, POD, KindRef
from tests.simulation.apiserver.bodies import (
    SYSTEM,
    complete,
    copied,
    counted,
    merge_patched,
    new_in_place,
    ownable,
    tidy,
    values_taken,
)
from tests.simulation.apiserver.fields import (
    FieldSet,
    changed,
    conflicts,
    field_set,
    merged,
    minus,
    plus,
    without,
)
from tests.simulation.apiserver.kinds import KindModel, Object, Refused, all_kinds
from tests.simulation.machines import World

__all__ = ["FOREGROUND", "Change", "Manager", "Objects", "Stored", "selects"]

Manager = tuple[str, str, str]
"""Name, operation (Apply or Update) and subresource of a field manager."""
Place = tuple[str, str]
"""Namespace, empty for kinds without, and name."""

KEPT = 2000
"""Changes of a kind that watches can still read; older versions are 410 Gone."""
FOREGROUND = "foregroundDeletion"
"""Finalizer of an object whose dependents go first."""
UNCONDITIONAL = {"configmaps"}
"""Kinds of which a PUT need not name a version."""


@dataclass(slots=True)
class Stored:
    """One version of an object; it is never changed."""

    body: Object
    defaulted: bool = False
    """Whether its status is a default that is not stored yet: the next write is a new version, also
    if it changes nothing else."""
    _text: bytes = b""

    @property
    def text(self) -> bytes:
        """The body as JSON, built once."""
        if not self._text:
            self._text = msgspec.json.encode(self.body)
        return self._text

    @property
    def metadata(self) -> Object:
        """The metadata."""
        found: Object = self.body["metadata"]
        return found

    @property
    def version(self) -> int:
        """The resourceVersion."""
        return int(self.metadata["resourceVersion"])

    @property
    def deleting(self) -> bool:
        """Whether it has been told to go."""
        return "deletionTimestamp" in self.metadata


@dataclass(frozen=True, slots=True)
class Change:
    """One write."""

    version: int
    kind: KindModel
    before: Stored | None
    """None if it was created."""
    after: Stored | None
    """None if it is gone."""

    @property
    def name(self) -> str:
        """Namespace and name of the object."""
        found = (self.after or self.before).metadata  # type: ignore[union-attr]  # one of both
        return f"{found.get('namespace', '')}/{found['name']}".lstrip("/")

    @property
    def begins_to_go(self) -> bool:
        """Whether the object is told to go, or gone without that."""
        going = self.after is None or self.after.deleting
        return self.before is not None and going and not self.before.deleting


@dataclass(slots=True)
class _Kept:
    """The objects of a kind, and what happened to them."""

    objects: dict[Place, Stored] = field(default_factory=dict)
    managers: dict[Place, dict[Manager, FieldSet]] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    forgotten: int = 0
    """Version up to which changes are forgotten."""


class Objects:
    """All objects, and the verbs that change them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.version = 100
        """The newest resourceVersion."""
        self.observers: list[Callable[[Change], None]] = []
        """Called with each change."""
        self._uid = 0
        self._kept: defaultdict[tuple[str, str], _Kept] = defaultdict(_Kept)

    def kept(self, ref: KindRef) -> _Kept:
        """Return what there is of a kind."""
        return self._kept[ref.group, ref.plural]

    def find(self, ref: KindRef, name: str, namespace: str = "") -> Stored | None:
        """Return an object; None if there is none."""
        return self.kept(ref).objects.get((namespace, name))

    def get(self, ref: KindRef, name: str, namespace: str = "") -> Stored:
        """Return an object.

        Raises
        ------
        Refused
            404 when there is none.
        """
        found = self.find(ref, name, namespace)
        if found is None:
            raise Refused(404, "NotFound", f'{ref.plural} "{name}" not found')
        return found

    def all(self, ref: KindRef, namespace: str = "", selector: str = "") -> list[Stored]:
        """Return the objects of a kind, ordered by namespace and name."""
        return [
            found
            for (place, _), found in sorted(self.kept(ref).objects.items())
            if namespace in ("", place) and selects(selector, found)
        ]

    def everything(self) -> Iterator[tuple[KindModel, Stored]]:
        """Return all objects of all kinds."""
        for kind in all_kinds().values():
            for _, found in sorted(self.kept(kind.ref).objects.items()):
                if found.body["apiVersion"] == kind.ref.api_version:
                    yield kind, found

    def changes_after(self, ref: KindRef, version: int) -> int | None:
        """Return the place in the list of changes after a version; None if they are forgotten."""
        kept = self.kept(ref)
        if version < kept.forgotten:
            return None
        return bisect.bisect_right(kept.changes, version, key=lambda change: change.version)

    def create(
        self,
        kind: KindModel,
        body: Object,
        manager: Manager,
        *,
        strict: bool = True,
        applied: FieldSet | None = None,
    ) -> Stored:
        """Create an object.

        Parameters
        ----------
        applied
            The fields that its manager owns; None means all of them.

        Raises
        ------
        Refused
            400, 403, 404, 409 or 422, as a server does.
        """
        body = copied(body)
        metadata = body["metadata"]
        self._check_namespace(kind.ref, metadata)
        place = (metadata.get("namespace", ""), metadata["name"])
        versioned = bool(metadata.get("resourceVersion"))
        for name in SYSTEM - {"name", "namespace"}:
            metadata.pop(name, None)
        self._uid += 1
        metadata["uid"] = f"{self._uid:08x}-0000-4000-8000-000000000000"
        metadata["creationTimestamp"] = self.world.stamp()
        if kind.generation:
            metadata["generation"] = 1
        body["apiVersion"], body["kind"] = kind.ref.api_version, kind.ref.kind
        if kind.status:
            body.pop("status", None)
        complete(kind.ref, body)
        tidy(body)
        kind.admit(body, None, strict=strict)
        if versioned:
            raise Refused(500, "", "resourceVersion should not be set on objects to be created")
        if place in self.kept(kind.ref).objects:
            taken = f'{kind.ref.plural} "{place[1]}" already exists'
            raise Refused(409, "AlreadyExists", taken)
        own = ownable(field_set(body, kind.shape) if applied is None else applied)
        stored = self._put(kind, place, None, body, {manager: own} if own else {})
        assert stored is not None
        stored.defaulted = kind.schema is not None and "status" in body
        return stored

    def update(
        self,
        kind: KindModel,
        old: Stored,
        body: Object,
        manager: Manager,
        *,
        subresource: str = "",
        strict: bool = True,
    ) -> Stored:
        """Put a body in the place of an object, or of its status."""
        new = self._prepared(kind, old, body, subresource, strict=strict)
        if new == old.body and not old.defaulted:
            return old
        place = (old.metadata.get("namespace", ""), old.metadata["name"])
        written, removed = changed(old.body, new, kind.shape)
        owned = {}
        for other, fields in self.kept(kind.ref).managers.get(place, {}).items():
            left = minus(minus(fields, ownable(removed)), ownable(written))
            if left:
                owned[other] = left
        owned[manager] = plus(owned.get(manager, {}), ownable(written))
        return self._put(kind, place, old, new, owned) or old

    def replace(
        self,
        kind: KindModel,
        old: Stored,
        body: Object,
        manager: Manager,
        *,
        subresource: str = "",
        strict: bool = True,
    ) -> Stored:
        """Put a body in the place of the version that it names."""
        version = body["metadata"].get("resourceVersion")
        if not version and kind.ref.plural not in UNCONDITIONAL:
            raise Refused(422, "Invalid", "metadata.resourceVersion: must be specified")
        check_version(old, version, body["metadata"].get("uid"))
        return self.update(kind, old, body, manager, subresource=subresource, strict=strict)

    def patch(
        self,
        kind: KindModel,
        old: Stored,
        body: Object,
        manager: Manager,
        *,
        subresource: str = "",
        strict: bool = True,
    ) -> Stored:
        """Merge a patch into an object (RFC 7396)."""
        check_version(old, (body.get("metadata") or {}).get("resourceVersion"))
        new: Object = merge_patched(old.body, body)
        return self.update(kind, old, new, manager, subresource=subresource, strict=strict)

    def apply(
        self,
        kind: KindModel,
        body: Object,
        manager: Manager,
        *,
        force: bool,
        subresource: str = "",
        strict: bool = True,
    ) -> tuple[Stored, bool]:
        """Apply an object server-side; return it, and whether it was created."""
        if unknown := kind.unknown_fields(copied(body)):
            raise Refused(500, "", f"failed to create typed patch object: {unknown}")
        metadata = body["metadata"]
        place = (metadata.get("namespace", ""), metadata["name"])
        old = self.kept(kind.ref).objects.get(place)
        if old is None:
            if subresource:
                raise Refused(404, "NotFound", f'{kind.ref.plural} "{place[1]}" not found')
            whole = new_in_place(body)
            own = field_set({n: v for n, v in whole.items() if n != "status"}, kind.shape)
            return self.create(kind, whole, manager, strict=strict, applied=own), True
        check_version(old, metadata.get("resourceVersion"), metadata.get("uid"))
        wanted = copied({n: v for n, v in body.items() if n not in ("apiVersion", "kind")})
        wanted["metadata"] = {n: v for n, v in wanted["metadata"].items() if n not in SYSTEM}
        if subresource:
            wanted = {"status": wanted.get("status") or {}}
        elif kind.status:
            wanted.pop("status", None)
        managers = self.kept(kind.ref).managers.setdefault(place, {})
        others = {other: fields for other, fields in managers.items() if other != manager}
        owned_by_others: FieldSet = {}
        for fields in others.values():
            owned_by_others = plus(owned_by_others, fields)
        met = conflicts(old.body, wanted, owned_by_others, kind.shape)
        if met and not force:
            text = f"Apply failed with {len(met)} conflict(s): {', '.join(met)}"
            raise Refused(409, "Conflict", text)
        now = ownable(field_set(wanted, kind.shape))
        given_up = minus(minus(managers.get(manager, {}), now), owned_by_others)
        new = merged(without(old.body, given_up, kind.shape), wanted, kind.shape)
        new = self._prepared(kind, old, new, subresource, strict=strict)
        taken = values_taken(old.body, wanted, kind.shape)
        owned = {other: left for other, f in others.items() if (left := minus(f, taken))}
        if now:
            owned[manager] = now
        # Who owns a field is part of the object: a change of that alone is a new version, too.
        if new == old.body and owned == managers and not old.defaulted:
            return old, False
        return self._put(kind, place, old, new, owned) or old, False

    def delete(self, kind: KindModel, old: Stored, options: Object) -> Stored:
        """Delete an object, or begin to where it has finalizers or a grace period.

        Returns
        -------
        Stored
            The last version of what is gone, or the version that waits.
        """
        wanted = options.get("preconditions") or {}
        check_version(old, wanted.get("resourceVersion"), wanted.get("uid"))
        metadata, grace = old.metadata, options.get("gracePeriodSeconds")
        place = (metadata.get("namespace", ""), metadata["name"])
        # A Pod that no kubelet has seen goes at once.
        graceful = kind.ref == POD and grace != 0 and bool(old.body["spec"].get("nodeName"))
        foreground = options.get("propagationPolicy") == "Foreground"
        waits = metadata.get("finalizers") or graceful or foreground or kind.ref == NAMESPACE
        if not waits:
            self._put(kind, place, old, None, {})
            return old
        if old.deleting:
            return old
        new = copied(old.body)
        new["metadata"]["deletionTimestamp"] = self.world.stamp()
        if kind.generation:
            new["metadata"]["generation"] += 1
        if foreground:
            new["metadata"].setdefault("finalizers", []).append(FOREGROUND)
        own = new["spec"].get("terminationGracePeriodSeconds", 30) if graceful else 0
        new["metadata"]["deletionGracePeriodSeconds"] = grace or own
        if kind.ref == NAMESPACE:
            new["status"] = {"phase": "Terminating"}
        owned = self.kept(kind.ref).managers.get(place, {})
        return self._put(kind, place, old, new, owned) or old

    def remove(self, kind: KindModel, old: Stored) -> None:
        """Remove an object whose controller has finished: a Pod that ended, an empty namespace."""
        self._put(kind, (old.metadata.get("namespace", ""), old.metadata["name"]), old, None, {})

    def _check_namespace(self, ref: KindRef, metadata: Object) -> None:
        if not ref.namespaced:
            return
        name = metadata["namespace"]
        namespace = self.find(NAMESPACE, name)
        if namespace is None:
            raise Refused(404, "NotFound", f'namespaces "{name}" not found')
        if namespace.deleting:
            text = f"unable to create new content in namespace {name}: it is being terminated"
            raise Refused(403, "Forbidden", text)

    def _prepared(
        self, kind: KindModel, old: Stored, body: Object, subresource: str, *, strict: bool
    ) -> Object:
        """Return a body with what no client sets, and only the part that the request changes."""
        new = copied(body)
        if subresource == "status":
            status, new = new.get("status"), copied(old.body)
            new["status"] = status
        elif kind.status:
            new["status"] = copy.deepcopy(old.body.get("status"))
        if new.get("status") is None:
            new.pop("status", None)
        metadata = new["metadata"]
        for name in SYSTEM:
            if name in old.metadata:
                metadata[name] = old.metadata[name]
            else:
                metadata.pop(name, None)
        tidy(new)
        if old.deleting:
            had = set(old.metadata.get("finalizers") or ())
            added = set(metadata.get("finalizers") or ()) - had
            if added:
                text = f"no new finalizers can be added if the object is being deleted: {added}"
                raise Refused(422, "Invalid", text)
        kind.admit(new, old.body, strict=strict)
        if kind.generation and counted(new) != counted(old.body):
            metadata["generation"] = old.metadata["generation"] + 1
        return new

    def _put(
        self,
        kind: KindModel,
        place: Place,
        old: Stored | None,
        body: Object | None,
        managers: dict[Manager, FieldSet],
    ) -> Stored | None:
        """Store a new version, or remove the object, and tell who observes."""
        kept = self.kept(kind.ref)
        self.version += 1
        new = None
        if body is not None:
            body["metadata"]["resourceVersion"] = str(self.version)
            new = Stored(body)
            finished = new.deleting and not body["metadata"].get("finalizers")
            if finished and kind.ref not in (POD, NAMESPACE):
                new = None
        if new is None:
            kept.objects.pop(place, None)
            kept.managers.pop(place, None)
        else:
            kept.objects[place] = new
            kept.managers[place] = managers
        change = Change(self.version, kind, old, new)
        kept.changes.append(change)
        if len(kept.changes) > KEPT:
            kept.forgotten = kept.changes[KEPT // 2].version
            del kept.changes[: KEPT // 2 + 1]
        for observer in self.observers:
            observer(change)
        return new if body is None or new is not None else Stored(body)


def check_version(stored: Stored, version: str | None, uid: str | None = None) -> None:
    """Refuse a request that is about another version or another object of that name."""
    if uid and stored.metadata["uid"] != uid:
        raise Refused(409, "Conflict", "the UID in the precondition differs from the object's")
    if version and stored.metadata["resourceVersion"] != version:
        raise Refused(409, "Conflict", "the object has been modified; please apply your changes")


def selects(selector: str, stored: Stored) -> bool:
    """Return whether a selector of labels selects an object.

    Raises
    ------
    NotImplementedError
        When the selector has a form that is not modelled.
    """
    labels = stored.metadata.get("labels") or {}
    for part in filter(None, selector.split(",")):
        if "(" in part:
            raise NotImplementedError(f"selector {selector}")
        name, unequal, value = part.partition("!=")
        if unequal:
            fits = labels.get(name) != value
        elif "=" in part:
            name, _, value = part.replace("==", "=").partition("=")
            fits = labels.get(name) == value
        elif part.startswith("!"):
            fits = part[1:] not in labels
        else:
            fits = part in labels
        if not fits:
            return False
    return True
