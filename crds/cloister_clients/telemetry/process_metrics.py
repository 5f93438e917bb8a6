"""Metrics that both programs have alike: their build and, on Linux, their process."""

from importlib.metadata import version

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector

__all__ = ["register_process_metrics"]


def register_process_metrics(registry: CollectorRegistry, component: str) -> None:
    """Register the build and the process in a registry.

    Parameters
    ----------
    registry
        What a scrape reads.
    component
        The program: ``operator`` or ``api``.
    """
    build = Gauge(
        "cloister_build_info",
        "1, with the version that runs.",
        ("component", "version"),
        registry=registry,
    )
    build.labels(component, version("cloister")).set(1)
    ProcessCollector(registry=registry)
