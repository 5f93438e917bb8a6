"""Installs the chart on a local cluster, from the images of this checkout in its registry."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from dev.chart.documents import namespace_text
from dev.chart.helm import NAMESPACE, Helm
from dev.chart.package import package
from dev.cluster import Cluster, LocalClusterError
from dev.cluster.layout import free_port
from dev.cluster.processes import wait_until
from dev.images.local import LocalImages

CONTAINERS_DOMAIN = "containers.example.com"
"""Domain of the generated host names; it needs no DNS here."""
API_CONFIG = "/etc/cloister/config/api.yaml"
"""Settings of the API in its Pod, for commands that are run there."""
VOLUME = "cloister-ledger"
"""Name of the ledger's volume and of its claim."""
POD_USER = 65532
"""User of our Pods; a directory of the node does not follow fsGroup."""
PATIENCE = 180.0
"""Seconds for what pulls images on a busy machine."""
DELETE = ("delete", "--ignore-not-found", "--timeout=60s")
SETTLED = {"deployed", "failed", "superseded", "uninstalled"}
"""States of a release that no running helm has; a killed one leaves the others."""


def push_images(images: LocalImages, cluster: Cluster, folder: Path) -> Path:
    """Push images into a cluster's registry, and return the chart packaged with their digests.

    Raises
    ------
    ImageError
        When the registry refuses.
    LocalClusterError
        When Helm cannot be built, or refuses.
    """
    return package(images.push(f"{cluster.registry}/cloister", folder), folder)


