"""Address of the API server and credentials: kubeconfig files and the Pod's service account.

Read once at start by both programs and the commands. TLS verification is always on: a kubeconfig
that switches it off is refused. Rules of the file: Kubernetes, "Organizing Cluster Access Using
kubeconfig Files"; of the Pod: "Accessing the Kubernetes API from a Pod".
"""

import base64
import binascii
import os
import ssl
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import aiohttp
import yaml

from cloister_clients.kube.credentials import (
    EXEC_API,
    Anonymous,
    ExecPlugin,
    StaticToken,
    TokenFile,
    TokenSource,
)

__all__ = ["ConfigError", "KubeConfig"]

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class ConfigError(Exception):
    """The configuration cannot be used; the message names file, entry and remedy."""


@dataclass(frozen=True)
class KubeConfig:
    """How to reach one API server as one user."""

    server: str
    """Address of the API server, such as ``https://10.0.0.1:6443``."""
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    """Trust and client certificate; None if the server speaks plain HTTP."""
    credentials: TokenSource = field(default_factory=Anonymous, repr=False)
    """Source of the bearer token."""
    namespace: str = "default"
    """Namespace of the context, or the Pod's own."""
    server_name: str | None = None
    """Name to expect in the server's certificate; None means the host of `server`."""
    proxy: str | None = None
    """Proxy to go through; None if there is none."""
    impersonate: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Impersonation headers of the user entry."""
    connector: Callable[..., aiohttp.BaseConnector] = field(
        default=aiohttp.TCPConnector, repr=False
    )
    """Makes the pool of connections, from the keyword arguments of aiohttp's own."""

    @classmethod
    def load(cls, path: Path | None = None, context: str | None = None) -> Self:
        """Read the configuration that applies.

        Parameters
        ----------
        path
            A kubeconfig file; None means $KUBECONFIG, else the Pod's service account, else
            ``~/.kube/config``.
        context
            Context of the file; None means its current one.

        Raises
        ------
        ConfigError
            When nothing is found or what is found cannot be used.
        """
        if path is not None:
            return cls.from_file(path, context)
        named = os.environ.get("KUBECONFIG")
        if named:
            return cls.from_file(first_existing(named), context)
        if os.environ.get("KUBERNETES_SERVICE_HOST"):
            return cls.in_cluster()
        home = Path.home() / ".kube" / "config"
        if home.exists():
            return cls.from_file(home, context)
        raise ConfigError(
            "no Kubernetes configuration: name a kubeconfig file (setting or $KUBECONFIG), or run "
            "inside a Pod with a service account"
        )

    @classmethod
    def in_cluster(
        cls, directory: Path = SERVICE_ACCOUNT, environ: Mapping[str, str] | None = None
    ) -> Self:
        """Read the Pod's service account.

        Parameters
        ----------
        environ
            Environment with KUBERNETES_SERVICE_HOST and _PORT; None means the process's.

        Raises
        ------
        ConfigError
            When the process does not run in a Pod or the account is not mounted.
        """
        environ = os.environ if environ is None else environ
        host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
        token, authority = directory / "token", directory / "ca.crt"
        if not host or not port or not token.exists():
            raise ConfigError(
                "not in a Pod with a service account: KUBERNETES_SERVICE_HOST or "
                f"{token} is missing"
            )
        namespace = directory / "namespace"
        return cls(
            server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
            tls=tls_context(read_file(authority), None, None, where=str(authority)),
            credentials=TokenFile(token),
            namespace=namespace.read_text().strip() if namespace.exists() else "default",
        )

    @classmethod
    def from_file(cls, path: Path, context: str | None = None) -> Self:
        """Read a kubeconfig file.

        Raises
        ------
        ConfigError
            When the file or an entry of it is missing, malformed or unsafe.
        """
        try:
            document = yaml.safe_load(read_file(path))
        except yaml.YAMLError as error:
            raise ConfigError(f"{path}: not YAML: {error}") from error
        if not isinstance(document, dict):
            raise ConfigError(f"{path}: not a kubeconfig file")
        name = context or document.get("current-context")
        if not name:
            raise ConfigError(f"{path}: no current-context; name a context")
        chosen = entry(document, "contexts", "context", name, path)
        cluster = entry(document, "clusters", "cluster", chosen.get("cluster"), path)
        user = entry(document, "users", "user", chosen["user"], path) if "user" in chosen else {}
        # Before anything of the entry is read: settings that switch verification off are not used.
        refuse_unsafe(cluster, user, path)
        server = cluster.get("server")
        if not server:
            raise ConfigError(f"{path}: cluster {chosen.get('cluster')!r} has no server")
        return cls(
            server=str(server).rstrip("/"),
            tls=context_of(cluster, user, path) if server.startswith("https://") else None,
            credentials=credentials_of(user, path),
            namespace=chosen.get("namespace") or "default",
            server_name=cluster.get("tls-server-name"),
            proxy=cluster.get("proxy-url"),
            impersonate=impersonation_of(user),
        )


def first_existing(named: str) -> Path:
    """Return the first existing file of a $KUBECONFIG list.

    Raises
    ------
    ConfigError
        When none exists.
    """
    paths = [Path(part) for part in named.split(os.pathsep) if part]
    for path in paths:
        if path.exists():
            return path
    raise ConfigError(f"$KUBECONFIG names no existing file: {named}")


