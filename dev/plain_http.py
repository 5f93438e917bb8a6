"""TLS trust of clients that use plain HTTP only."""

import ssl
from typing import Final

NO_TRUST: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""An SSL context without authorities, as ``verify`` of clients that never use TLS.

Without it httpx reads the system's CA certificates for each client, which takes 40 ms of CPU
time: polling ten times a second would take half a core.
"""
