"""Which requests with a cookie count: exactly those of the dashboard's own pages.

Source: W3C, "Fetch Metadata Request Headers"; RFC 6454 for Origin. The attribute SameSite of the
cookie is not enough: a container of a tenant may be same-site.
"""

from cloister_api.http.callers import SAFE_METHODS
from cloister_api.sessions.settings import DashboardSettings

__all__ = ["origin_refusal"]


def origin_refusal(
    settings: DashboardSettings,
    *,
    method: str,
    site: str | None,
    mode: str | None,
    destination: str | None,
    origin: str | None,
) -> str:
    """Return why a request is not of the dashboard's own pages; empty = it is.

    Parameters
    ----------
    settings
        The dashboard's address.
    method
        HTTP method.
    site, mode, destination
        Headers Sec-Fetch-Site, Sec-Fetch-Mode and Sec-Fetch-Dest; None = it has none.
    origin
        Header Origin; None = it has none.
    """
    safe = method in SAFE_METHODS
    if site is None:
        if origin == settings.address or (safe and origin is None):
            return ""
        return "the request names no page of this dashboard; open it and try again"
    if site == "same-origin" or (safe and site == "none"):
        return ""
    if safe and mode == "navigate" and destination == "document":
        return ""
    return "the request comes from a page of another address; open the dashboard and try again"
