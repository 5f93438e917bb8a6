"""What debug containers wrote."""

from cloister_api.schemas.forms import Omittable, ResponseBody, Timestamp


class LogLineResponse(ResponseBody):
    """A line that a container wrote."""

    at: Omittable[Timestamp] = None
    """When it was written; absent for a further part of a line that was divided."""
    text: str
    """The line; bytes that are not UTF-8 are replaced."""


class ContainerLogsResponse(ResponseBody):
    """What a container of a debug enclave wrote last."""

    enclave: str
    """Name of the enclave."""
    container: str
    """Name of the container in the file."""
    lines: list[LogLineResponse]
    """Its lines, oldest first."""
    truncated: bool
    """Whether lines are missing at the end, as together they are longer than is read."""
