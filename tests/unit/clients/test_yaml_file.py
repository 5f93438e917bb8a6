"""YAML of an administrator: as usual, but a key that stands twice is refused with its line."""

import pytest
import yaml

from cloister_clients.yaml_file import read_yaml


def test_documents_are_read_as_by_the_safe_loader() -> None:
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
def test_a_key_that_stands_twice_is_refused(text: str, key: str, line: int) -> None:
    with pytest.raises(yaml.YAMLError, match=f"the key {key} stands twice") as caught:
        read_yaml(text)
    assert f"line {line}," in str(caught.value)


@pytest.mark.parametrize(
    "text", ["a: [", "!!python/object:os.system {}", "? [a]\n: 1\n? [a]\n: 2\n"]
)
def test_what_the_safe_loader_refuses_is_refused(text: str) -> None:
    with pytest.raises(yaml.YAMLError):
        read_yaml(text)
