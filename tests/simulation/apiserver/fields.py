"""Server-side apply: which manager set which fields, and what a merge makes of them.

A set of fields is a tree of dictionaries: names of fields, or of items of lists that merge by
keys. What is replaced as a whole is a leaf, an empty dictionary. Rules: Kubernetes, "Server-Side
Apply".
"""

import json
from typing import Any

from tests.simulation.apiserver.kinds import Object, Shape

__all__ = ["FieldSet", "changed", "conflicts", "field_set", "merged", "minus", "plus", "without"]

FieldSet = dict[str, "FieldSet"]


def _key(item: Any, keys: tuple[str, ...]) -> str:
    if not keys:
        return f"v:{json.dumps(item, sort_keys=True)}"
    return "k:" + json.dumps({key: item.get(key) for key in keys}, sort_keys=True)


def field_set(value: Any, shape: Shape) -> FieldSet:
    """Return the fields that a value has."""
    if isinstance(value, dict):
        return {name: field_set(inner, shape.field(name)) for name, inner in value.items()}
    keys = shape.list_keys if isinstance(value, list) else None
    if keys is None:
        return {}
    inner = Shape(shape.keys, shape.path + "[]")
    return {_key(item, keys): field_set(item, inner) if keys else {} for item in value}


def plus(one: FieldSet, other: FieldSet) -> FieldSet:
    """Return the fields of both."""
    return {name: plus(one.get(name, {}), other.get(name, {})) for name in {**one, **other}}


def minus(one: FieldSet, other: FieldSet) -> FieldSet:
    """Return the fields of one that the other lacks; a field with others inside stays for them."""
    left = {}
    for name, inner in one.items():
        if name not in other:
            left[name] = inner
        elif inner and other[name]:
            rest = minus(inner, other[name])
            if rest:
                left[name] = rest
    return left


def changed(before: Any, after: Any, shape: Shape) -> tuple[FieldSet, FieldSet]:
    """Return the fields that were set to something new, and those that were removed."""
    if isinstance(before, dict) and isinstance(after, dict):
        pairs = {name: (before.get(name), after.get(name)) for name in {**before, **after}}
        names = {name: shape.field(name) for name in pairs}
    elif isinstance(before, list) and isinstance(after, list) and shape.list_keys is not None:
        keys = shape.list_keys
        old = {_key(item, keys): item for item in before}
        new = {_key(item, keys): item for item in after}
        pairs = {name: (old.get(name), new.get(name)) for name in {**old, **new}}
        names = dict.fromkeys(pairs, Shape(shape.keys, shape.path + "[]"))
    else:
        return {}, {}
    written: FieldSet = {}
    removed: FieldSet = {}
    for name, (old_value, new_value) in pairs.items():
        if old_value == new_value:
            continue
        if new_value is None:
            removed[name] = field_set(old_value, names[name])
        elif old_value is None:
            written[name] = field_set(new_value, names[name])
        else:
            inner, gone = changed(old_value, new_value, names[name])
            if inner or not gone:
                written[name] = inner
            if gone:
                removed[name] = gone
    return written, removed


def conflicts(live: Any, wanted: Any, owned: FieldSet, shape: Shape, path: str = "") -> list[str]:
    """Return the fields that another manager owns with another value."""
    found: list[str] = []
    for name, value, current, inner in _children(live, wanted, shape):
        if name not in owned:
            continue
        where = f"{path}.{name}"
        if owned[name] and isinstance(value, dict | list):
            found += conflicts(current, value, owned[name], inner, where)
        elif not owned[name] and value != current:
            found.append(where)
    return found


def _children(live: Any, wanted: Any, shape: Shape) -> list[tuple[str, Any, Any, Shape]]:
    if isinstance(wanted, dict):
        old: Any = live if isinstance(live, dict) else {}
        return [(name, value, old.get(name), shape.field(name)) for name, value in wanted.items()]
    keys = shape.list_keys
    if keys is None:
        return []
    old = {_key(item, keys): item for item in live or ()}
    inner = Shape(shape.keys, shape.path + "[]")
    return [(_key(item, keys), item, old.get(_key(item, keys)), inner) for item in wanted]


def merged(live: Any, wanted: Any, shape: Shape) -> Any:
    """Return a value with the wanted fields set."""
    if isinstance(wanted, dict) and isinstance(live, dict):
        result = dict(live)
        for name, value in wanted.items():
            result[name] = merged(live.get(name), value, shape.field(name))
        return result
    if isinstance(wanted, list) and isinstance(live, list) and shape.list_keys is not None:
        keys, inner = shape.list_keys, Shape(shape.keys, shape.path + "[]")
        items = {_key(item, keys): item for item in live}
        for item in wanted:
            key = _key(item, keys)
            items[key] = merged(items.get(key), item, inner) if keys else item
        return list(items.values())
    return wanted


def without(live: Any, fields: FieldSet, shape: Shape) -> Any:
    """Return a value without some fields; what is empty then goes too."""
    if isinstance(live, dict):
        return _dict_without(live, fields, shape)
    keys, inner = shape.list_keys, Shape(shape.keys, shape.path + "[]")
    if keys is None:
        return live
    kept = []
    for item in live:
        key = _key(item, keys)
        if key not in fields:
            kept.append(item)
        elif fields[key] and set(fields[key]) - set(keys):
            rest = without(item, {n: f for n, f in fields[key].items() if n not in keys}, inner)
            if set(rest) - set(keys):
                kept.append(rest)
    return kept


def _dict_without(live: Object, fields: FieldSet, shape: Shape) -> Object:
    result: Object = {}
    for name, value in live.items():
        if name not in fields:
            result[name] = value
        elif fields[name] and isinstance(value, dict | list):
            rest = without(value, fields[name], shape.field(name))
            if rest:
                result[name] = rest
    return result
