"""The shim's rules about the agent: the well-known paths, and everything while the enclave boots.

Whether the boot is complete is a file of the agent's: no request waits for another process.
"""

import re
from typing import Any

__all__ = ["booting", "is_well_known", "well_known_routes"]

_SOCKET = "agent.sock"
_BOOTED = "booted"
_ENDS = ("attestation", "boot-stages", "containers", "metrics")


def is_well_known(service: str) -> dict[str, Any]:
    """Return the matcher of the paths that the agent answers."""
    ends = "|".join(_ENDS)
    pattern = rf"^/\.well-known/(metrics|{re.escape(service)}-({ends}))(\?|$)"
    return {"vars_regexp": {"{http.request.uri}": {"pattern": pattern}}}


def booting(directory: str) -> dict[str, Any]:
    """Return the matcher of every request before the boot is complete."""
    return {"not": [{"file": {"root": directory, "try_files": [_BOOTED]}}]}


def well_known_routes(service: str, directory: str) -> list[dict[str, Any]]:
    """Return the rules: what goes to the agent does not go on.

    Returns
    -------
    list[dict[str, Any]]
        Two routes of Caddy's.
    """
    to_agent = [_proxy(directory)]
    return [
        {"match": [is_well_known(service)], "handle": to_agent, "terminal": True},
        {"match": [booting(directory)], "handle": to_agent, "terminal": True},
    ]


def _proxy(directory: str) -> dict[str, Any]:
    """Return the handler that passes a request to the agent."""
    return {"handler": "reverse_proxy", "upstreams": [{"dial": f"unix/{directory}/{_SOCKET}"}]}
