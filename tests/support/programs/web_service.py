"""A small web service for enclaves on a real node: image, configuration files, and requests."""

from collections.abc import Mapping
from typing import Any

from dev.cluster.images import busybox_image, guest_image, push, shim_image
from dev.demo.https_client import Page, fetch_page
from tests.support.programs.operator import Installation, file_text
from tests.support.waiting import until_sync

__all__ = ["HEALTHCHECK", "STOP_TIMEOUT", "PageServices", "page_file"]

HEALTHCHECK = {
    "test": ["CMD-SHELL", "wget -q -O /dev/null http://127.0.0.1:8080/"],
    "interval": "1s",
    "timeout": "5s",
    "retries": 20,
}
"""A healthcheck that fetches the page."""
STOP_TIMEOUT = 1
"""Seconds that a container has to stop: BusyBox's programs ignore the stop signal as process 1, so
that the usual ten would pass at the end of each Pod."""


def page_file(
    image: str, text: str, *, shim: Mapping[str, Any] | None = None, **container: Any
) -> bytes:
    """Write a configuration file whose one container serves a page."""
    script = (
        f"mkdir -p /tmp/w && echo '{text}' > /tmp/w/index.html && exec httpd -f -p 8080 -h /tmp/w"
    )
    keys: dict[str, Any] = {
        "command": ["sh", "-c", script],
        "tmpfs": {"/tmp": "size=8m"},
        "healthcheck": HEALTHCHECK,
        "stop_timeout": STOP_TIMEOUT,
        **container,
    }
    return file_text(image, shim=shim, **keys)


class PageServices:
    """Images in a cluster's registry, and requests through its Services."""

    def __init__(self, cluster: Any) -> None:
        self.web = push(busybox_image(), cluster.registry, "tests/web")
        """Image of the page."""
        self.shim = push(shim_image(), cluster.registry, "tests/shim")
        """Image of the shim."""
        self.guest = push(guest_image(), cluster.registry, "tests/guest")
        """Image of the guest."""

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of an operator that uses these images."""
        return {"shimImage": self.shim, "guestImage": self.guest}

    def fetch_page(
        self,
        installation: Installation,
        name: str,
        path: str = "/",
        *,
        authority: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Page | None:
        """Fetch a path of a Container through its Service; None = no response.

        Parameters
        ----------
        authority
            CA certificate to verify its certificate with, PEM; None = do not verify.
        """
        container = installation.container(name)
        services = installation.objects("services")
        addresses = [
            each["spec"]["clusterIP"] for each in services if each["metadata"]["name"] == name
        ]
        if container is None or not addresses:
            return None
        try:
            host = container.status.domain
            return fetch_page(addresses[0], 443, host, path, authority=authority, headers=headers)
        except OSError:
            return None

    def await_page(
        self,
        installation: Installation,
        name: str,
        path: str = "/",
        *,
        headers: Mapping[str, str] | None = None,
    ) -> Page:
        """Fetch a path of a Container that has just become ready.

        The node's kube-proxy follows the EndpointSlice of a Service, and may be behind the status.

        Parameters
        ----------
        installation, name, path, headers
            As in `fetch_page`.

        Raises
        ------
        AssertionError
            When there is no response in time.
        """
        page = until_sync(
            lambda: self.fetch_page(installation, name, path, headers=headers),
            what=f"a response of {name} at {path}",
        )
        assert page is not None
        return page
