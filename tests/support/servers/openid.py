"""A certified OpenID provider as a process: the example server of zitadel/oidc, with its own page.

It gives e-mail from UserInfo alone, and for an address that was not verified it leaves out
``email_verified``.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urljoin

import httpx

from dev.cluster.binaries import binary
from dev.plain_http import NO_TRUST
from tests.support.ports import free_port
from tests.support.waiting import until_sync

__all__ = ["CLIENT", "PASSWORD", "SECRET", "OpenIdProvider", "openid_provider"]

CLIENT, SECRET = "web", "secret"
"""The confidential client of the example, and its secret."""
PASSWORD = "made-up"
"""Password of everybody."""


@dataclass
class OpenIdProvider:
    """A running provider."""

    folder: Path
    """Its files."""
    port: int
    """Its port."""
    redirect: str
    """Address to which it sends browsers back."""
    people: dict[str, tuple[str, bool]]
    """User name -> e-mail address, and whether that was verified."""
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    """The process while it runs."""

    @property
    def issuer(self) -> str:
        """Its issuer."""
        return f"http://localhost:{self.port}/"

    def start(self) -> None:
        """Start it with keys of its own, and wait until it responds."""
        users = {
            f"id-{name}": {
                "ID": f"id-{name}",
                "Username": name,
                "Password": PASSWORD,
                "Email": email,
                "EmailVerified": verified,
            }
            for name, (email, verified) in self.people.items()
        }
        file = self.folder / "users.json"
        file.write_text(json.dumps(users))
        given = {
            "PORT": str(self.port),
            "USERS_FILE": str(file),
            "REDIRECT_URI": self.redirect,
        }
        with (self.folder / "provider.log").open("ab") as log:
            self.process = subprocess.Popen(
                [str(binary("openid-provider"))],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **given},
            )
        until_sync(self._answers, what="the OpenID provider")

    def stop(self) -> None:
        """Stop it; idempotent."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(20)
            self.process = None

    def _answers(self) -> bool:
        with contextlib.suppress(httpx.TransportError):
            address = f"{self.issuer}.well-known/openid-configuration"
            return httpx.get(address, verify=NO_TRUST).status_code == 200
        return False

    async def sign_in(self, address: str, name: str) -> str:
        """Sign somebody in as a browser does, and return where it is sent back."""
        async with httpx.AsyncClient(verify=NO_TRUST, follow_redirects=True, timeout=60) as browser:
            page = await browser.get(address)
            assert page.status_code == 200, page.text
            given = re.search(r'name="id" value="([^"]+)"', page.text)
            assert given is not None, page.text
            form = {"username": name, "password": PASSWORD, "id": given[1]}
            sent = str(page.url.copy_with(query=None))
            response = await browser.post(sent, data=form, follow_redirects=False)
            while response.is_redirect:
                to = urljoin(str(response.url), response.headers["location"])
                if to.startswith(self.redirect):
                    return to
                response = await browser.get(to, follow_redirects=False)
            raise AssertionError(f"{name} was not signed in: {response.text}")


@contextlib.contextmanager
def openid_provider(
    folder: Path, redirect: str, people: dict[str, tuple[str, bool]]
) -> Iterator[OpenIdProvider]:
    """Run a provider until the block ends.

    Parameters
    ----------
    people
        User name -> e-mail address, and whether that was verified.
    """
    provider = OpenIdProvider(folder, free_port(), redirect, people)
    provider.start()
    try:
        yield provider
    except BaseException:
        sys.stderr.write((folder / "provider.log").read_text()[-4000:])
        raise
    finally:
        provider.stop()
