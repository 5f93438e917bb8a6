"""What routes say of themselves for the description of the API (`cloister_api.openapi`).

A route names the form of its success and those errors that are its own. What every operation can
answer, because of the gate in front of it or because it has a body, is added to all of them by
`cloister_api.openapi.document`.
"""

from typing import Annotated, Any

from fastapi import Path, Query

from cloister_api.schemas.answers import Error
from cloister_api.usage.windows import WINDOWS

__all__ = ["ContainerId", "DeploymentId", "Named", "OptionalTime", "Time", "says"]

ContainerId = Annotated[
    str, Path(description="Identifier of the container.", json_schema_extra={"format": "uuid"})
]
DeploymentId = Annotated[
    str, Path(description="Identifier of the deployment.", json_schema_extra={"format": "uuid"})
]
Named = Annotated[str, Path(description="Its name.", min_length=1)]
_WINDOW = "Window that ends now."
Time = Annotated[str, Query(description=_WINDOW, json_schema_extra={"enum": list(WINDOWS)})]
"""A window; judged by the route, so that the error names the windows."""
OptionalTime = Annotated[
    str | None,
    Query(
        description=_WINDOW,
        json_schema_extra={"type": "string", "enum": list(WINDOWS), "anyOf": None},
    ),
]
"""A window, or nothing."""


def says(model: Any, *errors: int, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """Describe what a route answers.

    Parameters
    ----------
    model
        Form of its success; None = no body.
    errors
        Statuses of errors that are its own.
    status
        Status of its success.
    """
    success: dict[str, Any] = {} if model is None else {"model": model}
    return {status: success, **{error: {"model": Error} for error in errors}}