def read_file(path: Path) -> bytes:
    """Return the bytes of a file.

    Raises
    ------
    ConfigError
        When it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error


def entry(
    document: dict[str, Any], section: str, key: str, name: object, path: Path
) -> dict[str, Any]:
    """Return the named entry of a section.

    Raises
    ------
    ConfigError
        When no entry has that name.
    """
    for item in document.get(section) or []:
        if isinstance(item, dict) and item.get("name") == name:
            return dict(item.get(key) or {})
    raise ConfigError(f"{path}: {section} has no entry {name!r}")


def refuse_unsafe(cluster: dict[str, Any], user: dict[str, Any], path: Path) -> None:
    """Refuse what the client does not do.

    Raises
    ------
    ConfigError
        When verification is off, or the user logs in by a way that Kubernetes has removed.
    """
    if cluster.get("insecure-skip-tls-verify"):
        raise ConfigError(
            f"{path}: insecure-skip-tls-verify is refused; give certificate-authority instead"
        )
    for field_name in ("username", "password", "auth-provider"):
        if user.get(field_name):
            raise ConfigError(
                f"{path}: user.{field_name} is not supported by Kubernetes any more; use a token, "
                "a client certificate or an exec plugin"
            )


def inline_or_file(section: dict[str, Any], key: str, path: Path) -> bytes | None:
    """Return ``<key>-data`` decoded, else the content of the file ``<key>``; None if neither.

    Raises
    ------
    ConfigError
        When the data is not base64 or the file cannot be read.
    """
    data = section.get(f"{key}-data")
    if data:
        try:
            return base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError) as error:
            raise ConfigError(f"{path}: {key}-data is not base64") from error
    named = section.get(key)
    return read_file(path.parent / named) if named else None


def context_of(cluster: dict[str, Any], user: dict[str, Any], path: Path) -> ssl.SSLContext:
    """Build the TLS context of a cluster and a user entry.

    Raises
    ------
    ConfigError
        When a certificate or key cannot be used.
    """
    certificate = inline_or_file(user, "client-certificate", path)
    key = inline_or_file(user, "client-key", path)
    if (certificate is None) != (key is None):
        raise ConfigError(f"{path}: client-certificate and client-key go together")
    authority = inline_or_file(cluster, "certificate-authority", path)
    return tls_context(authority, certificate, key, where=str(path))


def tls_context(
    authority: bytes | None, certificate: bytes | None, key: bytes | None, *, where: str
) -> ssl.SSLContext:
    """Build a TLS context that verifies the server.

    Parameters
    ----------
    authority
        CA certificates in PEM; None means the system's.
    certificate
        Client certificate chain in PEM; None means no client certificate.

    Raises
    ------
    ConfigError
        When the bytes are not certificates or the key does not fit.
    """
    try:
        context = ssl.create_default_context(
            cadata=authority.decode("ascii") if authority is not None else None
        )
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if certificate is not None and key is not None:
            load_pair(context, certificate, key)
    except (ssl.SSLError, UnicodeDecodeError, ValueError) as error:
        raise ConfigError(f"{where}: certificate, key or CA cannot be used: {error}") from error
    return context


def load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load a client certificate; the library reads files only, so a private one is made."""
    with tempfile.TemporaryDirectory(prefix="cloister-") as directory:
        chain, secret = Path(directory) / "tls.crt", Path(directory) / "tls.key"
        chain.write_bytes(certificate)
        secret.touch(mode=0o600)
        secret.write_bytes(key)
        context.load_cert_chain(chain, secret)


def credentials_of(user: dict[str, Any], path: Path) -> TokenSource:
    """Return the source of the token of a user entry.

    Raises
    ------
    ConfigError
        When an exec plugin speaks another version than this client.
    """
    # As in kubectl, the file wins over a token of the entry: it is renewed.
    if user.get("tokenFile"):
        return TokenFile(path.parent / user["tokenFile"])
    if user.get("token"):
        return StaticToken(str(user["token"]))
    plugin = user.get("exec")
    if not plugin:
        return Anonymous()
    if plugin.get("apiVersion") != EXEC_API:
        raise ConfigError(
            f"{path}: exec plugin has apiVersion {plugin.get('apiVersion')!r}; this client speaks "
            f"{EXEC_API}"
        )
    command = str(plugin.get("command") or "")
    if not command:
        raise ConfigError(f"{path}: exec plugin has no command")
    # Relative to the kubeconfig, as kubectl resolves it; a bare name is searched in PATH.
    if "/" in command:
        command = str((path.parent / command).resolve())
    return ExecPlugin(
        command=command,
        args=tuple(str(arg) for arg in plugin.get("args") or ()),
        env={str(item["name"]): str(item["value"]) for item in plugin.get("env") or ()},
        install_hint=str(plugin.get("installHint") or ""),
    )


def impersonation_of(user: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the impersonation headers of a user entry (Kubernetes, "User impersonation")."""
    headers: dict[str, tuple[str, ...]] = {}
    if user.get("as"):
        headers["Impersonate-User"] = (str(user["as"]),)
    if user.get("as-uid"):
        headers["Impersonate-Uid"] = (str(user["as-uid"]),)
    if user.get("as-groups"):
        headers["Impersonate-Group"] = tuple(str(group) for group in user["as-groups"])
    for name, values in (user.get("as-user-extra") or {}).items():
        headers[f"Impersonate-Extra-{name}"] = tuple(str(value) for value in values)
    return headers
