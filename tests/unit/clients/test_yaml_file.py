"""YAML of an administrator: as usual, but a duplicate key is refused with its line."""

import pytest
import yaml

from cloister_clients.settings import read_yaml


def test_yaml_is_read_as_by_the_safe_loader() -> None:
    text = "base: &base {a: 1, b: [x, 2026-01-31]}\nother:\n  <<: *base\n  a: 2\n"
    assert read_yaml(text) == yaml.safe_load(text)
    assert read_yaml(text.encode())["other"]["a"] == 2


@pytest.mark.parametrize(
    ("text", "key", "line"),
    [
        ("price: 1\nprice: 2\n", "price", 2),
        ("prices:\n- {input: 1, output: 2, input: 3}\n", "input", 2),
        ('a: 1\nb:\n  1: x\n  "1": y\n  0x1: z\n', "1", 5),
    ],
)
def test_a_duplicate_key_is_refused(text: str, key: str, line: int) -> None:
    with pytest.raises(yaml.YAMLError, match=f"duplicate key {key}") as caught:
        read_yaml(text)
    assert f"line {line}," in str(caught.value)


@pytest.mark.parametrize(
    "text", ["a: [", "!!python/object:os.system {}", "? [a]\n: 1\n? [a]\n: 2\n"]
)
def test_what_the_safe_loader_refuses_is_refused(text: str) -> None:
    with pytest.raises(yaml.YAMLError):
        read_yaml(text)
