"""Base of the settings of the programs, which are sections of a YAML file."""

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

__all__ = ["SettingsError", "SettingsSection"]


class SettingsError(Exception):
    """The settings cannot be used; the message names each key and what is wrong with it."""


class SettingsSection(BaseModel):
    """Base of every section: camelCase in the file, an unknown key is an error."""

    model_config = ConfigDict(
        alias_generator=to_camel, extra="forbid", frozen=True, populate_by_name=True
    )
