"""What identifies an Enclave: the measurement, and where the Pod tells of it."""

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
    "measurement_of",
    "node_socket",
]

DEFAULT_SERVICE = "http://127.0.0.1:8006"
"""Where the REST server of the guest components answers in a machine of the Pod's own."""
_SOCKET = "unix://"

MEASUREMENT_ANNOTATION = "cloister.dev/measurement"
"""Annotation of the Pod: digest of the measurement document that it was made from."""
INITDATA_ANNOTATION = "cloister.dev/initdata"
"""Annotation of the Pod: digest of its initdata, with the algorithm."""


def measurement_of(plan: EnclavePlan, settings: BuildSettings) -> Measurement:
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
    """Return the annotations of the Pod: for whoever judges it, and for the runtime."""
    told = {MEASUREMENT_ANNOTATION: measurement.digest}
    if measurement.initdata is not None:
        told |= {
            INITDATA_ANNOTATION: measurement.initdata.digest,
            ANNOTATION: measurement.initdata.annotation,
        }
    return told


def attestation_document(plan: EnclavePlan, settings: BuildSettings, folder: str) -> dict[str, Any]:
    """Write what the agent makes attestation documents from.

    Parameters
    ----------
    plan
        The Enclave, its file and its Host.
    settings
        What the administrator says about every enclave.
    folder
        Where the agent finds the published measurement.

    Returns
    -------
    dict[str, Any]
        ``attestation`` of the document of ``guest agent``.
    """
    host, measurement = plan.host.spec, measurement_of(plan, settings)
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
    """Return the socket of the node's attestation service; None = the enclave asks none."""
    service = plan.host.spec.attestation_service or ""
    return service.removeprefix(_SOCKET) if service.startswith(_SOCKET) else None
