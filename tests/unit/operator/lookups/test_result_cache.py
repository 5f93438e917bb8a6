"""The cache of results is bounded in bytes, and the largest organization gives way."""

from dataclasses import dataclass
from datetime import UTC, datetime

from cloister_crds.lifecycle.state.observed import Known, LookupResult, NeedImage, RegistryImage
from cloister_operator.cache.reconcile_memory import memory_size
from cloister_operator.lookups.lanes import ResultCache

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def need(organization: str, number: int) -> NeedImage:
    return NeedImage(f"r/x@{number}", "linux/amd64", organization, (), "r")


def result(size: int) -> LookupResult:
    return Known(RegistryImage("r/x", env=("x" * size,)), NOW)


def test_an_organization_with_much_loses_its_own_and_nobody_else() -> None:
    cache = ResultCache(1_000_000)
    cache.put(need("small", 0), result(1000), "small", 1000)
    for number in range(300):
        cache.put(need("large", number), result(10_000), "large", 10_000)
    assert cache.size <= 1_000_000
    assert need("small", 0) in cache
    assert need("large", 0) not in cache
    assert need("large", 299) in cache


def test_what_is_used_stays_longest() -> None:
    cache = ResultCache(100_000)
    cache.put(need("a", 0), result(10_000), "a", 10_000)
    for number in range(1, 50):
        assert cache[need("a", 0)] is not None
        cache.put(need("a", number), result(10_000), "a", 10_000)
    assert need("a", 0) in cache
    assert need("a", 1) not in cache


def test_a_shared_result_is_counted_once_and_until_its_last_use() -> None:
    cache = ResultCache(100_000)
    shared = result(50_000)
    for number in range(20):
        cache.put(need("a", number), shared, "a", 50_000)
    assert len(cache) == 20
    assert cache.size > 50_000
    for number in range(20):
        cache.remove(need("a", number))
    cache.remove(need("a", 0))
    assert (cache.size, len(cache), list(cache)) == (0, 0, [])


def test_what_is_larger_than_the_cache_is_not_kept() -> None:
    cache = ResultCache(1000)
    cache.put(need("a", 0), result(5000), "a", 5000)
    assert (cache.size, len(cache)) == (0, 0)


def test_the_size_of_a_value_counts_what_it_refers_to() -> None:
    @dataclass(frozen=True)
    class Record:
        texts: tuple[str, ...]
        by_name: dict[str, frozenset[str]]

    text = "x" * 100_000
    assert 100_000 < memory_size(text) < 101_000
    record = Record((text, text), {"y" * 100_000: frozenset({"z" * 100_000})})
    assert 300_000 < memory_size(record) < 302_000
