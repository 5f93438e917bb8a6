"""Manifests, indexes and configurations, read from bytes."""

import contextlib
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloister_clients.registry import ManifestInvalid, Platform, PlatformMissing
from cloister_clients.registry.manifest import (
    check_platform,
    choose,
    digest_of,
    parse_config,
    parse_document,
)
from cloister_crds.kinds.enclave import ImageFacts

DIGEST = "sha256:" + "a" * 64
PART = {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": DIGEST, "size": 2}
MANIFEST = {"schemaVersion": 2, "config": PART, "layers": [{**PART, "size": 40}]}


def entry(platform: str | None, number: int = 0) -> dict[str, Any]:
    """Write an entry of an index."""
    described: dict[str, Any] = {"digest": f"sha256:{number:064x}", "size": 1}
    if platform is not None:
        names = ("os", "architecture", "variant")
        described["platform"] = dict(zip(names, platform.split("/"), strict=False))
    return described


def index(*platforms: str | None) -> bytes:
    """Write an index whose entries are numbered."""
    entries = [entry(platform, number) for number, platform in enumerate(platforms)]
    return json.dumps({"schemaVersion": 2, "manifests": entries}).encode()


@pytest.mark.parametrize(
    ("platforms", "wanted", "number"),
    [
        (["linux/amd64"], "linux/amd64", 0),
        (["linux/arm64", "linux/amd64"], "linux/amd64", 1),
        ([None, "unknown/unknown", "linux/amd64"], "linux/amd64", 2),
        (["linux/amd64/v3", "linux/amd64"], "linux/amd64", 1),
        (["linux/amd64/v3", "linux/amd64/v1"], "linux/amd64", 1),
        (["linux/amd64/v3"], "linux/amd64", 0),
        (["linux/amd64", "linux/amd64/v3"], "linux/amd64/v3", 1),
        (["linux/arm64/v8"], "linux/arm64", 0),
        (["linux/arm64"], "linux/arm64/v8", 0),
        (["linux/arm/v6", "linux/arm/v7"], "linux/arm/v7", 1),
        (["windows/amd64", "linux/amd64", "linux/amd64"], "linux/amd64", 1),
    ],
)
def test_the_image_of_a_platform_is_chosen(
    platforms: list[str | None], wanted: str, number: int
) -> None:
    document = parse_document(index(*platforms), "x")
    assert choose(document, Platform(*wanted.split("/")), "x").digest == f"sha256:{number:064x}"


@pytest.mark.parametrize(
    ("platforms", "wanted", "message"),
    [
        (["linux/arm64", "windows/amd64"], "linux/amd64", "for linux/arm64, windows/amd64; build"),
        ([None, "unknown/unknown"], "linux/amd64", "but for no platform"),
        (["linux/amd64"], "linux/amd64/v3", "not built for linux/amd64/v3 but for linux/amd64"),
        ([], "linux/amd64", "no platform"),
    ],
)
def test_a_missing_platform_is_reported_with_the_existing_ones(
    platforms: list[str | None], wanted: str, message: str
) -> None:
    with pytest.raises(PlatformMissing, match=message):
        choose(parse_document(index(*platforms), "x"), Platform(*wanted.split("/")), "x")


def test_the_size_is_that_of_layers_and_configuration() -> None:
    assert parse_document(json.dumps(MANIFEST).encode(), "x").size == 42


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, "schemaVersion"),
        ({"schemaVersion": 1, "fsLayers": []}, "schema 1, which is no longer used"),
        ({"schemaVersion": 2}, "neither an image nor an index"),
        ({**MANIFEST, "manifests": []}, "neither an image nor an index"),
        ({"schemaVersion": 2, "manifests": [], "layers": []}, "neither an image nor an index"),
        ({**MANIFEST, "config": {**PART, "digest": "md5:1"}}, "digest that cannot be checked"),
        ({**MANIFEST, "config": {**PART, "size": -1}}, "config.size"),
        ({**MANIFEST, "config": {**PART, "size": "2"}}, "config.size"),
        ({**MANIFEST, "config": {**PART, "mediaType": "application/x"}}, "not a container image"),
        ({**MANIFEST, "layers": {}}, "layers"),
        ({"schemaVersion": 2, "config": PART}, "without a list of layers"),
        ({**MANIFEST, "layers": None}, "without a list of layers"),
        ({**MANIFEST, "layers": [{**PART, "size": -1}]}, "layers.0.size"),
        ({**MANIFEST, "layers": [{**PART, "size": 2**40 + 1}]}, "layers.0.size"),
        ({**MANIFEST, "layers": [{**PART, "size": 1e3}]}, "layers.0.size"),
        ({**MANIFEST, "layers": [{"digest": DIGEST}]}, "layers.0.size"),
        ([], "the document"),
    ],
)
def test_what_is_no_manifest_is_refused(document: Any, message: str) -> None:
    with pytest.raises(ManifestInvalid, match=message):
        parse_document(json.dumps(document).encode(), "x")


@given(st.binary(max_size=200) | st.sampled_from([b"[" * 100000, b'{"a":' * 100000, b"\xff", b""]))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    for read in (parse_document, parse_config):
        with contextlib.suppress(ManifestInvalid):
            assert read(content, "x") is not None


