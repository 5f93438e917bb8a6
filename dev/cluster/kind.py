"""The cluster in Docker: what kind is told, and the registry beside it.

Not part of CI, which has no Docker: the tests look at what is generated here.
"""

import subprocess
from pathlib import Path

from dev.cluster.trouble import Trouble

__all__ = ["configuration", "down", "registry_commands", "up"]

REGISTRY_IMAGE = "docker.io/library/registry:3"


def configuration() -> str:
    """Answer kind's configuration: one node whose containerd reads registry hosts from a folder."""
    return """kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
nodes:
  - role: control-plane
containerdConfigPatches:
  - |-
    [plugins."io.containerd.cri.v1.images".registry]
      config_path = "/etc/containerd/certs.d"
"""


def registry_commands(name: str, registry: str) -> list[list[str]]:
    """Answer the commands that start a registry and tell the node of it.

    Parameters
    ----------
    name
        Name of the cluster.
    registry
        Host and port of the registry on this machine, as image references name it.
    """
    container = f"{name}-registry"
    folder = f"/etc/containerd/certs.d/{registry}"
    hosts = f'[host."http://{container}:5000"]'
    run = ["docker", "run", "--detach", "--restart=always", f"--publish={registry}:5000"]
    inside = ["docker", "exec", f"{name}-control-plane"]
    return [
        [*run, f"--name={container}", "--network=kind", REGISTRY_IMAGE],
        [*inside, "mkdir", "-p", folder],
        [*inside, "sh", "-c", f"echo '{hosts}' > {folder}/hosts.toml"],
    ]


def up(name: str, kubeconfig: Path, registry: str) -> None:
    """Start the cluster, unless it runs.

    Raises
    ------
    Trouble
        When kind or Docker refuses; with their last words.
    """
    if name in _run("kind", "get", "clusters").split():
        return
    configured = kubeconfig.with_name("kind.yaml")
    configured.write_text(configuration())
    _run("kind", "create", "cluster", f"--name={name}", f"--config={configured}")
    _run("kind", "export", "kubeconfig", f"--name={name}", f"--kubeconfig={kubeconfig}")
    for command in registry_commands(name, registry):
        _run(*command)


def down(name: str) -> None:
    """End the cluster and its registry; harmless when there is none."""
    subprocess.run(["kind", "delete", "cluster", f"--name={name}"], check=False)
    subprocess.run(["docker", "rm", "--force", f"{name}-registry"], check=False)


def _run(*command: str) -> str:
    try:
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise Trouble(
            f"Docker answers, but {command[0]} is not installed; see https://kind.sigs.k8s.io"
        ) from error
    except subprocess.CalledProcessError as error:
        raise Trouble(f"`{' '.join(command)}` did not work:\n{error.stderr[-2000:]}") from error
    return done.stdout
