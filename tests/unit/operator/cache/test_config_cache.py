"""The cache of configuration files: later settings refuse no file that was admitted."""

import asyncio

from cloister_operator.cache.reconcile_memory import ConfigCache
from tests.support.programs.operator import file_text


def test_a_file_parses_whatever_tiers_its_host_has() -> None:
    text = file_text("registry.example/web@sha256:" + "ab" * 32)
    unusual = text.replace(b"cpus: 2", b"cpus: 128").replace(b"8192", b"4096") + b"gpus: 4\n"
    parsed = asyncio.run(ConfigCache().parse(unusual))
    assert parsed.config is not None
    assert (parsed.config.cpus, parsed.config.memory, parsed.config.gpus) == (128, 4096, 4)


def test_a_file_parses_whatever_strictness_and_service_are_now() -> None:
    image = "registry.example/web@sha256:" + "ab" * 32
    text = file_text(image, ipc="host", volumes=["a:/cloister/x", "b:/other/x"])
    assert asyncio.run(ConfigCache().parse(text)).config is not None


async def test_files_are_kept_by_the_memory_that_they_take() -> None:
    cache = ConfigCache(max_bytes=500_000)
    image = "registry.example/web@sha256:" + "ab" * 32
    for number in range(20):
        await cache.parse(file_text(image, command=[f"{number}", "x" * 50_000]))
        assert 50_000 < cache.size <= 500_000
    before = cache.size
    await cache.parse(file_text(image, command=["x" * 600_000]))
    assert cache.size == before
