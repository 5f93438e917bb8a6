"""The CRDs of the Gateway API, as the project publishes them in its Go module."""

import json
import subprocess
from functools import cache
from pathlib import Path

from dev.cluster import Cluster
from dev.cluster.toolchain import environment

__all__ = ["GATEWAY_CRDS", "gateway_crd_files", "install_gateway_crds"]

_MODULE = Path(__file__).parent / "gateway_api"
"""The Go module that pins version and hash."""
GATEWAY_CRDS = ("gatewayclasses", "gateways", "referencegrants", "tlsroutes")
"""The CRDs that tests need."""


@cache
def gateway_crd_files() -> tuple[Path, ...]:
    """Return the files of the CRDs; the first call may download them."""
    done = subprocess.run(
        ["go", "mod", "download", "-json", "sigs.k8s.io/gateway-api"],
        cwd=_MODULE,
        env=environment(),
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    folder = Path(json.loads(done.stdout)["Dir"]) / "config" / "crd" / "standard"
    return tuple(folder / f"gateway.networking.k8s.io_{name}.yaml" for name in GATEWAY_CRDS)


def install_gateway_crds(cluster: Cluster) -> None:
    """Apply the CRDs and wait until the server serves them."""
    files = [word for each in gateway_crd_files() for word in ("-f", str(each))]
    cluster.kubectl("apply", "--server-side", "--force-conflicts", *files)
    kinds = [f"crd/{name}.gateway.networking.k8s.io" for name in GATEWAY_CRDS]
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", *kinds)
