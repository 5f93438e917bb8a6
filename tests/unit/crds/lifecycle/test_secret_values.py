"""Which values a secret may have."""

import pytest

from cloister_crds.lifecycle.admission.secrets import MOST_VARIABLE_BYTES, value_error

MOST_VALUE = MOST_VARIABLE_BYTES - len("API_KEY=") - 1
"""Bytes of the longest value of API_KEY: name, equals sign and the closing NUL count too."""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("API_KEY", b""),
        ("API_KEY", b"x" * MOST_VALUE),
        ("api-key", b"x" * (MOST_VALUE + 1)),
        ("api-key", b"a\x00b"),
    ],
)
def test_values_that_an_enclave_can_have(name: str, value: bytes) -> None:
    assert value_error(name, value) is None


@pytest.mark.parametrize(
    ("name", "value", "want"),
    [
        ("API_KEY", b"x" * (MOST_VALUE + 1), f"131064 bytes; at most {MOST_VALUE}"),
        ("key", b"x" * 131_072, "at most 131067"),
        ("API_KEY", "é".encode() * (MOST_VALUE // 2 + 1), "at most"),
        ("API_KEY", b"a\x00b", "NUL"),
    ],
    ids=["long", "one word", "bytes", "nul"],
)
def test_values_that_no_variable_can_have(name: str, value: bytes, want: str) -> None:
    error = value_error(name, value)
    assert error is not None
    assert want in error
