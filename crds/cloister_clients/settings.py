"""Settings of programs, read from a YAML file."""

import os
import stat
from collections.abc import Hashable
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel
from typing_extensions import override

__all__ = [
    "SettingsError",
    "SettingsSection",
    "is_open_to_others",
    "read_settings_file",
    "read_yaml",
]

_MERGE = "tag:yaml.org,2002:merge"
"""Tag of the key ``<<``, which takes in other mappings."""


class _Loader(yaml.SafeLoader):
    """The safe loader, but with duplicate keys refused: YAML forbids them, it takes the last."""

    @override
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for each, _ in node.value:
            if each.tag == _MERGE:
                continue
            key = self.construct_object(each, deep=True)
            if isinstance(key, Hashable) and key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"duplicate key {key}; keep one of them", each.start_mark
                )
            if isinstance(key, Hashable):
                seen.add(key)
        return super().construct_mapping(node, deep)


def read_yaml(text: str | bytes) -> Any:
    """Parse one YAML document.

    Parameters
    ----------
    text
        The document; bytes are UTF-8 or UTF-16.

    Raises
    ------
    yaml.YAMLError
        When it is not YAML, or a mapping has a duplicate key (YAML 1.2.2, section 3.2.1.3); the
        message names the line.
    """
    return yaml.load(text, Loader=_Loader)  # noqa: S506 - it is the safe loader, and stricter


class SettingsError(Exception):
    """The settings cannot be used; the message names the file, the setting and the remedy."""


class SettingsSection(BaseModel):
    """Base of every section: camelCase in the file, unknown keys are errors."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        defer_build=True,
        extra="forbid",
        frozen=True,
        populate_by_name=True,
    )


S = TypeVar("S", bound=SettingsSection)


def read_settings_file(path: Path, model: type[S]) -> S:
    """Read a settings file; an empty one is as good as ``{}``.

    Raises
    ------
    SettingsError
        When the file cannot be read, is not YAML, or a setting is missing, unknown or wrong.
    """
    try:
        document = read_yaml(path.read_bytes())
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: not YAML: {error}") from error
    if document is not None and not isinstance(document, dict):
        raise SettingsError(f"{path}: expected settings as `name: value`")
    try:
        return model.model_validate(document or {})
    except ValidationError as error:
        raise SettingsError(f"{path}: {mistakes(error)}") from error


def is_open_to_others(found: os.stat_result, user: int) -> bool:
    """Return whether more than the program's user may use a file with a secret.

    The rule of PostgreSQL for the keys of its servers: such a file is only for its owner, or,
    where root owns it and the program is somebody else, for a group to read as well. So a Pod has
    its Secrets: owned by root, readable by the group of the Pod.

    Parameters
    ----------
    found
        What `stat` reports of the file.
    """
    from_root = found.st_uid == 0 and user != 0
    group = stat.S_IWGRP | stat.S_IXGRP if from_root else stat.S_IRWXG
    return bool(found.st_mode & (group | stat.S_IRWXO))


def require_file(setting: str, path: Path | None) -> None:
    """Check that a file can be read which a setting names; None if it names none.

    Parameters
    ----------
    setting
        The setting, as the file of settings has it, such as ``sources.tokenFile``.

    Raises
    ------
    SettingsError
        When it cannot be read.
    """
    if path is None:
        return
    try:
        path.open("rb").close()
    except OSError as error:
        raise SettingsError(
            f"{setting}: {path}: {error.strerror}; provide the file, or correct the setting"
        ) from error


def mistakes(error: ValidationError) -> str:
    """Describe in one line what is wrong, setting by setting."""
    parts = []
    for each in error.errors(include_url=False, include_input=False):
        key = ".".join(str(part) for part in each["loc"]) or "the document"
        if each["type"] == "extra_forbidden":
            parts.append(f"{key} is not a setting; remove it or check the spelling")
        elif each["type"] == "missing":
            parts.append(f"{key} is missing; this setting is required")
        else:
            parts.append(f"{key}: {each['msg'].removeprefix('Value error, ')}")
    return "; ".join(parts)
