"""What a container really gets."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from cloister_crds.config import ParsedConfig, ServiceConfig
from cloister_crds.config.effective import (
    Mount,
    container_mounts,
    egress_of,
    grace_period,
    memory_limit,
    shared_memory,
    unset_variables,
)

Judged = Callable[..., ParsedConfig]
MIB = 1024 * 1024


def config_of(judged: Judged, container: str = "", **parts: str) -> ServiceConfig:
    """Provide the config of a small file."""
    config = judged(container, **parts).config
    assert config is not None
    return config


@pytest.mark.spec("41.6", "44.9", "48.1")
def test_egress(judged: Judged) -> None:
    top = "networks: {a: {}, b: {egress: allowlist, allow: [x.com]}}"
    config = config_of(judged, "networks: [a, b]", top=top)
    assert egress_of(config, config.containers[0]) == ("allowlist", ("x.com",))
    config = config_of(judged, "networks: [a]", top="networks: {a: {}}")
    assert egress_of(config, config.containers[0]) == ("closed", ())
    config = config_of(judged, version="0.9.0")
    assert egress_of(config, config.containers[0]) == ("open", ())
    config = config_of(judged, version="0.10.0")
    assert egress_of(config, config.containers[0]) == ("closed", ())


@pytest.mark.spec("42.20")
def test_memory(judged: Judged) -> None:
    config = config_of(judged)
    assert memory_limit(config, config.containers[0]) == 8192 * MIB
    assert shared_memory(config, config.containers[0]) == 4096 * MIB
    config = config_of(judged, "memory: 1g")
    assert memory_limit(config, config.containers[0]) == 1024 * MIB
    assert shared_memory(config, config.containers[0]) == 512 * MIB
    config = config_of(judged, "memory: 1g\nshm_size: 64m")
    assert shared_memory(config, config.containers[0]) == 64 * MIB
    config = config_of(judged, "ipc: none")
    assert shared_memory(config, config.containers[0]) == 0


def test_grace_period(judged: Judged) -> None:
    assert grace_period(config_of(judged)) == timedelta(seconds=10)
    assert grace_period(config_of(judged, "stop_timeout: 90")) == timedelta(seconds=90)
    assert grace_period(config_of(judged, "stop_timeout: 0")) == timedelta(0)


@pytest.mark.spec("42.8", "42.31", "47.2")
def test_mounts(judged: Judged) -> None:
    root, uuid = "6d" * 32, "7dc41474-aac5-50bd-bcd5-ffff26ccad57"
    model = f"{{name: m, repo: 'o/m@{'0c' * 20}', mpk: '{root}_4096_{uuid}'}}"
    container = "secrets: [A, tls-key]\nvolumes: ['d:/d:ro']\ntmpfs: {/tmp: }"
    config = config_of(judged, container, top=f"models: [{model}]")
    own = "the enclave's own"
    assert container_mounts(config, config.containers[0], service="harbour") == (
        Mount("/harbour/config.yml", own, read_only=True),
        Mount("/harbour/attestation.json", own, read_only=True),
        Mount("/harbour/container-status.json", own, read_only=True),
        Mount(f"/harbour/mpk/mpk-{root}", "model m", read_only=True),
        Mount("/harbour/secrets/tls-key", "secret", read_only=True),
        Mount("/d", "scratch space d", read_only=True),
        Mount("/tmp", "memory", read_only=False),
    )


def test_unset_variables(judged: Judged) -> None:
    container = config_of(judged, "env: [A, B, {C: d}]").containers[0]
    assert unset_variables(container) == ("A", "B")
    assert unset_variables(container, {"A": "1"}) == ("B",)
