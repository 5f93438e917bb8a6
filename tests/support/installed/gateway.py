"""An installation whose Containers are reached through a gateway."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dev.chart.helm import NAMESPACE
from tests.support.cluster.gateway_crds import install_gateway_crds
from tests.support.installed.chart import Chart
from tests.support.installed.place import Place
from tests.support.servers.gateway import StandInGateway

__all__ = ["installed_with_gateway"]

GATEWAY = "public"
"""Name of the Gateway."""


@contextmanager
def installed_with_gateway(
    place: Place, chart: Chart, folder: Path, **settings: Any
) -> Iterator[StandInGateway]:
    """Install a chart with routes to its Containers, and serve them until the block ends.

    Parameters
    ----------
    settings
        Further settings of the operator, for all installations here.
    """
    install_gateway_crds(place.cluster)
    place.prepare(chart)
    place.change_settings(chart, gateway={"name": GATEWAY}, **settings)
    place.install("install", chart)
    gateway = StandInGateway(
        place.cluster.kubeconfig, namespace=NAMESPACE, name=GATEWAY, folder=folder, lag=0
    )
    try:
        yield gateway
    finally:
        gateway.end()
