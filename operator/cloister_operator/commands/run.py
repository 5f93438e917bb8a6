"""``cloister operator``: run the operator."""

import sys
from pathlib import Path

import click

from cloister_clients.kube import ConfigError, KubeConfig
from cloister_clients.settings import SettingsError
from cloister_clients.tracing.spans import traced
from cloister_operator.process.process import run
from cloister_operator.settings import CONFIG_VARIABLE, read_settings
from cloister_operator.telemetry.health import configure_logging


@click.command()
@click.option(
    "--config",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    help=f"File with the settings. Default: the file that ${CONFIG_VARIABLE} names.",
)
def operator(path: Path | None) -> None:
    """Run the operator: it brings the cluster to the state that the custom resources describe."""
    try:
        settings = read_settings(path)
        settings.check_prerequisites()
        kube = KubeConfig.load(settings.kubeconfig, settings.context)
    except (SettingsError, ConfigError) as error:
        raise click.ClickException(str(error)) from error
    configure_logging(settings.log)
    with traced(settings.tracing, "operator"):
        code = run(settings, kube)
    sys.exit(code)
