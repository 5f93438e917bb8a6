"""YAML files of an administrator: settings and price lists."""

from collections.abc import Hashable
from typing import Any

import yaml
from typing_extensions import override

__all__ = ["read_yaml"]


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
