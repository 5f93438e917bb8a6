"""The token of an enclave: a token of its Pod's account, which the kubelet mounts and renews.

The kubelet requests it for the audience that the Pod names, and the API server signs which Pod it
is of. The audience contains the Enclave's uid, so that a token is of one Enclave and no other use.
"""

__all__ = ["ACCOUNT", "AUDIENCES", "token_audience"]

ACCOUNT = "default"
"""ServiceAccount that Pods of enclaves run as; it has no rights, and its tokens grant none."""
AUDIENCES = "certificates.cloister.dev/"
"""What every audience of such tokens begins with; the admission policies name it too."""


def token_audience(enclave_uid: str) -> str:
    """Return the audience of an Enclave's token."""
    return AUDIENCES + enclave_uid
