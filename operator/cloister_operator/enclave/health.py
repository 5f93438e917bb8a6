"""A healthcheck of the file as an exec probe of the kubelet.

The probe decides readiness alone: an unhealthy container is never restarted for it.
"""

import math
from datetime import timedelta
from typing import Any

from cloister_crds.config import Healthcheck

__all__ = ["is_rounded", "readiness_probe"]

_SHELL = ("/bin/sh", "-c")
"""How Docker runs CMD-SHELL."""


def readiness_probe(check: Healthcheck | None) -> dict[str, Any] | None:
    """Build the probe.

    Parameters
    ----------
    check
        The healthcheck of a container; None when it has none.

    Returns
    -------
    dict[str, Any] | None
        ``readinessProbe``, or None when nothing is to be asked. ``start_period`` needs no figure
        here: it only says from when on failures count, and who counts them is the operator.
    """
    if check is None or check.disabled:
        return None
    kind, *words = check.test
    command = [*_SHELL, *words] if kind == "CMD-SHELL" else words
    return {
        "exec": {"command": command},
        "periodSeconds": _seconds(check.interval),
        "timeoutSeconds": _seconds(check.timeout),
        "failureThreshold": check.retries,
        "successThreshold": 1,
    }


def is_rounded(check: Healthcheck) -> bool:
    """Tell whether the kubelet, which knows whole seconds, keeps other figures than the file's."""
    return any(
        timedelta(seconds=_seconds(each)) != each for each in (check.interval, check.timeout)
    )


def _seconds(duration: timedelta) -> int:
    """Answer whole seconds, rounded up, at least one."""
    return max(1, math.ceil(duration.total_seconds()))
