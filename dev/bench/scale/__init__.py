"""Creation of many Containers at once on simulated nodes: ``python -m dev.bench scale --count N``.

Operator and API server are the real programs; only the nodes and Pods are simulated, by kwok.
"""

from dev.bench.scale.command import main

__all__ = ["main"]
