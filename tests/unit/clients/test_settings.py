"""A settings file: every mistake is reported by its key, none hides another."""

from pathlib import Path
from typing import Annotated

import pytest
from pydantic import Field

from cloister_clients.settings import SettingsError, SettingsSection, read_settings_file


class InnerSection(SettingsSection):
    """A section within a section."""

    port_number: Annotated[int, Field(le=10)] = 1


class OuterFile(SettingsSection):
    """A whole file."""

    host_name: str
    inner: InnerSection = InnerSection()


def read(folder: Path, content: bytes) -> OuterFile:
    path = folder / "settings.yml"
    path.write_bytes(content)
    return read_settings_file(path, OuterFile)


def test_keys_of_settings_are_camel_case(tmp_path: Path) -> None:
    assert read(tmp_path, b"hostName: a\ninner: {portNumber: 2}") == OuterFile(
        host_name="a", inner=InnerSection(port_number=2)
    )


def test_all_mistakes_of_a_settings_file_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        read(tmp_path, b"colour: red\ninner: {portNumber: 11, ports: 1}")
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'settings.yml'}: ")
    for part in (
        "hostName is missing; this setting is required",
        "colour is not a setting; remove it or check the spelling",
        "inner.portNumber: Input should be less than or equal to 10",
        "inner.ports is not a setting",
    ):
        assert part in message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "hostName is missing"),
        (b"[]", "expected settings as `name: value`"),
        (b"5", "expected settings"),
        (b"a: [", "not YAML"),
        (b"\xff\xfe\xff", "not YAML"),
        (b"hostName: a\nhostName: b", "not YAML: duplicate key hostName"),
    ],
)
def test_what_is_not_a_settings_file_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        read(tmp_path, content)


def test_a_settings_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"none\.yml: No such file"):
        read_settings_file(tmp_path / "none.yml", OuterFile)
