"""Tracing of one program, from its start to its end."""

import contextlib
from collections.abc import Iterator

from cloister_clients.tracing.settings import TracingSettings
from cloister_clients.tracing.spans import install

__all__ = ["traced"]


@contextlib.contextmanager
def traced(settings: TracingSettings | None, component: str) -> Iterator[None]:
    """Record spans while the block runs, and send what is left at its end.

    Parameters
    ----------
    settings
        Where they are sent; None = nothing is recorded, and nothing imported.
    component
        The program: ``operator`` or ``api``.

    Raises
    ------
    SettingsError
        When a file that the settings name cannot be used.
    """
    if settings is None:
        yield
        return
    from cloister_clients.tracing.open_telemetry import (  # noqa: PLC0415 - paid for only if used
        OpenTelemetryTracer,
    )

    tracer = OpenTelemetryTracer(settings, component)
    install(tracer)
    try:
        yield
    finally:
        install(None)
        tracer.close()
