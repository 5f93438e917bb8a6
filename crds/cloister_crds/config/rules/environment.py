"""What a container receives: variables and secrets.

Sources: spec 12.5, 42.7, 42.8, 42.29 to 42.31; POSIX for the names of variables.
"""

from collections.abc import Mapping as MappingOf
from typing import Final

from cloister_crds.config.limits import (
    KEBAB_NAME,
    MAX_LIST,
    MAX_NAME_BYTES,
    METRICS_SECRETS,
    VARIABLE_NAME,
    looks_like_metrics_secret,
)
from cloister_crds.config.model import EnvEntry, ServiceConfig
from cloister_crds.config.syntax.document import Mapping
from cloister_crds.config.syntax.reading import Section, Spot, show
from cloister_crds.config.syntax.scalars import ScalarKind
from cloister_crds.problems import Problem, Severity

__all__ = ["check_environment", "read_env", "read_secrets", "variable_problems"]

DOMAIN: Final = "DOMAIN"
"""Bare name that gets the public host name unless the variables set it."""
TELLING: Final = (ScalarKind.TEXT, ScalarKind.BOOL, ScalarKind.INTEGER, ScalarKind.FLOAT)
"""Values whose text is the same to every reader."""


def read_env(spot: Spot) -> tuple[EnvEntry, ...] | None:
    """Read the variables."""
    if isinstance(spot.node, Mapping):
        message = "is a map: write a list with an entry `- NAME: value` for each variable"
        spot.error("WrongType", message)
        return None
    items = spot.items(MAX_LIST, "a list of `- NAME: value` and `- NAME`")
    if items is None:
        return None
    entries: list[EnvEntry] = []
    for item in items:
        entry = _read_entry(item)
        if entry is not None and any(entry.name == other.name for other in entries):
            item.error("DuplicateName", f"{entry.name} is listed twice: list it once")
        elif entry is not None:
            entries.append(entry)
            if entry.name in METRICS_SECRETS:
                message = f"the variable {entry.name} does not protect the enclave's metrics"
                item.warn("NoEffect", f"{message}: list it under secrets if that is meant")
    return tuple(entries)


def _read_entry(spot: Spot) -> EnvEntry | None:
    if spot.kind is not None:
        return _read_bare(spot)
    pairs = spot.entries(None, "`NAME: value` or `NAME`")
    if pairs is None:
        return None
    if len(pairs) != 1:
        message = f"has {len(pairs)} names: begin a list entry `- NAME: value` for each"
        spot.error("InvalidEnv", message)
        return None
    key, value = pairs[0]
    name = key.text("the name of a variable")
    read = _read_value(value)
    if name is None or not _check_name(key, name) or read is None:
        return None
    return EnvEntry(name=name, value=read)


def _read_bare(spot: Spot) -> EnvEntry | None:
    """Read a name whose value comes at deploy time."""
    name = spot.text("the name of a variable")
    if name is None:
        return None
    before, equals, value = name.partition("=")
    if equals and VARIABLE_NAME.fullmatch(before):
        message = f"is one text with an equals sign: write `- {before[:60]}: {_quoted(value)}`"
        spot.error("InvalidEnv", message)
        return None
    return EnvEntry(name=name) if _check_name(spot, name) else None


def _quoted(value: str) -> str:
    shown = value if len(value) <= len(DOMAIN) * 6 else "…"
    return '"' + shown.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _check_name(spot: Spot, name: str) -> bool:
    if len(name.encode()) > MAX_NAME_BYTES:
        spot.error("NameTooLong", f"the name has more than {MAX_NAME_BYTES} bytes: shorten it")
    elif not VARIABLE_NAME.fullmatch(name):
        message = "write letters, digits and underscores, not beginning with a digit"
        spot.error("InvalidName", f"{show(name)} is not a variable name: {message}")
    else:
        return True
    return False


def _read_value(spot: Spot) -> str | None:
    """Read a value: text, or a number or truth value that is the same as its text."""
    if spot.kind is None:
        spot.error("WrongType", "is not a single value: write text, in quotes if it is JSON")
    elif spot.kind is ScalarKind.AMBIGUOUS:
        message = f'write "{spot.raw}" in quotes to hand over just that'
        spot.error("AmbiguousScalar", f"{show(spot.raw)} has more than one reading: {message}")
    elif spot.kind not in TELLING:
        message = 'has no value: write "" for empty text, or the bare name for a deploy-time value'
        spot.error("WrongType", message)
    else:
        return spot.raw
    return None


def read_secrets(spot: Spot) -> tuple[str, ...] | None:
    """Read the names of secrets."""
    items = spot.items(MAX_LIST, "a list of names of secrets")
    if items is None:
        return None
    names: list[str] = []
    for item in items:
        name = item.text("the name of a secret")
        if name is None or not _check_secret(item, name):
            continue
        if name in names:
            item.warn("DuplicateEntry", f"{name} is listed twice: list it once")
        else:
            names.append(name)
            if looks_like_metrics_secret(name):
                message = f"{name} does not protect the enclave's metrics"
                item.warn("NoEffect", f"{message}: {' and '.join(METRICS_SECRETS)} do")
    return tuple(names)


def _check_secret(spot: Spot, name: str) -> bool:
    if len(name.encode()) > MAX_NAME_BYTES:
        spot.error("NameTooLong", f"the name has more than {MAX_NAME_BYTES} bytes: shorten it")
    elif not VARIABLE_NAME.fullmatch(name) and not KEBAB_NAME.fullmatch(name):
        message = "write UPPER_SNAKE_CASE or kebab-case"
        spot.error("InvalidName", f"{show(name)} is not a secret name: {message}")
    else:
        return True
    return False


def check_environment(container: Section) -> None:
    """Refuse a name that is a variable and a secret of one container."""
    secrets = set(container.get("secrets", ()))
    for entry in container.get("env", ()):
        if entry.name in secrets:
            message = f"{entry.name} is a secret of this container too: keep one of them"
            container.at("env").error("DuplicateName", message)


def variable_problems(config: ServiceConfig, variables: MappingOf[str, str]) -> tuple[Problem, ...]:
    """Compare the deploy-time variables with the bare names of a file.

    Returns
    -------
    tuple[Problem, ...]
        Warnings: a bare name that stays unset, a variable that no container uses. The field of the
        latter is ``variables.<name>``.
    """
    problems = []
    bare: set[str] = set()
    for at, container in enumerate(config.containers):
        for index, entry in enumerate(container.env):
            if entry.value is not None:
                continue
            bare.add(entry.name)
            if entry.name not in variables and entry.name != DOMAIN:
                message = f"no variable gives {entry.name} a value: it stays unset"
                field = f"containers[{at}].env[{index}]"
                problems.append(_warning(field, "VariableUnset", message))
    for name in sorted(set(variables) - bare):
        message = f"no container lists {name[:60]} as a bare name: the variable reaches nobody"
        problems.append(_warning(f"variables.{name[:60]}", "VariableUnused", message))
    return tuple(problems)


def _warning(field: str, code: str, message: str) -> Problem:
    return Problem(field, code, message, severity=Severity.WARNING)
