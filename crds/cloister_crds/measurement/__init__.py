"""What identifies an enclave: its measurement document, and the initdata that hardware measures.

Pure: the operator, the facade and ``cloister config measure`` get the same bytes from the same
inputs. `docs/measurement.md` documents for an auditor how to recompute them.
"""

from cloister_crds.measurement.document import (
    DOCUMENT_VERSION,
    MeasuredContainer,
    MeasuredHost,
    MeasurementDocument,
    canonical,
)
from cloister_crds.measurement.enclave import (
    INITDATA_FILE,
    PUBLISHED,
    Measurement,
    PlatformImages,
    Publication,
    entries,
    measure,
    published,
)
from cloister_crds.measurement.initdata import (
    Initdata,
    digest_of,
    field_value,
    initdata_text,
    to_annotation,
)

__all__ = [
    "DOCUMENT_VERSION",
    "INITDATA_FILE",
    "PUBLISHED",
    "Initdata",
    "MeasuredContainer",
    "MeasuredHost",
    "Measurement",
    "MeasurementDocument",
    "PlatformImages",
    "Publication",
    "canonical",
    "digest_of",
    "entries",
    "field_value",
    "initdata_text",
    "measure",
    "published",
    "to_annotation",
]
