"""What identifies an Enclave: the measurement, and where the Pod tells of it."""

from cloister_crds.measurement import Measurement, PlatformImages, measure
from cloister_crds.measurement.initdata import ANNOTATION
from cloister_operator.enclave.plan import BuildSettings, EnclavePlan

__all__ = ["INITDATA_ANNOTATION", "MEASUREMENT_ANNOTATION", "annotations", "measurement_of"]

MEASUREMENT_ANNOTATION = "cloister.dev/measurement"
"""Annotation of the Pod: digest of the measurement document that it was made from."""
INITDATA_ANNOTATION = "cloister.dev/initdata"
"""Annotation of the Pod: digest of its initdata, with the algorithm."""


def measurement_of(plan: EnclavePlan, settings: BuildSettings) -> Measurement:
    """Measure the Enclave of a plan.

    Parameters
    ----------
    plan
        The Enclave, its file and its Host.
    settings
        Names the images of the platform, and the service.
    """
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
    """Answer the annotations of the Pod: for whoever judges it, and for the runtime.

    Parameters
    ----------
    measurement
        The measurement of its Enclave.
    """
    told = {MEASUREMENT_ANNOTATION: measurement.digest}
    if measurement.initdata is not None:
        told |= {
            INITDATA_ANNOTATION: measurement.initdata.digest,
            ANNOTATION: measurement.initdata.annotation,
        }
    return told
