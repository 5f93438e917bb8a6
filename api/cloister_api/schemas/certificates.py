"""Body of the certificate endpoint (spec 26.1)."""

from typing import Annotated

from pydantic import StringConstraints

from cloister_api.schemas.request import RequestBody

__all__ = ["SignCertificateRequest"]


class SignCertificateRequest(RequestBody):
    """What an enclave sends."""

    csr: Annotated[str, StringConstraints(min_length=1, max_length=16_384)]
    """Certificate signing request, one PEM block."""
