"""Trust of clients that speak plain HTTP."""

import ssl
from typing import Final

__all__ = ["NO_TRUST"]

NO_TRUST: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Trusts no authority, as ``verify`` of clients that never speak TLS.

Without it httpx reads the authorities of the system for each client, which takes 40 ms of processor
time: a wait that asks ten times a second would take half a core.
"""
