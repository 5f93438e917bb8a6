"""``cloister config diff``: what differs between two files, releases or measurements.

Exit codes: 0 nothing differs; 1 something does; 2 an input cannot be read, or the command is wrong.
"""

import dataclasses
import json
import sys
from typing import Any, Final

import click

from cloister_cli.measurement import DIFFERENT, UNREADABLE, fetch, read, unreadable
from cloister_cli.verdict import print_verdict
from cloister_crds.config import STORED, parse
from cloister_crds.measurement.difference import (
    Difference,
    Side,
    compare,
    file_tree,
    markdown,
    text,
)

MEASURED: Final = "cloister.dev/measurement/"
"""What the version of a measurement document begins with."""
RELEASE: Final = {"repo": "repo", "tag": "tag", "commit": "commit", "config_file": "configFile"}
"""Fields of a published measurement that say where its file is from."""


@click.command()
@click.argument("files", nargs=-1)
@click.option("--repo", metavar="OWNER/NAME", help="Repository of the tags.")
@click.option("--from", "old", metavar="TAG", help="Compare from this release.")
@click.option("--to", "new", metavar="TAG", help="Compare to this release.")
@click.option(
    "--source",
    metavar="FILE",
    help="Where repositories live: YAML as under `sources` in the settings. Default GitHub.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(("text", "markdown", "json")),
    default="text",
    show_default=True,
    help="For a terminal, a pull request, or a program.",
)
def diff(
    files: tuple[str, ...],
    *,
    repo: str | None,
    old: str | None,
    new: str | None,
    source: str | None,
    form: str,
) -> None:
    """Compare two of: configuration FILES, measurements, releases.

    A measurement is what GET /api/containers/ID/measurement returns, or what `cloister config
    measure` prints. With one of these and --to, a container's serving release is compared with
    another of its repository.
    """
    if len(files) + (old is not None) + (new is not None) != 2:  # noqa: PLR2004 - two sides
        raise click.UsageError("name two sides: FILE, or --from TAG, and FILE, or --to TAG")
    given = [_given(each) for each in files]
    named = repo or next((each["repo"] for each in given if each.get("repo")), None)
    if named is None and (old is not None or new is not None):
        raise click.UsageError("--from and --to need --repo: the files name no repository")
    tags = old is not None or new is not None
    sides = [_side(each, source, with_file=tags) for each in given]
    if old is not None:
        sides.insert(0, _released(named or "", old, source))
    if new is not None:
        sides.append(_released(named or "", new, source))
    found = compare(*sides)
    _show(found, form)
    sys.exit(DIFFERENT if found.changes else 0)


def _show(found: Difference, form: str) -> None:
    """Print a difference."""
    if form == "json":
        changes = [
            {name: value for name, value in dataclasses.asdict(each).items() if value is not None}
            for each in found.changes
        ]
        shown = {"changes": changes, "more_changes": found.more, "not_compared": found.not_compared}
        click.echo(json.dumps(shown, indent=2))
    else:
        click.echo(markdown(found) if form == "markdown" else text(found))


def _given(path: str) -> dict[str, Any]:
    """Read a file: a published measurement, or else the bytes of a configuration file."""
    raw = read(path)
    try:
        found = json.loads(raw)
    except ValueError:
        return {"path": path, "raw": raw}
    if isinstance(found, dict) and str(found.get("version", "")).startswith(MEASURED):
        return {"document": found}
    if isinstance(found, dict) and isinstance(found.get("document"), dict):
        return found
    return {"path": path, "raw": raw}


def _side(given: dict[str, Any], source: str | None, *, with_file: bool) -> Side:
    """Return a side of what was given.

    Parameters
    ----------
    with_file
        Whether the file of a measurement is read from its repository.
    """
    if "raw" in given:
        return _written(given["path"], given["raw"], {})
    document = given["document"]
    release = {shown: given[name] for name, shown in RELEASE.items() if given.get(name)}
    digest = document.get("configDigest")
    side = Side(release={**release, "configDigest": digest}, measurement=document)
    if not with_file or not {"repo", "tag"} <= release.keys():
        return side
    released = _released(release["repo"], release["tag"], source)
    if released.release["configDigest"] != digest:
        click.echo(
            f"{release['repo']} {release['tag']} has another file now than was measured: the tag "
            "was moved. The file is not compared.",
            err=True,
        )
        return side
    return dataclasses.replace(side, file=released.file)


def _released(repo: str, tag: str, source: str | None) -> Side:
    """Return the side of a release."""
    found = fetch(repo, tag, source)
    names = {
        "repo": found.repo,
        "tag": found.tag,
        "commit": found.commit,
        "configFile": found.file_name,
    }
    return _written(f"{repo} {tag}", found.file, names)


def _written(name: str, raw: bytes, release: dict[str, Any]) -> Side:
    """Return the side of a configuration file, or end the program."""
    parsed = parse(raw, rules=STORED)
    if parsed.config is None:
        if not parsed.problems:
            unreadable(f"{name} is not a configuration file")
        print_verdict(parsed, name)
        sys.exit(UNREADABLE)
    return Side(release={**release, "configDigest": parsed.digest}, file=file_tree(parsed.config))
