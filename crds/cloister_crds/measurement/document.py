"""The measurement document: everything that makes one enclave another than its neighbour.

What is not in it is not part of an enclave's identity: host names, deploy-time variables, values of
secrets, where it runs.
"""

import json
from typing import Annotated, Final, Literal

from pydantic import Field

from cloister_crds.kinds.host import TEE, NetworkIsolation, TEEUnit
from cloister_crds.kinds.meta import Model
from cloister_crds.kinds.scalars import Count, Flag

__all__ = [
    "DOCUMENT_VERSION",
    "MeasuredContainer",
    "MeasuredHost",
    "MeasuredSizing",
    "MeasurementDocument",
    "canonical",
]

DOCUMENT_VERSION: Final = "cloister.dev/measurement/v2"
"""Version of the document; a change of its fields or of their meaning gives another one."""


class MeasuredContainer(Model):
    """A container of the file."""

    name: str
    """name in the file."""
    image: str
    """image with its digest, as the file writes it."""


class MeasuredSizing(Model):
    """What of the Host's sizing the machine of an enclave is made of."""

    overhead_cpu_milli: Count
    """overheadCpuMilli of the Host."""
    overhead_memory_mb: Count = Field(alias="overheadMemoryMB")
    """overheadMemoryMB of the Host."""


class MeasuredHost(Model):
    """What of the Host is part of the identity."""

    tee: TEE
    """tee of the machine; None if there is no TEE, also where a debug enclave switched it off."""
    tee_unit: TEEUnit | None = None
    """teeUnit: Pod or Node; absent without a TEE."""
    runtime_class_name: str | None = None
    """runtimeClassName of the Pod; absent = the node's default."""
    network_isolation: NetworkIsolation
    """networkIsolation: Container or Pod."""
    sizing: MeasuredSizing
    """sizing: what the Pod gets in addition to the cpus and memory of the file. The hardware
    measures the number of processors."""
    gpu_resource: str | None = None
    """gpuResource that the enclave's GPUs are of; absent without GPUs, and with gpuDeviceClass."""
    gpu_device_class: str | None = None
    """gpuDeviceClass that the enclave's GPUs are of; absent without GPUs, and with gpuResource."""
    initdata: dict[str, str] = Field(default_factory=dict)
    """initdata: digests of the Host's initdata files, by name."""


class MeasurementDocument(Model):
    """The document. Its digest is the SHA-256 of its canonical form."""

    version: Literal["cloister.dev/measurement/v2"] = DOCUMENT_VERSION
    """version of the document."""
    service: str
    """service names the mount and the well-known paths in the enclave."""
    config_digest: str
    """configDigest: ``sha256:`` and the hash of the configuration file's bytes."""
    containers: Annotated[tuple[MeasuredContainer, ...], Field(min_length=1)]
    """containers of the file, in its order."""
    documents: dict[str, str] = Field(default_factory=dict)
    """documents by which the parts of the enclave work: their digests, by name."""
    guest_image: str
    """guestImage with its digest: the program in front of every container."""
    shim_image: str
    """shimImage with its digest: the way in."""
    debug: Flag
    """debug: whether people may log in. A debug enclave never has the identity of another."""
    gpus: Count
    """gpus of the enclave: what the request names, else the file's."""
    host: MeasuredHost
    """host: what of the Host counts."""


def canonical(document: MeasurementDocument) -> bytes:
    """Write a document in the one form whose hash counts.

    Returns
    -------
    bytes
        JSON as RFC 8785 wants it: UTF-8, keys in order, no space. The document holds no fractions
        and its keys are ASCII, so that nothing else of that RFC applies.
    """
    return json.dumps(
        document.wire(), ensure_ascii=False, separators=(",", ":"), sort_keys=True
    ).encode()
