"""The command ``cloister``, and the completion of its commands in a shell."""

import ast
import gc
from copy import copy
from importlib.abc import InspectLoader
from importlib.metadata import EntryPoint, entry_points, version
from importlib.util import find_spec
from typing import Final

import click
from click.shell_completion import CompletionItem, get_completion_class
from typing_extensions import override


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a script for SHELL that completes commands and options.

    For bash: source <(cloister completion bash)
    """
    kind = get_completion_class(shell)
    assert kind is not None
    root = context.find_root().command
    click.echo(kind(root, {}, "cloister", "_CLOISTER_COMPLETE").source())


GROUP: Final = "cloister.commands"
"""Group of entry points that commands come from."""
EXTRAS: Final = {"cloister_api": "api", "cloister_operator": "operator"}
"""Which extra a package needs, by its name."""
LIBRARIES: Final = {"cloister_api": "fastapi", "cloister_operator": "kopf"}
"""A library that is there where the extra of a package is installed, by the package's name."""


class Installed(click.Group):
    """A group whose commands are entry points."""

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(entry.name for entry in entry_points(group=GROUP))

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        for entry in entry_points(group=GROUP, name=cmd_name):
            try:
                command = _load(entry)
            except (ImportError, AttributeError) as error:
                return _missing(entry, error)
            if isinstance(command, click.Command):
                return command
        return None


class Listed(Installed):
    """The same commands where only their names and summaries are needed."""

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        for entry in entry_points(group=GROUP, name=cmd_name):
            description = _description(entry)
            if description is not None:
                return click.Command(cmd_name, help=description)
        return super().get_command(ctx, cmd_name)


class Plugged(Installed):
    """The same commands, which are imported when they are requested and not to list them."""

    @override
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        Listed().format_commands(ctx, formatter)

    @override
    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        # Click looks the commands up in the context's group.
        context = copy(ctx)
        context.command = listed = Listed(params=self.params)
        return listed.shell_complete(context, incomplete)


def _description(entry: EntryPoint) -> str | None:
    """Read the docstring of a command without an import of its module.

    None where only the import tells: whether an extra is missing, or whether what an entry point
    names is a command.
    """
    package = entry.module.partition(".")[0]
    try:
        if package in LIBRARIES and find_spec(LIBRARIES[package]) is None:
            return None
        found = find_spec(entry.module)
    except ImportError:
        return None
    if found is None or not isinstance(found.loader, InspectLoader):
        return None
    for each in ast.parse(found.loader.get_source(entry.module) or "").body:
        if isinstance(each, ast.FunctionDef) and each.name == entry.attr and each.decorator_list:
            return ast.get_docstring(each)
    return None


def _load(entry: EntryPoint) -> object:
    """Import a command without collecting garbage on the way.

    What modules make lives as long as the process. Looking it through again and again would take
    a fifth of the start, and later collections skip it.
    """
    gc.disable()
    try:
        return entry.load()
    finally:
        gc.freeze()
        gc.enable()


def with_extra(extra: str) -> str:
    """Return the command that installs an extra.

    It names a file of the release: the public index has a package of another project by our name.
    """
    return f"pip install './cloister-{version('cloister')}-py3-none-any.whl[{extra}]'"


def _missing(entry: EntryPoint, error: ImportError | AttributeError) -> click.Command:
    """Build a command that says why the real one cannot be used."""
    extra = EXTRAS.get(entry.module.partition(".")[0])
    what = error.name or str(error)
    if extra is None or what.partition(".")[0].startswith("cloister_"):
        sentence = f"cloister {entry.name} is broken: {what} is missing; install cloister again."
        summary = "Broken."
    else:
        summary = f"Not installed: needs the extra {extra!r}."
        sentence = (
            f"cloister {entry.name} needs the extra {extra!r}, whose package {what} is not "
            f"installed. Install it with the wheel of your release: {with_extra(extra)}."
        )

    def refuse(words: tuple[str, ...]) -> None:  # noqa: ARG001 - all words lead to the sentence
        raise click.ClickException(sentence)

    return click.Command(
        entry.name,
        callback=refuse,
        params=[click.Argument(["words"], nargs=-1, type=click.UNPROCESSED)],
        context_settings={"ignore_unknown_options": True},
        add_help_option=False,
        short_help=summary,
    )


@click.group(cls=Plugged, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="cloister", message="cloister %(version)s")
def main() -> None:
    """Run confidential containers for organizations, on Kubernetes."""


def kubectl_plugin() -> None:
    """Run as a plugin of kubectl, whose help names it as its users do."""
    main(prog_name="kubectl cloister")
