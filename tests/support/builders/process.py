"""The parts of an operator's process, without a cluster behind them."""

from cloister_clients.kube import KubeConfig
from cloister_operator.context import ProcessContext
from cloister_operator.settings import OperatorSettings
from cloister_operator.telemetry.health import Liveness
from cloister_operator.telemetry.metrics import OperatorMetrics

__all__ = ["process_context"]

DIGEST = "sha256:" + "0" * 64


def process_context(base: str, *, kind: str = "git") -> ProcessContext:
    """Build the parts, inside the event loop that uses them; close them in the end.

    Parameters
    ----------
    kind
        Kind of their source.
    """
    settings = OperatorSettings.model_validate(
        {
            "containersDomain": "containers.example",
            "shimImage": f"registry.example/shim@{DIGEST}",
            "guestImage": f"registry.example/guest@{DIGEST}",
            "sources": {"kind": kind, "base": base},
        }
    )
    return ProcessContext.from_settings(
        settings,
        KubeConfig("http://127.0.0.1:1"),
        metrics=OperatorMetrics(),
        liveness=Liveness(60.0),
        leads=lambda: True,
    )
