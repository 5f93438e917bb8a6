"""Cloister's chart, rendered and installed by the real Helm."""

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

import dev.chart.helm
from dev.chart.package import CHART

__all__ = ["CHART", "FULL", "LEAST", "Helm", "objects"]

LEAST: dict[str, Any] = {
    "containersDomain": "containers.example.com",
    "global": {"imageRegistry": "registry.example.com"},
    "images": {
        "cloister": {"digest": f"sha256:{'c' * 64}"},
        "guest": {"digest": f"sha256:{'a' * 64}"},
        "shim": {"digest": f"sha256:{'b' * 64}"},
    },
}
"""What an installation has to say, with the digests of a released chart."""
TRACING = {
    "endpoint": "https://collector.example.com/v1/traces",
    "sampleRatio": 0.1,
    "headersFile": {"secret": "collector", "key": "headers"},
    "caFile": {"configMap": "hosts", "key": "ca.pem"},
}
FULL: dict[str, Any] = LEAST | {
    "keys": {"existingSecret": "own-keys"},
    "authority": {"enabled": True, "existingSecret": "own-authority"},
    "imagePullSecrets": [{"name": "pull"}],
    "sources": {
        "kind": "git",
        "base": "ssh://git@git.example.com",
        "sshKeyFile": {"secret": "git", "key": "ssh"},
        "knownHostsFile": {"configMap": "hosts", "key": "known_hosts"},
        "fileNames": ["service-config.yml", "other.yml"],
        "maxFileBytes": 100_000,
        "maxFetchBytes": 134_217_728,
    },
    "registry": {
        "mirrors": {"docker.io": ["https://mirror.example.com"]},
        "caFile": {"configMap": "hosts", "key": "ca.pem"},
    },
    "operator": {
        "replicas": 3,
        "serviceAccount": {"name": "robot", "annotations": {"cloud/role": "reader"}},
        "annotations": {"example.com/note": "operator"},
        "labels": {"example.com/team": "platform"},
        "priorityClassName": "system-cluster-critical",
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"key": "system", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {}},
        "topologySpreadConstraints": [],
        "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy.example.com"}],
        "extraVolumes": [{"name": "more", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
        "settings": {
            "apiAddress": "https://api.example.com",
            "apiAuthorities": {"configMap": "hosts", "key": "ca.pem"},
            "signedCertificates": True,
            "domains": {"target": "dns.example.com"},
            "gateway": {"name": "public"},
            "health": {"staleSeconds": 90},
            "metering": True,
            "tracing": TRACING,
        },
    },
    "api": {
        "serviceAccount": {"name": "facade"},
        "autoscaling": {"enabled": True},
        "settings": {
            "stop": {"drainSeconds": 7.5, "requestSeconds": 20},
            "webhooks": {"releaseSecretFile": {"secret": "hooks", "key": "release"}},
            "stripe": {
                "secretKeyFile": {"secret": "stripe", "key": "key"},
                "containerProducts": ["prod_1"],
                "tokenProducts": ["prod_2"],
            },
            "catalog": {"configMap": "models", "key": "catalog.json"},
            "tracing": TRACING | {"followCallers": True},
        },
    },
    "ledger": {"postgresql": {"existingSecret": "database"}},
}
"""An installation that sets much."""


def objects(text: str) -> dict[tuple[str, str, str], dict[str, Any]]:
    """Return the objects of a rendering by kind, namespace and name."""
    found = {}
    for each in filter(None, yaml.load_all(text, yaml.CSafeLoader)):
        metadata = each["metadata"]
        found[each["kind"], metadata.get("namespace", ""), metadata["name"]] = each
    return found


@dataclass(frozen=True, slots=True)
class Helm(dev.chart.helm.Helm):
    """Helm, with what tests ask of the chart; its folder has the values of a test."""

    def on_chart(
        self, command: str, values: Mapping[str, Any], *arguments: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command that takes the release's name, the chart and values."""
        path = self.folder / "values.yaml"
        path.write_text(yaml.safe_dump(dict(values)), encoding="utf-8")
        name = [] if command == "lint" else [self.release]
        return self.run(command, *name, str(CHART), "--values", str(path), *arguments)

    def rendered(
        self, values: Mapping[str, Any], *arguments: str
    ) -> dict[tuple[str, str, str], dict[str, Any]]:
        """Return the rendered objects.

        Raises
        ------
        AssertionError
            When the chart refuses.
        """
        done = self.on_chart("template", values, *arguments)
        assert done.returncode == 0, done.stderr
        return objects(done.stdout)

    def refusal(self, values: Mapping[str, Any], *arguments: str) -> str:
        """Return why the chart refuses values.

        Raises
        ------
        AssertionError
            When it does not.
        """
        done = self.on_chart("template", values, *arguments)
        assert done.returncode != 0, "the chart took the values"
        return done.stderr
