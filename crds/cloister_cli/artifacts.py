"""``cloister crds`` and ``cloister models``: kinds of this version, stores of model weights."""

import json
from pathlib import Path

import click
import yaml

from cloister_clients.modelstore import ModelImage, StoreError, pack, read_store


@click.group()
def crds() -> None:
    """Show the kinds of this version."""


@crds.command("print")
@click.argument("names", nargs=-1)
def print_(names: tuple[str, ...]) -> None:
    """Print the CustomResourceDefinitions as YAML, to be piped to ``kubectl apply -f -``.

    NAMES limits them to kinds by their plural names, such as containers.
    """
    from cloister_crds.crd_manifests import manifests  # noqa: PLC0415 - generated when requested

    files = manifests()
    known = {name.partition(".")[0]: text for name, text in files.items()}
    unknown = sorted(set(names) - set(known))
    if unknown:
        listed = ", ".join(sorted(known))
        raise click.UsageError(f"there is no kind {', '.join(unknown)}; the kinds are {listed}")
    for name, text in known.items():
        if not names or name in names:
            click.echo("---\n" + text.removeprefix("---\n").rstrip("\n"))


@click.group()
def models() -> None:
    """Build and list a store of model weights (`models` of the configuration file)."""


@models.command("pack")
@click.argument("repo", metavar="OWNER/MODEL@COMMIT")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "--store", required=True, type=click.Path(path_type=Path), help="Directory of the store."
)
@click.option("--name", help="Name of the model; default the model's part of the repository.")
def pack_command(repo: str, directory: Path, store: Path, name: str | None) -> None:
    """Put the weights in DIRECTORY into a store, and print the entry for configuration files.

    Needs mkfs.erofs and veritysetup. The same weights, repository and commit give the same root
    hash, as long as these programs are of the same releases.
    """
    try:
        made = pack(repo, directory, store, name=name)
    except StoreError as error:
        raise click.ClickException(str(error)) from error
    click.echo(yaml.safe_dump({"models": [_entry(made)]}, sort_keys=False), nl=False)


@models.command("index")
@click.argument("store", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
@click.option(
    "--patch",
    is_flag=True,
    help="Print a merge patch that makes a Host (chost) know exactly these models.",
)
def index_command(store: Path, *, as_json: bool, patch: bool) -> None:
    """List the images of a STORE.

    Each image is compared with its name by the top of its hash tree; all its bytes are verified
    when an enclave starts.
    """
    try:
        entries = read_store(store)
    except StoreError as error:
        raise click.ClickException(str(error)) from error
    if patch:
        known = [each.mpk for each in entries]
        document = {"spec": {"models": {"known": known}}}
        click.echo(yaml.safe_dump(document, sort_keys=False, width=200), nl=False)
    elif as_json:
        listed = [{**_entry(each), "bytes": each.bytes} for each in entries]
        click.echo(json.dumps(listed, indent=2))
    else:
        for each in entries:
            origin = f"{each.name} ({each.repo})" if each.name else "of unknown origin"
            click.echo(f"{each.mpk}  {each.bytes / 1024**2:.1f} MiB  {origin}")


def _entry(entry: ModelImage) -> dict[str, str | None]:
    """Return an image as configuration files name it; what no note says is None."""
    return {"name": entry.name, "repo": entry.repo, "mpk": entry.mpk}
