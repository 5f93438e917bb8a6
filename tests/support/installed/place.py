"""A cluster with a real node to install on, and what an installation needs around it."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dev import cluster as local
from dev.chart.helm import NAMESPACE
from dev.chart.local import PATIENCE, LocalInstallation
from dev.cluster.cluster import COMPONENTS
from dev.cluster.images import Image, push
from dev.demo import repository
from tests.support.cluster.clusters import session_name
from tests.support.installed.chart import Chart
from tests.support.servers.git import git_server

__all__ = ["TAGS", "Place", "place_to_install"]

TAGS = ("v1.0.0", "v1.1.0")
"""Releases of the repository that the cluster reaches."""


@dataclass(slots=True)
class Place:
    """A cluster with a node, on which charts of several versions can be installed."""

    cluster: local.Cluster
    folder: Path
    git: str
    """Host and port of the git server, as Pods reach it."""
    changed: dict[str, Any] = field(default_factory=dict)
    """Values in the place of the usual ones."""

    def with_chart(self, chart: Chart) -> LocalInstallation:
        """Return the installation that a chart makes here."""
        return LocalInstallation(self.cluster, self.folder, chart.package, self.git)

    @property
    def registry(self) -> str:
        """Where the images are, `global.imageRegistry` of the values."""
        return f"{self.cluster.registry}/cloister"

    def values(self, chart: Chart, **more: Any) -> dict[str, Any]:
        """Return the values of an installation here."""
        own = {"global": {"imageRegistry": self.registry}}
        values = {**self.with_chart(chart).values, **own, **self.changed, **more}
        if not chart.has_dashboard:
            settings = values["api"].get("settings", {})
            kept = {name: value for name, value in settings.items() if name != "dashboard"}
            values["api"] = {**values["api"], "settings": kept}
        return values

    def change_settings(self, chart: Chart, **settings: Any) -> None:
        """Change settings of the operator for all installations here."""
        operator = self.values(chart)["operator"]
        self.changed["operator"] = {
            **operator,
            "settings": {**operator["settings"], **settings},
        }

    def install(self, command: str, chart: Chart, *flags: str, **more: Any) -> None:
        """Install or upgrade the release, and wait until both programs are ready."""
        self.with_chart(chart).run_helm(command, *flags, **self.values(chart, **more))

    def refused(self, command: str, chart: Chart, *flags: str, **more: Any) -> str:
        """Return what Helm says when it refuses to install or upgrade the release.

        Raises
        ------
        AssertionError
            When it does not refuse.
        """
        made = self.with_chart(chart)
        values = made.write_values(**self.values(chart, **more))
        done = made.helm.run(command, made.helm.release, chart.package, "--values", values, *flags)
        assert done.returncode != 0, done.stdout
        return done.stderr

    def leader(self) -> str:
        """Return the name of the Pod that holds the Lease."""
        holder = self.cluster.kubectl(
            *("get", "lease", "cloister-operator", "-n", NAMESPACE),
            *("-o", "jsonpath={.spec.holderIdentity}"),
        )
        return holder.partition("_")[0]

    def wait_for_rollout(self, *programs: str) -> None:
        """Wait until Deployments have rolled out."""
        for program in programs:
            self.cluster.kubectl(
                *("rollout", "status", "-n", NAMESPACE, f"deploy/cloister-{program}"),
                f"--timeout={PATIENCE:.0f}s",
            )

    def prepare(self, chart: Chart) -> None:
        """Create the namespace, and a volume for the ledger."""
        self.with_chart(chart).prepare()

    def lose_cluster(self, chart: Chart) -> None:
        """Lose all objects, as with the disks of etcd; an empty cluster starts at its address."""
        for name in COMPONENTS:
            self.cluster.processes.stop(name)
        shutil.rmtree(self.cluster.layout.data / "etcd")
        local.up(self.cluster.name, node=True)
        shutil.rmtree(self.folder / "ledger")
        self.prepare(chart)


@contextmanager
def place_to_install(
    suffix: str, folder: Path, *charts: Chart, audited: bool = False
) -> Iterator[Place]:
    """Provide a cluster with the images of these charts, and a repository that it reaches."""
    cluster = local.up(f"{session_name()}-{suffix}", node=True, audited=audited)
    try:
        for tag in TAGS:
            program = repository.build_program(tag, folder / "programs")
            image = Image(files={"/hello": program}, entrypoint=("/hello",), user="65532:65532")
            reference = push(image, cluster.registry, repository.REPO, tag)
            repository.release(folder / "repositories", tag=tag, image=reference)
        with git_server(folder / "repositories", address=cluster.host_address) as git:
            assert git.served is not None
            made = Place(cluster, folder, f"{cluster.host_address}:{git.served.port}")
            for chart in charts:
                chart.push(made.registry)
            yield made
    finally:
        local.down(cluster.name)
