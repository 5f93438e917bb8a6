"""Initdata: the vectors of upstream's own documents, and any content written and read back."""

import gzip
import tomllib
from base64 import b64decode
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloister_crds.kinds.host import TEE
from cloister_crds.measurement import digest_of, field_value, initdata_text, to_annotation
from cloister_crds.measurement.initdata import Initdata

VECTORS = Path(__file__).parents[3] / "data" / "measurement"

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | st.sampled_from(
    ["'", "''", "'''", "a'", "\n", "\r\n", "\t\x7f", '"""', "\\", "\x00", "x\n'''\ny"]
)


def unpacked(name: str) -> tuple[str, bytes]:
    """Read an annotation as upstream published it; one of them lost its padding."""
    text = (VECTORS / name).read_text().strip()
    return text, gzip.decompress(b64decode(text + "=" * (-len(text) % 4)))


def test_the_example_of_kata() -> None:
    """docs/how-to/how-to-use-the-kata-agent-policy.md."""
    annotation, raw = unpacked("initdata-kata.txt")
    assert (len(annotation), len(raw)) == (660, 1518)
    digest = digest_of(raw, "sha256")
    assert digest.hex() == "2385c5da0959d063638b2ab4ac252ae18e825f6ecb69815e4206b38077d0bcdd"
    assert field_value(digest, TEE.SNP) == digest
    assert field_value(digest, TEE.TDX) == digest + bytes(16)


def test_the_example_of_the_cloud_api_adaptor() -> None:
    """src/cloud-api-adaptor/docs/initdata.md: the digest in its text lacks the last line break."""
    _, raw = unpacked("initdata-caa.txt")
    assert len(raw) == 4557
    digest = digest_of(raw, "sha384")
    assert digest.hex().startswith("4bebff2869bcdd3e9848")
    assert digest_of(raw.removesuffix(b"\n"), "sha384").hex().startswith("52af3178dd7a")
    assert field_value(digest, TEE.TDX) == digest
    assert field_value(digest, TEE.SNP) == digest[:32]


@pytest.mark.parametrize("name", ["initdata-kata.txt", "initdata-caa.txt"])
def test_our_annotation_carries_the_same_bytes(name: str) -> None:
    _, raw = unpacked(name)
    ours = to_annotation(raw)
    assert gzip.decompress(b64decode(ours, validate=True)) == raw
    assert ours == to_annotation(raw)


@given(st.dictionaries(TEXT.filter(bool), TEXT, max_size=4), st.sampled_from([TEE.SNP, TEE.TDX]))
def test_any_content_is_read_back_as_it_was(files: dict[str, str], tee: TEE) -> None:
    text = initdata_text(tee, files)
    assert text.endswith(b"\n")
    assert tomllib.loads(text.decode()) == {
        "version": "0.1.0",
        "algorithm": {TEE.SNP: "sha256", TEE.TDX: "sha384"}[tee],
        "data": files,
    }


def test_the_text_is_for_people_where_toml_allows_it() -> None:
    policy = "package agent_policy\ndefault ExecProcessRequest := false\n"
    assert initdata_text(TEE.TDX, {"policy.rego": policy, "aa.toml": "x = 'it''s'"}) == (
        b'version = "0.1.0"\nalgorithm = "sha384"\n\n[data]\n'
        b"\"aa.toml\" = \"x = 'it''s'\"\n"
        b"\"policy.rego\" = '''\npackage agent_policy\ndefault ExecProcessRequest := false\n'''\n"
    )


def test_the_forms_that_verifiers_read_are_those_that_are_written() -> None:
    """Verifiers write what they have read again, and refuse a text that differs."""
    files = {
        "": "",
        "a quote'": "ends with a quote'",
        "two": "x ''y",
        "three.rego": "'''",
        "control": "".join(map(chr, [*range(0x20), 0x7F])),
        'na"me\\\n': "\tlines\n\nof text\n",
        "other scripts": "\u00e4\u2028\U0001f512\x80\n",
        "windows": "a\r\nb",
    }
    assert (VECTORS / "initdata-forms.toml").read_bytes() == initdata_text(TEE.SNP, files)


def test_the_digest_names_its_algorithm() -> None:
    initdata = Initdata(TEE.SNP, b"text")
    assert initdata.digest == f"sha256:{digest_of(b'text', 'sha256').hex()}"
    assert initdata.annotation == to_annotation(b"text")


def test_nothing_measures_without_a_tee_or_by_an_unknown_hash() -> None:
    with pytest.raises(KeyError):
        initdata_text(TEE.NONE, {})
    with pytest.raises(ValueError, match="no algorithm 'md5'"):
        digest_of(b"", "md5")
