"""The CRDs of the Gateway API, as the project publishes them in its Go module."""

import json
import subprocess
from functools import cache
from pathlib import Path

from dev.cluster import Cluster
from dev.cluster.binaries import environment

__all__ = ["GATEWAY_CRDS", "gateway_crd_files", "install_gateway_crds"]

_MODULE = Path(__file__).parent / "gateway_api"
"""The Go module that pins version and hash."""
_OLD_MODULE = _MODULE / "v1_4"
"""The same of the last version without TLSRoute v1."""
GATEWAY_CRDS = ("gatewayclasses", "gateways", "referencegrants", "tlsroutes")
"""The CRDs that tests need."""


@cache
def gateway_crd_files(*, old: bool = False) -> tuple[Path, ...]:
    """Return the files of the CRDs; the first call may download them.

    Parameters
    ----------
    old
        Those of the Gateway API 1.4, where TLSRoute is v1alpha3 and experimental.
    """
    done = subprocess.run(
        ["go", "mod", "download", "-json", "sigs.k8s.io/gateway-api"],
        cwd=_OLD_MODULE if old else _MODULE,
        env=environment(),
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    channel = "experimental" if old else "standard"
    folder = Path(json.loads(done.stdout)["Dir"]) / "config" / "crd" / channel
    return tuple(folder / f"gateway.networking.k8s.io_{name}.yaml" for name in GATEWAY_CRDS)


def install_gateway_crds(cluster: Cluster, *, old: bool = False) -> None:
    """Apply the CRDs and wait until the server serves them."""
    files = [word for each in gateway_crd_files(old=old) for word in ("-f", str(each))]
    cluster.kubectl("apply", "--server-side", "--force-conflicts", *files)
    kinds = [f"crd/{name}.gateway.networking.k8s.io" for name in GATEWAY_CRDS]
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", *kinds)
