"""The measurement of an Enclave, and the annotations and documents that publish it."""

from typing import Any

from cloister_crds.kinds.host import DOCUMENT_FILE, TEE
from cloister_crds.measurement import INITDATA_FILE, Measurement, PlatformImages, measure
from cloister_crds.measurement.initdata import ANNOTATION
from cloister_operator.enclave.guest_config.certificate import FINGERPRINT_FILE, is_signed
from cloister_operator.enclave.plan import BuildSettings, EnclavePlan

__all__ = [
    "DEFAULT_SERVICE",
    "INITDATA_ANNOTATION",
    "MEASUREMENT_ANNOTATION",
    "annotations",
    "attestation_document",
    "measure_enclave",
    "node_socket",
]

DEFAULT_SERVICE = "http://127.0.0.1:8006"
"""REST server of the guest components, in a confidential virtual machine per Pod."""
_SOCKET = "unix://"

MEASUREMENT_ANNOTATION = "cloister.dev/measurement"
"""Annotation of the Pod: digest of the measurement document that it was created from."""
INITDATA_ANNOTATION = "cloister.dev/initdata"
"""Annotation of the Pod: digest of its initdata, with the algorithm."""


def measure_enclave(plan: EnclavePlan, settings: BuildSettings) -> Measurement:
    """Measure the Enclave of a plan."""
    spec = plan.enclave.spec
    return measure(
        plan.config,
        spec.config_digest,
        host=plan.host.spec,
        images=PlatformImages(guest=settings.guest_image, shim=settings.shim_image),
        service=settings.service,
        debug=spec.debug,
        gpus=spec.request.gpus,
    )


def annotations(measurement: Measurement) -> dict[str, str]:
    """Return the annotations of the Pod: for its status, and for the runtime."""
    found = {MEASUREMENT_ANNOTATION: measurement.digest}
    if measurement.initdata is not None:
        found |= {
            INITDATA_ANNOTATION: measurement.initdata.digest,
            ANNOTATION: measurement.initdata.annotation,
        }
    return found


def attestation_document(plan: EnclavePlan, settings: BuildSettings, folder: str) -> dict[str, Any]:
    """Build the input of the agent's attestation documents.

    Parameters
    ----------
    plan
        The Enclave, its file and its Host.
    settings
        The administrator's settings for every enclave.
    folder
        Where the agent finds the published measurement.

    Returns
    -------
    dict[str, Any]
        ``attestation`` of the document of ``guest agent``.
    """
    host, measurement = plan.host.spec, measure_enclave(plan, settings)
    document: dict[str, Any] = {
        "tee": str(host.tee),
        "measurement": {"path": f"{folder}/{DOCUMENT_FILE}", "digest": measurement.digest},
        "gpus": measurement.document.gpus,
    }
    if is_signed(plan):
        document["key"] = FINGERPRINT_FILE
    if host.tee is not TEE.NONE:
        document["service"] = host.attestation_service or DEFAULT_SERVICE
    if measurement.initdata is not None:
        digest = measurement.initdata.digest
        document["initdata"] = {"path": f"{folder}/{INITDATA_FILE}", "digest": digest}
    return document


def node_socket(plan: EnclavePlan) -> str | None:
    """Return the socket of the node's attestation service; None = the enclave uses none."""
    service = plan.host.spec.attestation_service or ""
    return service.removeprefix(_SOCKET) if service.startswith(_SOCKET) else None
