"""Many Containers at once on simulated nodes: ``python -m dev.bench scale --count N``.

The operator is the real process on a real API server; only what runs in Pods is played, by kwok.
"""

from dev.bench.scale.command import main

__all__ = ["main"]
