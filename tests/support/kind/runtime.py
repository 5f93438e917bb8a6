#!/usr/bin/env python3
"""Runs runc without what a machine whose root lacks CAP_SYS_RESOURCE refuses.

Docker gives a privileged container every capability that there is, and limits above those of its
own daemon. As Docker's runtime this takes both out of what runc is told, and becomes runc.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

__all__ = ["bounded"]

CAPABILITY = "CAP_SYS_RESOURCE"


def bounded(process: dict[str, Any]) -> dict[str, Any]:
    """Return a process that this machine may start (OCI runtime specification)."""
    capabilities = {
        kind: [each for each in names if each != CAPABILITY]
        for kind, names in (process.get("capabilities") or {}).items()
    }
    kept = {key: value for key, value in process.items() if key not in {"rlimits", "oomScoreAdj"}}
    return kept | {"capabilities": capabilities}


def main(arguments: list[str]) -> None:
    """Rewrite the file that a command of runc reads, and run the command."""
    if "--process" in arguments:
        path = Path(arguments[arguments.index("--process") + 1])
        path.write_text(json.dumps(bounded(json.loads(path.read_text()))))
    elif "--bundle" in arguments:
        path = Path(arguments[arguments.index("--bundle") + 1], "config.json")
        spec = json.loads(path.read_text())
        path.write_text(json.dumps(spec | {"process": bounded(spec["process"])}))
    os.execvp("runc", ["runc", *arguments])


if __name__ == "__main__":
    main(sys.argv[1:])
