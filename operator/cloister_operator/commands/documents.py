"""``cloister documents``: make the documents of an enclave from public inputs, without a cluster.

An auditor compares them with those that were published, or measures them (``cloister config
measure --documents``). Exit codes: 0 made, 1 the file is invalid, 2 an input cannot be read.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import click
from pydantic import Field, ValidationError

from cloister_clients.registry import Platform, RegistryClient, RegistryError, RegistrySettings
from cloister_clients.settings import SettingsError, SettingsSection, read_settings_file, read_yaml
from cloister_crds.config import Rules, ServiceConfig, parse
from cloister_crds.config.limits import CPU_TIERS, GPU_COUNTS, MEMORY_TIERS
from cloister_crds.kinds import Enclave, Host
from cloister_crds.lifecycle.admission.host_requirements import gpu_count as requested_gpus
from cloister_crds.lifecycle.admission.host_selection import profile
from cloister_operator.enclave.built import build_enclave
from cloister_operator.enclave.plan import ApiIdentity, BuildSettings, EnclavePlan

INVALID: Final = 1
UNREADABLE: Final = 2
_ANYBODY: Final = "somebody/something"
"""Repository of an enclave whose measured documents name none."""


class PublicSettings(SettingsSection):
    """What of the operator's settings decides the documents, by the same names."""

    shim_image: Annotated[str, Field(pattern=r"^\S+@sha256:[0-9a-f]{64}$")]
    """Image of the shim, with its digest."""
    guest_image: Annotated[str, Field(pattern=r"^\S+@sha256:[0-9a-f]{64}$")]
    """Image of the guest, with its digest."""
    service: str = "cloister"
    """Name of the service."""
    api_address: str | None = None
    """Base address of the API as enclaves reach it."""
    api_authorities: str = ""
    """Certificate authorities of the API, PEM; empty means the public ones."""
    signed_certificates: bool = False
    """Whether the API has the certificates of enclaves signed."""
    key_cache_seconds: float = 1.0
    """Seconds for which an enclave caches that an API key is valid."""
    key_outage_seconds: float = 30.0
    """Seconds for which a key stays valid while the API is down."""
    platform: Annotated[str, Field(pattern=r"^[a-z0-9]+/[a-z0-9]+(/[a-z0-9]+)?$")] = "linux/amd64"
    """Platform that images must have."""
    registry: RegistrySettings = Field(default_factory=RegistrySettings)
    """How image registries are reached."""

    def build(self) -> BuildSettings:
        """Return the part that the builders depend on."""
        api = self.api_address
        return BuildSettings(
            shim_image=self.shim_image,
            guest_image=self.guest_image,
            service=self.service,
            key_cache_seconds=self.key_cache_seconds,
            key_outage_seconds=self.key_outage_seconds,
            api=ApiIdentity(api, self.api_authorities) if api is not None else None,
        )


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, exists=True, path_type=Path))
@click.option(
    "--host",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    required=True,
    help="Manifest of the Host (chost), YAML.",
)
@click.option(
    "--settings",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    required=True,
    help="What the administrator published of the operator's settings, YAML.",
)
@click.option("--debug", is_flag=True, help="Make those of the debug enclave.")
@click.option("--ssh", is_flag=True, help="With keys that may log in (debug only).")
@click.option("--without-tee", is_flag=True, help="With the TEE switched off (debug only).")
@click.option("--gpus", type=click.IntRange(0, 64), help="GPUs of the request; else the file's.")
@click.option("--cpu-tier", type=int, multiple=True, help="Further cpus that are offered.")
@click.option("--memory-tier", type=int, multiple=True, help="Further memory that is offered.")
@click.option("--gpu-count", type=int, multiple=True, help="Further gpus that are offered.")
def documents(
    file: Path,
    host: Path,
    settings: Path,
    *,
    cpu_tier: tuple[int, ...],
    memory_tier: tuple[int, ...],
    gpu_count: tuple[int, ...],
    **request: Any,
) -> None:
    """Make the measured documents of the enclave of FILE: a JSON object, text by name.

    What images say comes from their registries, by the digests of FILE. docs/measurement.md
    explains it.
    """
    if (request["ssh"] or request["without_tee"]) and not request["debug"]:
        raise click.UsageError("--ssh and --without-tee need --debug")
    try:
        known = read_settings_file(settings, PublicSettings)
        described = Host.read(read_yaml(host.read_bytes()))
    except (SettingsError, ValidationError, ValueError) as error:
        _end(UNREADABLE, str(error))
    raw = file.read_bytes()
    rules = Rules(
        cpu_tiers=(*CPU_TIERS, *cpu_tier),
        memory_tiers=(*MEMORY_TIERS, *memory_tier),
        gpu_counts=(*GPU_COUNTS, *gpu_count),
        service=known.service,
        release=True,
    )
    # Validated as the file of a release: a placeholder digest has no image to look up.
    config = parse(raw, rules=rules).config
    if config is None:
        _end(INVALID, f"{file} is invalid: `cloister config check {file}` says why")
    try:
        images = asyncio.run(_images(config, known))
    except RegistryError as error:
        _end(UNREADABLE, error.message)
    plan = public_plan(config, described, images, signed=known.signed_certificates, **request)
    click.echo(json.dumps(build_enclave(plan, known.build()).documents, indent=2))


