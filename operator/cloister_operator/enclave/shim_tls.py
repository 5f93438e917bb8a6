"""The shim's certificates: those that ``guest certificate`` renews, or an authority of its own.

The sidecar's certificates are found through Caddy's certificate storage, as if another instance
of Caddy that shares the storage had renewed them: Caddy checks there before it would renew by
itself, and loads what is newer without touching a connection. A reload of the configuration would
close idle connections and WebSockets. Source: Caddy, "Automatic HTTPS", "Storage"; JSON Config
Structure, ``apps.tls.automation``.
"""

from collections.abc import Sequence
from typing import Any

__all__ = ["certificate_folder", "tls_app"]

_ISSUER = "certificate.invalid-directory"
"""Folder of an issuer in Caddy's storage: host and path of `_NOBODY`."""
_NOBODY = "https://certificate.invalid/directory"
"""An issuer that cannot be reached (RFC 6761): Caddy never gets a certificate by itself."""
_RENEW_INTERVAL = "10s"
"""Time between two checks for certificates that expire soon."""
_RENEWAL_WINDOW = 0.3
"""Remaining part of a certificate's lifetime in which the storage is checked. The sidecar renews
when a third is left."""


def certificate_folder(storage: str) -> str:
    """Return the folder in Caddy's storage with a folder for each name.

    Parameters
    ----------
    storage
        Root of the storage.
    """
    return f"{storage}/certificates/{_ISSUER}"


def tls_app(hostnames: Sequence[str], storage: str | None) -> dict[str, Any]:
    """Build the certificates part of the configuration.

    Parameters
    ----------
    hostnames
        Host names of the enclave.
    storage
        Root of the storage that ``guest certificate`` fills; None = Caddy signs by an authority of
        its own, which no client knows.

    Returns
    -------
    dict[str, Any]
        ``apps.tls``. With a storage nothing else is ever served: without its certificate no
        handshake succeeds.
    """
    names = list(hostnames)
    if storage is None:
        policy: dict[str, Any] = {"subjects": names, "issuers": [{"module": "internal"}]}
        return {"certificates": {"automate": names}, "automation": {"policies": [policy]}}
    policy = {
        "subjects": names,
        "issuers": [{"module": "acme", "ca": _NOBODY}],
        "storage": {"module": "file_system", "root": storage},
        "renewal_window_ratio": _RENEWAL_WINDOW,
        "disable_ocsp_stapling": True,
    }
    return {
        "certificates": {"automate": names},
        "automation": {"policies": [policy], "renew_interval": _RENEW_INTERVAL},
        "disable_storage_check": True,
        "disable_storage_clean": True,
    }
