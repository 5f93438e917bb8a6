"""What has to be true before a release is made; each refusal is a sentence with its remedy."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dev.images.commands import run
from dev.release.changelog import section, unreleased
from dev.release.errors import ReleaseError

SEMANTIC: Final = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?"
)
"""Semantic Versioning 2.0, without build metadata: a tag of an image cannot have a `+`."""


@dataclass(frozen=True, slots=True)
class Checkout:
    """What a checkout says about itself."""

    version: str
    """Version of pyproject.toml."""
    changed: tuple[str, ...]
    """Paths that differ from the commit."""
    tags: frozenset[str]
    changelog: str


def core(version: str) -> str:
    """Return a version without the mark of a pre-release, as the programs call themselves."""
    return version.partition("-")[0]


def look(root: Path, version: str) -> Checkout:
    """Look at a checkout.

    Raises
    ------
    ImageError
        When it is no checkout.
    """
    status = run(["git", "status", "--porcelain", "-z"], cwd=root).decode()
    tags = run(["git", "tag", "--list"], cwd=root).decode()
    return Checkout(
        version,
        tuple(line[3:] for line in status.split("\0") if line),
        frozenset(tags.split()),
        (root / "CHANGELOG.md").read_text(encoding="utf-8"),
    )


def check(checkout: Checkout, version: str, output: Path) -> None:
    """Refuse what cannot be released.

    Raises
    ------
    ReleaseError
        With a line for each reason, as `refusals` yields them.
    """
    if wrong := list(refusals(checkout, version, output)):
        raise ReleaseError("\n".join(wrong))


def refusals(checkout: Checkout, version: str, output: Path) -> Iterator[str]:
    """Yield why a version cannot be released; nothing = it can.

    Parameters
    ----------
    output
        Folder to write into, which must not have anything yet.
    """
    if not SEMANTIC.fullmatch(version):
        yield (
            f"{version!r} is no version: write MAJOR.MINOR.PATCH, or MAJOR.MINOR.PATCH-NAME for a "
            "pre-release (https://semver.org)"
        )
        return
    if core(version) != checkout.version:
        yield (
            f"pyproject.toml says {checkout.version}, not {core(version)}: write that there, run "
            "`make lock crds`, and commit"
        )
    if checkout.changed:
        shown = ", ".join(checkout.changed[:3])
        yield f"the checkout differs from its commit ({shown}): commit it, or release from a clone"
    if version != core(version):
        # A pre-release has what comes next, finished or not.
        pass
    elif not section(checkout.changelog, version):
        yield (
            f"CHANGELOG.md has no section {version}, or nothing in it: begin one with "
            f"`## {version}`, and put there what is under `## Unreleased`"
        )
    elif unreleased(checkout.changelog):
        yield (
            "CHANGELOG.md has changes under `## Unreleased`: put them into the section "
            f"{version}, which is what you release"
        )
    if f"v{version}" in checkout.tags:
        yield f"the tag v{version} exists: released is released, so take the next version"
    if output.exists() and any(output.iterdir()):
        yield f"{output} has something in it: name another OUTPUT, or remove it"