def public_plan(
    config: ServiceConfig,
    host: Host,
    images: list[dict[str, Any]],
    *,
    signed: bool,
    debug: bool,
    ssh: bool,
    without_tee: bool,
    gpus: int | None,
) -> EnclavePlan:
    """Return the plan of an enclave that nobody requested: what is not measured is made up.

    Parameters
    ----------
    config
        The parsed file.
    images
        What the registries say of its images, as the Enclave records it.
    ssh
        Whether keys may log in.
    gpus
        GPUs that the request names; None means the file's.
    """
    name = "documents"
    key = {"name": name, "publicKey": name}
    spec = {
        "container": {"name": name, "uid": name},
        "request": {"repo": _ANYBODY, "tag": name, "gpus": gpus},
        "revision": name,
        "attempt": 1,
        "repo": _ANYBODY,
        "tag": name,
        "commit": "0" * 40,
        "configDigest": f"sha256:{'0' * 64}",
        "configFile": name,
        "summary": {
            "cpus": config.cpus,
            "memoryMB": config.memory,
            "gpus": requested_gpus(config, gpus),
        },
        "images": images,
        "debug": debug,
        "sshKeys": [key] if ssh else [],
        "host": host.metadata.name,
        "hostnames": [f"{name}.example"],
        "signedCertificate": signed,
    }
    metadata = {"name": name, "namespace": name, "uid": name}
    profiled = host.model_copy(update={"spec": profile(host.spec, without_tee=without_tee)})
    return EnclavePlan(
        enclave=Enclave.read({"metadata": metadata, "spec": spec}),
        organization=name,
        host=profiled,
        config=config,
        file=b"",
    )


async def _images(config: ServiceConfig, settings: PublicSettings) -> list[dict[str, Any]]:
    """Read what the images of a file say, once for each."""
    client = RegistryClient(settings.registry)
    platform = Platform.parse(settings.platform)
    found = []
    try:
        for container in config.containers:
            image = await client.resolve(container.image, platform=platform)
            found.append(
                {
                    "container": container.name,
                    "image": container.image,
                    "entrypoint": image.entrypoint,
                    "cmd": image.cmd,
                    "env": image.env,
                    "user": image.user,
                    "workingDir": image.working_dir,
                    "stopSignal": image.stop_signal,
                }
            )
    finally:
        await client.aclose()
    return found


def _end(code: int, sentence: str) -> NoReturn:
    click.echo(sentence, err=True)
    sys.exit(code)
