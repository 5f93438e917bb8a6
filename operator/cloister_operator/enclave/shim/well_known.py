"""The shim's routes to the agent: the well-known paths, and everything while the enclave boots.

The agent marks a complete boot with a file: no request waits for another process.
"""

import re
from typing import Any

__all__ = ["booting_matcher", "well_known_matcher", "well_known_routes"]

_SOCKET = "agent.sock"
_BOOTED = "booted"
_SUFFIXES = ("attestation", "boot-stages", "certificate", "containers", "metrics")


def well_known_matcher(service: str) -> dict[str, Any]:
    """Return the matcher of the paths that the agent serves."""
    suffixes = "|".join(_SUFFIXES)
    pattern = rf"^/\.well-known/(metrics|{re.escape(service)}-({suffixes}))(\?|$)"
    return {"vars_regexp": {"{http.request.uri}": {"pattern": pattern}}}


def booting_matcher(directory: str) -> dict[str, Any]:
    """Return the matcher of every request before the boot is complete."""
    return {"not": [{"file": {"root": directory, "try_files": [_BOOTED]}}]}


def well_known_routes(service: str, directory: str) -> list[dict[str, Any]]:
    """Return the routes to the agent; what matches goes nowhere else.

    Returns
    -------
    list[dict[str, Any]]
        Two routes of Caddy's.
    """
    to_agent = [_proxy(directory)]
    return [
        {"match": [well_known_matcher(service)], "handle": to_agent, "terminal": True},
        {"match": [booting_matcher(directory)], "handle": to_agent, "terminal": True},
    ]


def _proxy(directory: str) -> dict[str, Any]:
    """Return the handler that passes a request to the agent."""
    return {"handler": "reverse_proxy", "upstreams": [{"dial": f"unix/{directory}/{_SOCKET}"}]}