@dataclass(frozen=True, slots=True)
class LocalInstallation:
    """Cloister on a local cluster, by its chart."""

    cluster: Cluster
    folder: Path
    """Its values, and the directory of its ledger."""
    chart: Path
    """The packaged chart."""
    git: str
    """Host and port of the git server, as Pods reach it."""

    @property
    def helm(self) -> Helm:
        """Helm on this cluster."""
        return Helm(self.folder, self.cluster.kubeconfig)

    @property
    def values(self) -> dict[str, Any]:
        """What a local cluster needs beside the chart's defaults.

        Its registry has another address in Pods than in image references, both without TLS; the
        enclaves' own name servers are not those of a Service.
        """
        registry, mirror = self.cluster.registry, self.cluster.pod_registry
        return {
            "containersDomain": CONTAINERS_DOMAIN,
            "sources": {
                "kind": "git",
                "base": f"http://{self.git}",
                "plainHttp": [self.git],
                "allowPrivate": [self.git],
            },
            "registry": {
                "mirrors": {registry: [f"http://{mirror}"]},
                "plainHttp": [registry, mirror],
                "allowPrivate": [registry, mirror],
            },
            "operator": {
                "settings": {
                    "enclaveNetwork": {"resolvers": self.cluster.resolvers},
                    "apiAddress": f"http://cloister-api.{NAMESPACE}.svc",
                    "signedCertificates": True,
                }
            },
            "api": {"settings": {"logFormat": "json", "dashboard": {"address": self.dashboard}}},
            "authority": {"enabled": True},
            "ledger": {"sqlite": {"size": "1Gi"}},
        }

    @property
    def dashboard(self) -> str:
        """Address of the dashboard: a port of this machine that `kubectl port-forward` opens.

        It is chosen once, since the dashboard is at its address alone.
        """
        kept = self.folder / "dashboard"
        if not kept.exists():
            port = free_port(set(self.cluster.record.ports.values()))
            kept.write_text(f"http://127.0.0.1:{port}")
        return kept.read_text()

    def prepare(self) -> None:
        """Make the namespace, and the volume where the cluster makes none; idempotent."""
        self.apply_text(namespace_text(NAMESPACE))
        if not self._makes_volumes():
            self._make_volume()

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Apply objects as an administrator does."""
        self.apply_text(yaml.safe_dump_all(map(dict, objects)))

    def apply_text(self, text: str) -> None:
        """Apply a text with objects."""
        apply = ("apply", "--server-side", "--force-conflicts", "-f", "-")
        self.cluster.kubectl(*apply, stdin=text)

    def write_values(self, **more: Any) -> Path:
        """Write the values, with further ones in their place, and return the file."""
        path = self.folder / "values.yaml"
        path.write_text(yaml.safe_dump(self.values | more), encoding="utf-8")
        return path

    def run_helm(self, command: str, *flags: str, **more: Any) -> None:
        """Install or upgrade the release, and wait until both programs are ready.

        Raises
        ------
        LocalClusterError
            When it fails; with the state of the Pods and the end of their logs.
        """
        helm = self.helm
        values = self.write_values(**more)
        wait = ("--wait", f"--timeout={PATIENCE:.0f}s")
        try:
            helm.output(command, helm.release, self.chart, "--values", values, *wait, *flags)
        except LocalClusterError as error:
            raise LocalClusterError(f"{error}\n{self.state()}") from error

    def install(self) -> None:
        """Install or upgrade, over what is there: idempotent, also after an interrupted run.

        Raises
        ------
        LocalClusterError
            When it fails; with the state of the Pods and the end of their logs.
        """
        self.prepare()
        self._forget_interrupted()
        # Tests apply the CRDs and roles as they are before.
        self.run_helm("upgrade", "--install", "--take-ownership", "--force-conflicts")

    def run(self, *command: str) -> str:
        """Run a ``cloister`` command in the API's Pod, and return its output."""
        place = ("exec", "-n", NAMESPACE, "deploy/cloister-api", "--", "cloister")
        return self.cluster.kubectl(*place, *command)

    def create_admin_key(self, *, organization: str, user: str, name: str) -> str:
        """Create an admin key, and return it."""
        return self.run(
            *("admin-key", "create", "--config", API_CONFIG, "--user", user),
            *("--organization", organization, "--name", name),
        ).strip()

    def authority(self) -> str:
        """Return the certificate of the own authority, for clients of enclaves, PEM."""
        encoded = self.cluster.kubectl(
            *("get", "secret", "cloister-authority", "-n", NAMESPACE),
            *("-o", r"go-template={{index .data `tls.crt` | base64decode}}"),
        )
        return encoded.strip() + "\n"

    def state(self) -> str:
        """Return what the cluster says of the Pods, for the message of a failure."""
        kubectl = self.cluster.kubectl
        parts = [kubectl("get", "pods,events", "-n", NAMESPACE, check=False)]
        for program in ("operator", "api"):
            log = ("logs", "-n", NAMESPACE, f"deploy/cloister-{program}", "--tail=12")
            parts.append(f"--- last lines of the log of {program}\n{kubectl(*log, check=False)}")
        return "\n".join(parts)

    def remove_policies(self, namespace: str) -> None:
        """Remove the admission policies, which an uninstall keeps.

        The API server still applies them for some seconds; wait until it does not.

        Parameters
        ----------
        namespace
            Namespace of an organization, in which they restrict even administrators.

        Raises
        ------
        LocalClusterError
            When they are still applied after a minute.
        """
        kubectl = self.cluster.kubectl
        policies = "validatingadmissionpolicies,validatingadmissionpolicybindings"
        kubectl(*DELETE, policies, "-l", "app.kubernetes.io/part-of=cloister")
        attempt = ("create", "service", "clusterip", "probe", "--tcp=80", "--dry-run=server")

        def free() -> bool:
            said = kubectl(*attempt, "-n", namespace, check=False)
            return "created (server dry run)" in said

        if not wait_until(free, within=60):
            raise LocalClusterError(
                "the API server still applies the deleted admission policies after a minute"
            )

    def uninstall(self) -> None:
        """Uninstall, and remove keys and ledger too; the CRDs stay.

        Raises
        ------
        LocalClusterError
            When there are Containers, or something of it is still there after a minute.
        """
        helm = self.helm
        self._forget_interrupted()
        helm.output("uninstall", helm.release, "--wait", "--ignore-not-found")
        kept = (f"pvc/{VOLUME}", "secret/cloister-keys", "secret/cloister-authority")
        self.cluster.kubectl(*DELETE, "-n", NAMESPACE, *kept)
        self.cluster.kubectl(*DELETE, f"pv/{VOLUME}")

    def _makes_volumes(self) -> bool:
        """Return whether the cluster makes volumes for claims: it has a default class."""
        default = r"{.items[*].metadata.annotations.storageclass\.kubernetes\.io/is-default-class}"
        return "true" in self.cluster.kubectl("get", "storageclass", "-o", f"jsonpath={default}")

    def _make_volume(self) -> None:
        """Make the ledger's volume in a directory of the node."""
        ledger = self.folder / "ledger"
        ledger.mkdir(mode=0o700, exist_ok=True)
        os.chown(ledger, POD_USER, POD_USER)
        if self._phase_of_volume() in {"Released", "Failed"}:
            # Its claim was deleted: it would wait for that one for ever.
            self.cluster.kubectl("delete", f"pv/{VOLUME}", "--timeout=60s")
        self.apply(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": VOLUME},
                "spec": {
                    "capacity": {"storage": "1Gi"},
                    "accessModes": ["ReadWriteOnce"],
                    "claimRef": {"namespace": NAMESPACE, "name": VOLUME},
                    "hostPath": {"path": str(ledger), "type": "Directory"},
                    "persistentVolumeReclaimPolicy": "Retain",
                },
            }
        )

    def _phase_of_volume(self) -> str:
        get = ("get", f"pv/{VOLUME}", "--ignore-not-found", "-o", "jsonpath={.status.phase}")
        return self.cluster.kubectl(*get)

    def _forget_interrupted(self) -> None:
        """Delete records of what a killed helm had begun, which would refuse another begin."""
        records = json.loads(
            self.cluster.kubectl(
                *("get", "secrets", "-n", NAMESPACE, "-o", "json"),
                *("-l", f"owner=helm,name={self.helm.release}"),
            )
        )["items"]
        for each in records:
            if each["metadata"]["labels"].get("status") not in SETTLED:
                name = each["metadata"]["name"]
                self.cluster.kubectl("delete", "secret", name, "-n", NAMESPACE)
