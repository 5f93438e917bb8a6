"""Options that several commands have: which cluster they look at, and as whom."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

__all__ = ["cluster_options"]

OPTIONS = (
    click.option(
        "--kubeconfig",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Kubeconfig file; where not given $KUBECONFIG, the Pod's account, ~/.kube/config.",
    ),
    click.option("--context", help="Context of the kubeconfig file; default its current one."),
    click.option(
        "--namespace",
        default="cloister-system",
        show_default=True,
        help="Namespace of the operator.",
    ),
)


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command with the options ``--kubeconfig``, ``--context`` and ``--namespace``."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command
