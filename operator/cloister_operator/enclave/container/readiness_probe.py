"""A healthcheck of the file as the kubelet's readiness probe: the guest runs it when it is due.

The guest follows the times and counts of the file; the kubelet only calls it often enough, and
reports the result as readiness. An unhealthy container is never restarted for it.
"""

import math
from datetime import timedelta
from typing import Any

from cloister_crds.config import Healthcheck

__all__ = ["is_rounded", "readiness_probe"]

_ROUNDS = 6
"""Calls of the guest in one interval, so that a check is at most a sixth of it late."""
_LONGEST_PERIOD = 5
"""Seconds between two calls at most."""
_GUEST_TIME = 4
"""Seconds beyond the check's own timeout that the guest may need: it kills a check that takes too
long, and waits until it has exited."""
_SECOND = timedelta(seconds=1)


def readiness_probe(check: Healthcheck | None, command: list[str]) -> dict[str, Any] | None:
    """Build the probe.

    Parameters
    ----------
    check
        The healthcheck of a container; None when it has none.
    command
        How the guest is called.

    Returns
    -------
    dict[str, Any] | None
        ``readinessProbe``, or None without a healthcheck. One result of the guest decides, since
        the guest itself counts the retries.
    """
    if check is None or check.disabled:
        return None
    return {
        "exec": {"command": command},
        "periodSeconds": max(1, min(_LONGEST_PERIOD, check.interval // (_ROUNDS * _SECOND))),
        "timeoutSeconds": math.ceil(check.timeout.total_seconds()) + _GUEST_TIME,
        "failureThreshold": 1,
    }


def is_rounded(check: Healthcheck) -> bool:
    """Return whether checks run less often than the file sets: the kubelet calls once a second."""
    return check.interval < _SECOND
