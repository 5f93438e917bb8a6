"""How the client authenticates: bearer token, token file, exec plugin.

Used by `cloister_clients.kube.config`. Client certificates are part of the TLS context and stand
there. No secret of these classes shows in their ``repr``.
"""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import msgspec

from cloister_clients.clock import Clock, utc_now

__all__ = [
    "Anonymous",
    "CredentialError",
    "ExecPlugin",
    "StaticToken",
    "TokenFile",
    "TokenSource",
]

EXEC_API = "client.authentication.k8s.io/v1"
EXEC_TIMEOUT = 60.0
"""Seconds until an exec plugin is given up."""
TOKEN_FILE_LIFE = timedelta(seconds=60)
"""How long a token file's content is used; kubelet replaces it well before it expires."""
EXPIRY_MARGIN = timedelta(seconds=30)
"""A plugin's token is requested again this long before it expires."""


class CredentialError(Exception):
    """The credentials could not be had; the message says which file or program failed."""


class TokenSource(Protocol):
    """Source of the Authorization header."""

    async def token(self) -> str | None:
        """Return the bearer token to send; None if there is none."""

    def forget(self) -> None:
        """Drop what is cached: the server responded with 401."""


class Anonymous:
    """No token: a client certificate, or nobody."""

    async def token(self) -> str | None:
        """Return None."""
        return None

    def forget(self) -> None:
        """Do nothing: there is nothing remembered."""


@dataclass(slots=True)
class StaticToken:
    """A token written in the configuration."""

    value: str = field(repr=False)
    """The token."""

    async def token(self) -> str | None:
        """Return the token."""
        return self.value

    def forget(self) -> None:
        """Do nothing: there is no newer token anywhere."""


@dataclass(slots=True)
class TokenFile:
    """A token in a file that is replaced from time to time (a service account's)."""

    path: Path
    """The file."""
    clock: Clock = utc_now
    """Decides when to read it again."""
    _value: str = field(default="", repr=False)
    _read_at: datetime | None = None

    async def token(self) -> str | None:
        """Return the token, read again once a minute.

        Raises
        ------
        CredentialError
            When the file cannot be read or is empty.
        """
        now = self.clock()
        if self._read_at is None or now - self._read_at > TOKEN_FILE_LIFE:
            try:
                value = self.path.read_text(encoding="utf-8").strip()
            except OSError as error:
                raise CredentialError(f"token file {self.path}: {error.strerror}") from error
            if not value:
                raise CredentialError(f"token file {self.path} is empty")
            self._value, self._read_at = value, now
        return self._value

    def forget(self) -> None:
        """Read the file again for the next request."""
        self._read_at = None


@dataclass(slots=True)
class ExecPlugin:
    """A program that prints an ExecCredential (Kubernetes, "client-go credential plugins")."""

    command: str
    """Program to run; a path with a slash is relative to the kubeconfig's directory."""
    args: tuple[str, ...] = ()
    """Its arguments."""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What is added to its environment."""
    api_version: str = EXEC_API
    """Version of the ExecCredential that it speaks."""
    install_hint: str = ""
    """Sentence of the kubeconfig for users who do not have the program."""
    clock: Clock = utc_now
    """Decides whether a token has expired."""
    _value: str = field(default="", repr=False)
    _expires: datetime | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)

    async def token(self) -> str | None:
        """Return the plugin's token, requested again shortly before it expires.

        Raises
        ------
        CredentialError
            When the program is missing, fails, takes too long or prints something else.
        """
        async with self._lock:
            expired = self._expires is not None and self.clock() >= self._expires - EXPIRY_MARGIN
            if not self._value or expired:
                self._value, self._expires = read_credential(await self._run(), self.api_version)
            return self._value

    def forget(self) -> None:
        """Run the plugin again for the next request."""
        self._value = ""

    async def _run(self) -> bytes:
        info = {"apiVersion": self.api_version, "kind": "ExecCredential", "spec": {}}
        # A service has no terminal, so a plugin must not prompt.
        info["spec"] = {"interactive": False}
        env = {**os.environ, **self.env, "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()}
        try:
            process = await asyncio.create_subprocess_exec(
                self.command,
                *self.args,
                env=env,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            hint = f"; {self.install_hint}" if self.install_hint else ""
            raise CredentialError(
                f"exec plugin {self.command!r} did not start: {error.strerror}{hint}"
            ) from error
        try:
            async with asyncio.timeout(EXEC_TIMEOUT):
                out, err = await process.communicate()
        except BaseException as error:
            process.kill()
            # Also when the caller is cancelled: a process left behind would stay a zombie.
            await process.wait()
            if isinstance(error, TimeoutError):
                raise CredentialError(
                    f"exec plugin {self.command!r} did not finish within {EXEC_TIMEOUT:.0f} s"
                ) from error
            raise
        if process.returncode != 0:
            text = err.decode(errors="replace").strip()[-500:]
            raise CredentialError(
                f"exec plugin {self.command!r} exited with {process.returncode}: {text}"
            )
        return out


def read_credential(output: bytes, api_version: str) -> tuple[str, datetime | None]:
    """Read the ExecCredential that a plugin printed.

    Returns
    -------
    tuple
        Token, and when it expires (None if it does not say).

    Raises
    ------
    CredentialError
        When the output is not an ExecCredential with a token.
    """
    try:
        body: Any = msgspec.json.decode(output)
    except msgspec.DecodeError as error:
        raise CredentialError(
            "exec plugin did not print JSON; expected an ExecCredential"
        ) from error
    if not isinstance(body, dict) or body.get("apiVersion") != api_version:
        raise CredentialError(f"exec plugin did not print an ExecCredential of {api_version}")
    status = body.get("status") or {}
    if not status.get("token"):
        raise CredentialError(
            "exec plugin gave no token; client certificates of plugins are not supported, "
            "use client-certificate and client-key of the kubeconfig"
        )
    text = status.get("expirationTimestamp")
    return str(status["token"]), datetime.fromisoformat(text) if text else None
