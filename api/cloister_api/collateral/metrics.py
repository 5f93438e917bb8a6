"""Metrics of what makers of processors answered, read at each scrape."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from cloister_api.collateral.cache import CollateralCache

__all__ = ["CollateralMetrics"]


class CollateralMetrics(Collector):
    """Collects the counts of one facade.

    Parameters
    ----------
    cache
        The cache, which counts.
    """

    def __init__(self, cache: CollateralCache) -> None:
        self._cache = cache

    @override
    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        family = CounterMetricFamily(
            "cloister_api_collateral_answers",
            "Answers of makers of processors: taken, unsigned (taken, though no root of the "
            "maker's signed them), older (than one that is valid), and unusable.",
            labels=("maker", "outcome"),
        )
        for (maker, outcome), count in sorted(self._cache.counts.items()):
            family.add_metric((maker, outcome), count)
        yield family
