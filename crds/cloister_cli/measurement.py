"""``cloister config measure``: recompute what identifies an enclave, without asking the cluster.

Exit codes: 0 measured, and equal to what was expected; 1 the file is invalid or the measurement is
another one; 2 an input cannot be read (or the command is wrong).
"""

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click
import yaml
from pydantic import TypeAdapter, ValidationError

from cloister_cli.verdict import print_verdict
from cloister_crds.config import Rules, ServiceConfig, parse
from cloister_crds.config.limits import CPU_TIERS, GPU_COUNTS, MEMORY_TIERS
from cloister_crds.kinds import Host
from cloister_crds.lifecycle.admission.host_selection import profile
from cloister_crds.measurement import Measurement, PlatformImages
from cloister_crds.measurement import measure as measured
from cloister_crds.measurement.enclave import gets_rules
from cloister_crds.measurement.initdata import POD_DOCUMENT

if TYPE_CHECKING:
    from cloister_clients.sources.release import PublishedRelease

DIFFERENT: Final = 1
UNREADABLE: Final = 2
PINNED: Final = re.compile(r"\S+@sha256:[0-9a-f]{64}")
SHOWN: Final = ("summary", "document", "initdata", "annotation")


def _pinned(_: click.Context, option: click.Parameter, value: str) -> str:
    """Refuse an image that can change."""
    if not PINNED.fullmatch(value):
        raise click.BadParameter("write the image with its digest, NAME@sha256:…", param=option)
    return value


@click.command()
@click.argument("file", required=False)
@click.option("--repo", metavar="OWNER/NAME", help="Read the file of a release of this repository.")
@click.option("--tag", metavar="TAG", help="Tag of that release.")
@click.option(
    "--source",
    metavar="FILE",
    help="Where repositories live: YAML as under `sources` in the settings. Default GitHub.",
)
@click.option("--host", metavar="FILE", required=True, help="Manifest of the Host (chost), YAML.")
@click.option(
    "--documents",
    metavar="FILE",
    required=True,
    help="The documents of the enclave: a JSON object, text by name.",
)
@click.option("--guest-image", required=True, callback=_pinned, help="Guest, with its digest.")
@click.option("--shim-image", required=True, callback=_pinned, help="Shim, with its digest.")
@click.option("--service", default="cloister", show_default=True, help="Name of the service.")
@click.option("--debug", is_flag=True, help="Measure the debug enclave.")
@click.option("--without-tee", is_flag=True, help="With the TEE switched off (debug only).")
@click.option("--gpus", type=click.IntRange(0, 64), help="GPUs of the request; else the file's.")
@click.option("--cpu-tier", type=int, multiple=True, help="Further cpus that are offered.")
@click.option("--memory-tier", type=int, multiple=True, help="Further memory that is offered.")
@click.option("--gpu-count", type=int, multiple=True, help="Further gpus that are offered.")
@click.option("--expect", metavar="DIGEST", help="Compare the document's or initdata's digest.")
@click.option(
    "--print",
    "shown",
    type=click.Choice(SHOWN),
    default="summary",
    show_default=True,
    help="All as JSON, or the exact bytes of one part.",
)
def measure(
    file: str | None,
    *,
    repo: str | None,
    tag: str | None,
    source: str | None,
    expect: str | None,
    shown: str,
    **inputs: Any,
) -> None:
    """Recompute the measurement of the enclave of FILE (- for standard input), or of a release.

    The same inputs give the same bytes as in the cluster; which inputs those are, the published
    document says. docs/measurement.md explains it.
    """
    if (file is None) == (repo is None) or (repo is None) != (tag is None):
        raise click.UsageError("name either FILE or --repo and --tag")
    if inputs["without_tee"] and not inputs["debug"]:
        raise click.UsageError("--without-tee needs --debug: production enclaves keep their TEE")
    raw = read(file) if file is not None else fetch(repo or "", tag or "", source).file
    result = _measurement(file or f"{repo} {tag}", raw, inputs)
    if expect is not None:
        _compare(result, expect)
    _show(result, shown)


