"""The kinds that the simulated API server has: their schemas, and how their lists merge."""

import copy
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from cloister_clients.kube import kinds as builtin
from cloister_clients.kube.kinds import KindRef, of
from cloister_crds.kinds import KINDS
from cloister_crds.kinds.meta import GROUP, Resource

__all__ = ["KindModel", "Object", "Refused", "Shape", "all_kinds", "invalid"]

Object = dict[str, Any]
Keys = tuple[str, ...]

MANIFESTS = Path(__file__).parents[3] / "crds" / "manifests" / "crds"


class Refused(Exception):  # noqa: N818 - it names the response
    """The server refuses a request, with the status that a real one has."""

    def __init__(
        self, code: int, reason: str, message: str, *, retry_after: int | None = None
    ) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message
        self.retry_after = retry_after
        """Seconds of the header Retry-After; None if there is none."""


def invalid(ref: KindRef, name: str, message: str) -> Refused:
    """Return the refusal of an object that breaks a rule of its kind."""
    return Refused(422, "Invalid", f'{ref.kind} "{name}" is invalid: {message}')


BUILT_IN_LISTS: Mapping[str, Mapping[str, Keys]] = {
    "": {"metadata.ownerReferences": ("uid",), "metadata.finalizers": ()},
    "services": {"spec.ports": ("port", "protocol")},
    "pods": {
        "spec.containers": ("name",),
        "spec.initContainers": ("name",),
        "spec.volumes": ("name",),
        "spec.imagePullSecrets": ("name",),
        "spec.topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
        "status.conditions": ("type",),
    },
    "nodes": {"status.conditions": ("type",), "status.addresses": ("type",)},
    "poddisruptionbudgets": {"status.conditions": ("type",)},
}
"""Plural -> path of a list -> the keys that it merges by; none for a set, and those that are not
here are replaced as a whole."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How a part of an object merges."""

    keys: Callable[[str], Keys | None]
    """Path of a list -> the keys that it merges by; () for a set, None where it is replaced."""
    path: str = ""

    def field(self, name: str) -> "Shape":
        """Return the shape of a field."""
        return Shape(self.keys, f"{self.path}.{name}" if self.path else name)

    @property
    def list_keys(self) -> Keys | None:
        """The keys that the list here merges by."""
        return self.keys(self.path)


@dataclass(frozen=True, slots=True)
class KindModel:
    """One kind."""

    ref: KindRef
    """Its place in the API."""
    schema: Object | None
    """Schema of a kind of ours; None for a kind of Kubernetes."""
    resource: type[Resource] | None
    """The contract's model, which checks the rules that need no earlier version."""
    status: bool
    """Whether it has a status subresource."""
    generation: bool
    """Whether its generation counts changes of anything but metadata and status."""
    shape: Shape
    """How it merges."""

    @property
    def _parts(self) -> Object:
        properties = self.schema["properties"] if self.schema is not None else {}
        return {name: properties[name] for name in ("spec", "status") if name in properties}

    def unknown_fields(self, body: Object) -> str:
        """Return the fields of spec and status that the schema lacks; defaults are set."""
        found = (_walk(schema, body[n], n) for n, schema in self._parts.items() if n in body)
        return ", ".join(each for unknown in found for each in unknown)

    def admit(self, new: Object, old: Object | None, *, strict: bool) -> None:
        """Set defaults, and refuse what the kind does not permit.

        Raises
        ------
        Refused
            422 for an unknown field or a broken rule.
        """
        name = new["metadata"]["name"]
        if self.schema is None or self.resource is None:
            return
        _set_defaults(self._parts, new)
        unknown = self.unknown_fields(new)
        if unknown and strict:
            raise invalid(self.ref, name, unknown)
        _check_changes(self, new, old)
        try:
            self.resource.read(new)
        except ValidationError as error:
            problems = "; ".join(
                f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()
            )
            raise invalid(self.ref, name, problems) from None


def _walk(schema: Object, value: Any, path: str) -> list[str]:
    """Set the defaults of a value, drop null, and return its unknown fields."""
    if isinstance(value, list):
        items = schema.get("items") or {}
        return [each for n, item in enumerate(value) for each in _walk(items, item, f"{path}[{n}]")]
    unknown: list[str] = []
    if isinstance(value, dict):
        properties: Object = schema.get("properties") or {}
        others = schema.get("additionalProperties")
        free = schema.get("x-kubernetes-preserve-unknown-fields") or (not properties and not others)
        for name in [name for name, inner in value.items() if inner is None]:
            del value[name]
        for name, inner in value.items():
            if name in properties:
                unknown += _walk(properties[name], inner, f"{path}.{name}")
            elif isinstance(others, dict):
                unknown += _walk(others, inner, f"{path}.{name}")
            elif not free:
                unknown.append(f'unknown field "{path}.{name}"')
        _set_defaults(properties, value)
    return unknown


