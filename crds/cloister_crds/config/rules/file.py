"""The file as a whole: the table of its keys, the order of the checks, its normalised form.

`parse` calls `validate`. Source: spec 40, 41.
"""

import re
from typing import Final

from cloister_crds.config.effective import MEGABYTE
from cloister_crds.config.limits import (
    CPU_TIERS,
    GPU_COUNTS,
    MAX_CONTAINERS,
    MAX_MODELS,
    MAX_NETWORKS,
    MEMORY_TIERS,
    VERSION,
)
from cloister_crds.config.model import ServiceConfig
from cloister_crds.config.rules import containers, images, networks, resources, shim
from cloister_crds.config.syntax.document import Mapping, Node
from cloister_crds.config.syntax.reading import (
    Field,
    ProblemReport,
    Section,
    Spot,
    Table,
    read_section,
    show,
)
from cloister_crds.config.syntax.scalars import ScalarKind

__all__ = ["FILE", "VERSION_PATTERN", "validate"]

VERSION_PATTERN: Final = rf"{VERSION.pattern}(@sha256:[0-9a-f]{{64}})?"
"""What a cvm-version looks like."""


def _read_version(spot: Spot) -> str | None:
    number = spot.kind in {ScalarKind.INTEGER, ScalarKind.FLOAT, ScalarKind.AMBIGUOUS}
    text = spot.raw if number else spot.text("a version such as 0.14.8")
    if text is not None and not re.fullmatch(VERSION_PATTERN, text):
        message = "write X.Y.Z, or X.Y.Z@sha256: and 64 hex digits"
        spot.error("InvalidVersion", f"{show(text)} is not a version: {message}")
        return None
    return text


def _tiers(amounts: tuple[int, ...], least: int = 1) -> dict[str, object]:
    """Return the schema of an amount: the usual ones to choose from, others by arrangement."""
    return {"anyOf": [{"enum": list(amounts)}, {"type": "integer", "minimum": least}]}


NOTHING: Final = "has no effect here: the platform decides, remove it"
LATER: Final = "is of a later generation of the format and not supported here: remove it"

FILE: Final = Table(
    noun="the file",
    fields=(
        Field(
            "cvm-version",
            _read_version,
            {"type": "string", "pattern": f"^{VERSION_PATTERN}$"},
            "Version of the confidential VM: X.Y.Z, optionally @sha256:<64 hex>.",
            required=True,
            missing="write a version such as 0.14.8",
        ),
        Field(
            "cpus",
            resources.read_cpus,
            _tiers(CPU_TIERS),
            "Processors of the enclave.",
            required=True,
            missing="write the processors of the enclave, such as 2",
        ),
        Field(
            "memory",
            resources.read_memory,
            _tiers(MEMORY_TIERS),
            "Memory of the enclave in MB.",
            required=True,
            missing="write the memory of the enclave in MB, such as 8192",
        ),
        Field("gpus", resources.read_gpus, _tiers(GPU_COUNTS, 0), "GPUs; left out: none."),
        Field(
            "models",
            images.read_models,
            {"type": "array", "items": {"$ref": "#/$defs/model"}, "maxItems": MAX_MODELS},
            "Verified model weights.",
        ),
        Field(
            "networks",
            networks.read_networks,
            {
                "type": "object",
                "propertyNames": {
                    "pattern": f"^{networks.NETWORK_NAME}$",
                    "not": {"const": "shim-net"},
                },
                "additionalProperties": {
                    "anyOf": [{"type": "null"}, {"$ref": "#/$defs/network"}],
                },
                "maxProperties": MAX_NETWORKS,
            },
            "Networks by name; version 0.10.0 or newer.",
        ),
        Field(
            "containers",
            containers.read_containers,
            {
                "type": "array",
                "items": {"$ref": "#/$defs/container"},
                "minItems": 1,
                "maxItems": MAX_CONTAINERS,
            },
            "The containers of the enclave.",
            required=True,
            missing="list at least one container",
        ),
        Field(
            "shim",
            shim.read_shim,
            {"$ref": "#/$defs/shim"},
            "The way in from the internet.",
            required=True,
            missing="write upstream-port and paths under it",
        ),
    ),
    refused={key: ("NotSupported", f"{key} {LATER}") for key in ("attested-keys", "volumes")},
    ignored={
        "cvm-network": f"cvm-network {NOTHING}",
        "shim-version": f"shim-version {NOTHING}",
        "ovmf-version": f"ovmf-version {NOTHING}",
        "keyserver-url": "keyserver-url has no effect here: secrets come from the platform, "
        "remove it",
    },
    hints={
        "services": "write containers, as a list",
        "version": "write cvm-version",
        "secrets": "name secrets under each container",
    },
)
"""The keys of the file."""


def validate(root: Node, report: ProblemReport) -> ServiceConfig | None:
    """Validate a document by all rules.

    Returns
    -------
    ServiceConfig | None
        The normalised form; None where the report must say why. It must be
        used only when the report has no error.
    """
    spot = Spot(root, "", report)
    _look_ahead(spot)
    top = read_section(spot, FILE)
    if top is None:
        return None
    sections: tuple[Section, ...] = top.get("containers", ())
    # Rules that compare sections run after all sections were read.
    networks.check_version(top)
    containers.check_names(sections)
    for container in sections:
        containers.check_container(container, top)
    resources.check_gpu_use(top, sections)
    networks.check_network_use(top, sections)
    built_models = images.check_models(top.get("models", ()))
    way_in: Section | None = top.get("shim")
    names = [container.get("name") for container in sections]
    built_shim = shim.check_shim(way_in, names) if way_in else {}
    # The model is only built from a file without errors: it has no form for a wrong value.
    if any(problem.severity == "error" for problem in report.problems):
        return None
    values = {
        **top.values,
        "models": built_models,
        "containers": [containers.container_values(container) for container in sections],
        "shim": built_shim,
    }
    return ServiceConfig.model_validate(values)


def _look_ahead(spot: Spot) -> None:
    """Find what rules of earlier keys need from later ones: the version and the memory."""
    if not isinstance(spot.node, Mapping):
        return
    texts = {key.text: spot.child(key, value).raw for key, value in spot.node.entries}
    version = re.fullmatch(VERSION_PATTERN, texts.get("cvm-version", ""))
    if version is not None:
        spot.report.version = (int(version[1]), int(version[2]), int(version[3]))
    memory = texts.get("memory", "")
    if re.fullmatch(r"[1-9][0-9]{0,8}", memory):
        spot.report.memory = int(memory) * MEGABYTE