def _measurement(name: str, raw: bytes, inputs: dict[str, Any]) -> Measurement:
    """Put the inputs together."""
    rules = Rules(
        cpu_tiers=(*CPU_TIERS, *inputs["cpu_tier"]),
        memory_tiers=(*MEMORY_TIERS, *inputs["memory_tier"]),
        gpu_counts=(*GPU_COUNTS, *inputs["gpu_count"]),
        service=inputs["service"],
        release=True,
    )
    parsed = parse(raw, rules=rules)
    config: ServiceConfig | None = parsed.config
    if config is None:
        print_verdict(parsed, name)
        sys.exit(DIFFERENT)
    host = profile(read_host(inputs["host"]).spec, without_tee=inputs["without_tee"])
    documents = read_documents(inputs["documents"])
    # Without it the result would be a valid measurement of another enclave.
    if gets_rules(host) and POD_DOCUMENT not in documents:
        unreadable(
            f"{inputs['documents']} has no {POD_DOCUMENT}, which an enclave with a machine of its "
            "own has; take all of `documents` of a published measurement"
        )
    return measured(
        config,
        parsed.digest,
        host=host,
        images=PlatformImages(guest=inputs["guest_image"], shim=inputs["shim_image"]),
        documents=documents,
        service=inputs["service"],
        debug=inputs["debug"],
        gpus=inputs["gpus"],
    )


def _compare(result: Measurement, expect: str) -> None:
    """End the program when no digest is the expected one."""
    found = [result.digest, *([result.initdata.digest] if result.initdata else [])]
    if expect not in found:
        click.echo(f"expected {expect}, measured {' and '.join(found)}", err=True)
        sys.exit(DIFFERENT)


def _show(result: Measurement, shown: str) -> None:
    """Print a part, or all as JSON."""
    initdata = result.initdata
    if shown in {"initdata", "annotation"} and initdata is None:
        unreadable("this enclave has no initdata: its Host has no teeUnit Pod")
    if shown == "document":
        click.echo(result.text, nl=False)
    elif shown == "initdata" and initdata is not None:
        click.echo(initdata.text, nl=False)
    elif shown == "annotation" and initdata is not None:
        click.echo(initdata.annotation)
    else:
        summary: dict[str, Any] = {"digest": result.digest, "document": result.document.wire()}
        if initdata is not None:
            summary["initdata"] = {"digest": initdata.digest, "toml": initdata.text.decode()}
        click.echo(json.dumps(summary, indent=2))


def read(file: str) -> bytes:
    """Read a file, or end the program."""
    limit = Rules().max_bytes + 1
    try:
        if file == "-":
            return sys.stdin.buffer.read(limit)
        with Path(file).open("rb") as stream:
            return stream.read(limit)
    except OSError as error:
        unreadable(f"{file} cannot be read: {error.strerror or error}")


def fetch(repo: str, tag: str, source: str | None) -> "PublishedRelease":
    """Read a release with its file, or end the program."""
    from cloister_clients.sources import (  # noqa: PLC0415 - brings HTTP, which other commands lack
        SourceError,
        SourceKind,
        SourceSettings,
        provider_from,
    )

    try:
        given = {"kind": SourceKind.GITHUB} if source is None else _yaml(source)
        provider = provider_from(SourceSettings.model_validate(given))
    except (ValidationError, OSError) as error:
        unreadable(f"{source}: {_sentences(error)}")

    async def resolve() -> "PublishedRelease":
        try:
            return await provider.resolve(repo, tag)
        finally:
            await provider.aclose()

    try:
        return asyncio.run(resolve())
    except SourceError as error:
        unreadable(error.message)


def read_host(path: str) -> Host:
    """Read the manifest of a Host, or end the program."""
    try:
        return Host.read(_yaml(path))
    except ValidationError as error:
        unreadable(f"{path} is not a Host: {_sentences(error)}")


def read_documents(path: str) -> dict[str, str]:
    """Read the documents of an enclave, or end the program."""
    try:
        return TypeAdapter(dict[str, str]).validate_json(read(path), strict=True)
    except ValidationError as error:
        unreadable(
            f"{path} is not a JSON object of texts, such as `documents` of a published "
            f"measurement: {_sentences(error)}"
        )


def _yaml(path: str) -> Any:
    """Read a YAML file, or end the program."""
    try:
        return yaml.safe_load(read(path))
    except yaml.YAMLError as error:
        unreadable(f"{path} is not YAML: {error}")


def _sentences(error: ValidationError | OSError) -> str:
    """Describe what is wrong, field by field."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return "; ".join(
        f"{'.'.join(map(str, each['loc']))}: {each['msg']}"
        for each in error.errors(include_url=False, include_input=False)
    )


def unreadable(sentence: str) -> NoReturn:
    """End the program because an input cannot be read."""
    click.echo(sentence, err=True)
    sys.exit(UNREADABLE)