def test_a_configuration_may_leave_everything_out() -> None:
    config = parse_config(b'{"config": {"Entrypoint": null, "Env": null, "User": null}}', "x")
    assert config.config is not None
    assert (config.config.entrypoint, config.config.env, config.config.user) == (None, None, None)
    check_platform(config, Platform("linux", "amd64"), "x")
    assert parse_config(b"{}", "x").config is None


def test_a_configuration_of_a_wrong_form_is_refused() -> None:
    with pytest.raises(ManifestInvalid, match=r"config\.Entrypoint"):
        parse_config(b'{"config": {"Entrypoint": "/bin/sh"}}', "x")


def test_variants_of_an_architecture_run_on_it() -> None:
    config = parse_config(b'{"os": "linux", "architecture": "arm64", "variant": "v8"}', "x")
    check_platform(config, Platform("linux", "arm64"), "x")
    with pytest.raises(PlatformMissing, match="built for linux/arm64, not for linux/amd64"):
        check_platform(config, Platform("linux", "amd64"), "x")


def test_digests_are_computed_by_their_own_algorithm() -> None:
    assert digest_of(b"", "sha256:x").startswith("sha256:e3b0c442")
    assert digest_of(b"", "sha512:x").startswith("sha512:cf83e135")


TEXTS = st.one_of(st.text(max_size=40), st.sampled_from(["x" * 32768, "x" * 32769, "\x01" * 9000]))


@given(
    st.dictionaries(
        st.sampled_from(["Entrypoint", "Cmd", "Env"]),
        st.one_of(
            st.none(),
            st.lists(TEXTS, max_size=6),
            st.sampled_from([["x"] * 256, ["x"] * 257, ["x"] * 1024, ["x"] * 1025]),
        ),
    ),
    st.dictionaries(
        st.sampled_from(["User", "WorkingDir", "StopSignal"]),
        st.one_of(TEXTS, st.sampled_from(["x" * 253, "x" * 254, "x" * 4096, "x" * 4097])),
    ),
)
def test_what_is_read_of_an_image_can_be_recorded_in_an_enclave(
    lists: dict[str, list[str] | None], texts: dict[str, str]
) -> None:
    document = json.dumps({"config": {**lists, **texts}}).encode()
    with contextlib.suppress(ManifestInvalid):
        found = parse_config(document, "x").config
        assert found is not None
        ImageFacts(
            container="web",
            image="x",
            entrypoint=found.entrypoint,
            cmd=found.cmd,
            env=found.env or (),
            user=found.user or "",
            working_dir=found.working_dir or "",
            stop_signal=found.stop_signal or "",
        )
        assert len(document) < 200_000


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"Env": ["A=b"] * 1025}, "config.Env: .*at most 1024"),
        ({"Cmd": ["x"] * 257}, "config.Cmd: .*at most 256"),
        ({"Entrypoint": ["x" * 32769]}, r"config.Entrypoint.0: .*at most 32768"),
        ({"User": "u" * 254}, "config.User: .*at most 253"),
        ({"Env": ["A=" + "x" * 30_000] * 3}, "Env have 9.* bytes, and at most 65536"),
        ({"Env": [""] * 70_000}, "values, and at most 65536"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_configuration_beyond_a_bound_is_refused_with_field_and_bound(
    config: dict[str, Any], said: str
) -> None:
    with pytest.raises(ManifestInvalid, match=said):
        parse_config(json.dumps({"config": config}).encode(), "x")


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_a_document_that_is_nested_too_deep_is_refused(opening: bytes) -> None:
    for times in (1000, 60_000, 1_000_000):
        for read in (parse_document, parse_config):
            with pytest.raises(ManifestInvalid, match="is invalid"):
                read(opening * times, "x")


def test_an_index_of_too_many_images_is_refused() -> None:
    with pytest.raises(ManifestInvalid, match=r"manifests: .*at most 1024"):
        parse_document(index(*["linux/amd64"] * 1025), "x")


def test_a_text_of_a_registry_is_shown_on_one_line_and_cut() -> None:
    forged = "x\n2026-11-25 00:00:00 CRITICAL root forged \x1b[31m\u2028" + "y" * 400
    document = {
        "schemaVersion": 2,
        "config": {"mediaType": forged, "digest": "sha256:" + "a" * 64, "size": 1},
    }
    with pytest.raises(ManifestInvalid) as refused:
        parse_document(json.dumps(document).encode(), "x")
    assert "forged" in refused.value.message
    assert refused.value.message.isprintable()
    assert len(refused.value.message) < 300


@pytest.mark.parametrize(
    ("read", "document"),
    [
        (parse_document, {"schemaVersion": 2, "manifests": [5] * 65_000}),
        (parse_document, {"layers": [{"a": 1}] * 32_000}),
        (parse_config, {"config": {"Env": [5] * 65_000}}),
        (parse_config, {"config": {"Cmd": [[]] * 32_000}}),
    ],
)
def test_thousands_of_problems_cost_little(
    read: Callable[[bytes, str], object], document: dict[str, Any]
) -> None:
    content = json.dumps(document).encode()
    begun = time.thread_time()
    with pytest.raises(ManifestInvalid):
        read(content, "x")
    assert time.thread_time() - begun < 0.1  # 0.005 s; to list them took 0.3 s.