def _set_defaults(properties: Object, value: Object) -> None:
    for name, inner in properties.items():
        if name not in value and "default" in inner:
            value[name] = copy.deepcopy(inner["default"])
            _walk(inner, value[name], name)


def _at(value: Any, path: str) -> Any:
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _check_changes(kind: KindModel, new: Object, old: Object | None) -> None:
    """Check the rules about changes, which the models leave to the server."""
    for change in _changes(kind.ref.plural):
        before, after = _at(old, change.path), _at(new, change.path)
        exempt = old is None or (change.once_set and before is None)
        # What holds a field that never changes may come and go: its rule is checked where it is.
        exempt = exempt or _at(old, change.within) is None or _at(new, change.within) is None
        if not exempt and before != after:
            raise invalid(kind.ref, new["metadata"]["name"], change.message)


@dataclass(frozen=True, slots=True)
class _Change:
    """A value that cannot change."""

    within: str
    path: str
    once_set: bool
    message: str


@cache
def _changes(plural: str) -> tuple[_Change, ...]:
    """Return the values that cannot change, by the rules of the schema."""
    found: list[_Change] = []

    def collect(schema: Object, path: str) -> None:
        found.extend(
            _change(rule["rule"], path, rule["message"])
            for rule in schema.get("x-kubernetes-validations") or ()
            if "oldSelf" in rule["rule"] and not rule.get("optionalOldSelf")
        )
        for name, inner in (schema.get("properties") or {}).items():
            collect(inner, f"{path}.{name}" if path else name)

    collect(_schema(plural), "")
    return tuple(found)


_ONCE_SET = re.compile(
    r"!has\(oldSelf\.(\w+)\) \|\| \(has\(self\.\1\) && self\.\1 == oldSelf\.\1\)"
)
_ALWAYS = re.compile(
    r"has\(self\.(\w+)\) == has\(oldSelf\.\1\) && "
    r"\(!has\(self\.\1\) \|\| self\.\1 == oldSelf\.\1\)"
)


def _change(rule: str, path: str, message: str) -> _Change:
    """Read a rule about a change: a value stays, always or once it is set.

    Raises
    ------
    NotImplementedError
        When the rule says something else: model it here.
    """
    text = " ".join(rule.split())
    if text == "self == oldSelf":
        return _Change(path, path, once_set=False, message=message)
    for pattern, once_set in ((_ONCE_SET, True), (_ALWAYS, False)):
        if found := pattern.fullmatch(text):
            return _Change(path, f"{path}.{found[1]}", once_set, message)
    raise NotImplementedError(f"a rule about changes that is not modelled: {path}: {text}")


@cache
def _schema(plural: str) -> Object:
    text = (MANIFESTS / f"{plural}.yaml").read_text(encoding="utf-8")
    versions = yaml.load(text, Loader=yaml.CSafeLoader)["spec"]["versions"]
    found: Object = versions[0]["schema"]["openAPIV3Schema"]
    return found


def _keys_of_schema(schema: Object) -> Mapping[str, Keys]:
    """Return the lists of a schema that merge, by path."""
    found: dict[str, Keys] = dict(BUILT_IN_LISTS[""])

    def collect(part: Object, path: str) -> None:
        kind = part.get("x-kubernetes-list-type")
        if kind == "map":
            found[path] = tuple(part["x-kubernetes-list-map-keys"])
        elif kind == "set":
            found[path] = ()
        for name, inner in (part.get("properties") or {}).items():
            collect(inner, f"{path}.{name}" if path else name)
        if isinstance(part.get("items"), dict):
            collect(part["items"], path + "[]")

    collect(schema, "")
    return found


WITHOUT_STATUS = {"configmaps", "secrets", "leases", "endpointslices", "rolebindings"}
"""Kinds of Kubernetes that have no status subresource."""
WITH_GENERATION = {"networkpolicies", "poddisruptionbudgets", "pods"}
"""Kinds of Kubernetes that we use whose generation counts."""


@cache
def all_kinds() -> Mapping[tuple[str, str, str], KindModel]:
    """Return all kinds by group, version and plural."""
    found = {}
    for value in vars(builtin).values():
        for ref in value if isinstance(value, tuple) else (value,):
            if isinstance(ref, KindRef):
                lists = {**BUILT_IN_LISTS[""], **BUILT_IN_LISTS.get(ref.plural, {})}
                found[(ref.group, ref.version, ref.plural)] = KindModel(
                    ref=ref,
                    schema=None,
                    resource=None,
                    status=ref.plural not in WITHOUT_STATUS,
                    generation=ref.plural in WITH_GENERATION,
                    shape=Shape(lists.get),
                )
    for resource in KINDS:
        ref, schema = of(resource), _schema(of(resource).plural)
        assert ref.group == GROUP
        _changes(ref.plural)
        found[(ref.group, ref.version, ref.plural)] = KindModel(
            ref=ref,
            schema=schema,
            resource=resource,
            status="status" in schema["properties"],
            generation=True,
            shape=Shape(_keys_of_schema(schema).get),
        )
    return found
