"""``cloister crds``: the kinds that this version of the package brings."""

import click

__all__ = ["crds"]


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
